"""Checked values as protobuf messages and back: field by field and by name, each through the value's own checks.

A dataclass and its message have fields of the same names. Only what has another form on the wire is written out here:
questions, counts, teacher settings, and values that carry a message of the secure sum. Every decoder raises
ProtocolViolation.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, get_origin, get_type_hints

import numpy as np
from google.protobuf.message import DecodeError, Message
from pydantic import BaseModel, ValidationError

from collegium import limits
from collegium.data.task import TeacherSettings
from collegium.data.values import PoolChunk, PoolState, require
from collegium.errors import ProtocolViolation
from collegium.protocol import replies, requests
from collegium.protocol.question import decode, encode
from collegium.protocol.v1 import collegium_pb2 as pb

_MessageT = TypeVar("_MessageT", bound=Message)
_ValueT = TypeVar("_ValueT")
_ModelT = TypeVar("_ModelT", bound=BaseModel)

REQUESTS: dict[str, type[requests.RequestBody]] = {
    "describe": requests.Describe,
    "hold_pool": requests.HoldPool,
    "pool_chunk": PoolChunk,
    "fit": requests.Fit,
    "ask": requests.Ask,
    "show_released": requests.ShowReleased,
    "secure_sum": requests.SecureSumStep,
    "show_ledger": requests.ShowLedger,
}
REPLIES: dict[str, type[replies.ReplyBody]] = {
    "description": replies.Description,
    "pool_state": PoolState,
    "ledger_head": replies.LedgerHead,
    "fitted": replies.Fitted,
    "counts": replies.Counts,
    "prepared": replies.Prepared,
    "secure_sum": replies.SecureSumAnswer,
    "error": replies.Failure,
}
"""What the body of a request and of a reply may be, by the name of its field."""
_FIELD_OF = {kind: name for name, kind in (*REQUESTS.items(), *REPLIES.items())}


class _Form(NamedTuple):
    """How a value is translated that has another form on the wire."""

    write: Callable[[Any, Any], None]
    read: Callable[[Any], Any]


class Translated:
    """A value with a message of its own, whose fields have the same names."""

    message: ClassVar[type[Message]]

    def to_proto(self) -> Any:
        message = self.message()
        write(self, message)
        return message

    def to_bytes(self) -> bytes:
        data: bytes = self.to_proto().SerializeToString(deterministic=True)
        return data

    @classmethod
    def from_proto(cls, message: Any) -> Self:
        return read(cls, message)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        return cls.from_proto(parse(cls.message, data))


def parse(kind: type[_MessageT], data: bytes, most_bytes: int = limits.MAX_MESSAGE_BYTES) -> _MessageT:
    """A protobuf message; ProtocolViolation where the bytes are too many or no such message."""
    require(len(data) <= most_bytes, f"a message has at most {most_bytes} bytes")
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ProtocolViolation("bytes that are no message of this protocol") from error


def parse_json(kind: type[_ModelT], text: str, what: str) -> _ModelT:
    """Settings that the coordinator sent as JSON; ProtocolViolation where the text is not ``what`` it should be."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise ProtocolViolation(f"the coordinator sent {what} that is not valid: update Collegium") from error


def write(value: Any, message: Any) -> None:
    """Set a message's fields to those of a dataclass."""
    message.SetInParent()
    form = _FORMS.get(type(value))
    if form is not None:
        form.write(value, message)
        return
    for field in dataclasses.fields(value):
        _write_field(message, field.name, getattr(value, field.name))


def _write_field(message: Any, name: str, content: Any) -> None:
    if name == "body":
        name = _FIELD_OF[type(content)]
    if isinstance(content, TeacherSettings):
        setattr(message, f"{name}_json", content.canonical_json())
    elif dataclasses.is_dataclass(content):
        write(content, getattr(message, name))
    elif isinstance(content, tuple):
        getattr(message, name).extend(content)
    elif isinstance(content, Mapping):
        getattr(message, name).update(content)
    else:
        setattr(message, name, content)


def read(kind: type[_ValueT], message: Any) -> _ValueT:
    """The value of class ``kind`` that a message holds; ProtocolViolation where a check of the value fails."""
    of: Any = kind
    form = _FORMS.get(kind)
    value: _ValueT
    if form is not None:
        value = form.read(message)
    else:
        value = kind(**{name: _read_field(hint, name, message) for name, hint in _hints(of).items()})
    return value


def _read_field(hint: Any, name: str, message: Any) -> Any:
    if name == "body":
        return _read_body(message)
    if hint is TeacherSettings:
        return _teacher(getattr(message, f"{name}_json"))
    content = getattr(message, name)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return read(hint, content)
    if get_origin(hint) is tuple:
        return tuple(content)
    if get_origin(hint) is Mapping:
        return dict(content)
    return content


def _read_body(message: pb.Request | pb.Reply) -> requests.RequestBody | replies.ReplyBody:
    name = message.WhichOneof("body")
    if name is None:
        raise ProtocolViolation("a message of an unknown kind: update Collegium on this side")
    kinds: Mapping[str, Any] = REQUESTS if isinstance(message, pb.Request) else REPLIES
    body: requests.RequestBody | replies.ReplyBody = read(kinds[name], getattr(message, name))
    return body


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """The types of a dataclass's fields, by name."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _teacher(text: str) -> TeacherSettings:
    require(len(text) <= limits.MAX_JSON_BYTES, "teacher settings are too long")
    try:
        return TeacherSettings.model_validate_json(text)
    except ValidationError as error:
        raise ProtocolViolation(f"teacher settings are not valid: {error.errors()[0]['msg']}") from error


def _write_ask(body: requests.Ask, message: pb.AskRequest) -> None:
    message.round_id, message.kind, message.question = body.round_id, body.question.kind, encode(body.question)


def _write_counts(body: replies.Counts, message: pb.Counts) -> None:
    counts, largest = body.counts, int(np.abs(body.counts).max())
    message.rows, message.entries = counts.shape
    message.entry_bytes = next(size for size in (2, 4, 8) if largest < 1 << (8 * size - 1))
    message.counts = counts.astype(f"<i{message.entry_bytes}").tobytes()


def _read_counts(reply: pb.Counts) -> replies.Counts:
    require(reply.entry_bytes in (2, 4, 8), "a count has 2, 4 or 8 bytes")
    require(
        len(reply.counts) == reply.rows * reply.entries * reply.entry_bytes, "counts of another size than announced"
    )
    counts = np.frombuffer(reply.counts, f"<i{reply.entry_bytes}").astype(np.int64)
    return replies.Counts(counts.reshape(reply.rows, reply.entries))


def _carried(value: Any) -> _Form:
    """The codec of a value with a ``message`` of the secure sum."""
    return _Form(lambda body, message: message.CopyFrom(body.message), value)


_FORMS: dict[type, _Form] = {
    requests.Ask: _Form(_write_ask, lambda form: requests.Ask(form.round_id, decode(form.kind, form.question))),
    requests.SecureSumStep: _carried(requests.SecureSumStep),
    replies.Counts: _Form(_write_counts, _read_counts),
    replies.SecureSumAnswer: _carried(replies.SecureSumAnswer),
    replies.Failure: _Form(
        lambda failure, message: message.MergeFrom(pb.Error(code=failure.code, message=failure.message)),
        lambda reply: replies.Failure(reply.code[:64], reply.message[: limits.MAX_TEXT_CHARS]),
    ),
}
