"""Checked values as protobuf messages and back: field by field and by name, each through the value's own checks.

A dataclass and its message have fields of the same names. Only what has another form on the wire is written out here:
arrays, teacher settings, and values that carry a message of the secure sum. Every decoder raises ProtocolViolation.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, get_origin, get_type_hints

import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from collegium import limits
from collegium.data.features import Features
from collegium.data.task import TeacherSettings
from collegium.data.values import ArraySpec, PoolChunk, PoolState, array_spec, canonical_bytes, require
from collegium.errors import ProtocolViolation
from collegium.protocol import replies, requests
from collegium.protocol.v1 import collegium_pb2 as pb

_MessageT = TypeVar("_MessageT", bound=Message)
_ValueT = TypeVar("_ValueT")
_ModelT = TypeVar("_ModelT", bound=BaseModel)

REQUESTS: dict[str, type[requests.RequestBody]] = {
    "describe": requests.Describe,
    "hold_pool": requests.HoldPool,
    "pool_chunk": PoolChunk,
    "fit": requests.Fit,
    "cast_votes": requests.CastVotes,
    "cast_neighbours": requests.CastNeighbours,
    "count_nearest": requests.CountNearest,
    "sum_classes": requests.SumClasses,
    "evaluate": requests.Evaluate,
    "count_coverage": requests.CountCoverage,
    "show_evaluation": requests.ShowEvaluation,
    "secure_sum": requests.SecureSumStep,
    "show_ledger": requests.ShowLedger,
}
REPLIES: dict[str, type[replies.ReplyBody]] = {
    "description": replies.Description,
    "pool_state": PoolState,
    "ledger_head": replies.LedgerHead,
    "fitted": replies.Fitted,
    "votes": replies.Votes,
    "neighbours": replies.Neighbours,
    "sums": replies.Sums,
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


def _write_features(features: Features, message: pb.Features) -> None:
    message.name, message.network = features.name, features.network or b""
    for name, array in (("projection", features.projection), ("scaling", features.scaling)):
        if array is not None:
            write(array_spec(array), getattr(message, name))
            setattr(message, f"{name}_data", bytes(canonical_bytes(array)))


def _read_features(message: pb.Features) -> Features:
    def array(name: str) -> NDArray[Any] | None:
        if not message.HasField(name):
            return None
        spec, data = read(ArraySpec, getattr(message, name)), getattr(message, f"{name}_data")
        require(len(data) == spec.size_bytes, "an array of another size than it announces")
        flat = np.frombuffer(data, dtype=np.dtype(spec.dtype).newbyteorder("<"))
        return flat.astype(spec.dtype).reshape(spec.shape)

    return Features(message.name, array("projection"), array("scaling"), message.network or None)


def _write_count_nearest(body: requests.CountNearest, message: pb.CountNearestRequest) -> None:
    for name in ("terms", "features", "inputs", "by_class", "round_id", "ledger_id"):
        _write_field(message, name, getattr(body, name))
    message.edges, message.edges_squared = body.edges_squared.shape[1], bytes(canonical_bytes(body.edges_squared))


def _read_count_nearest(message: pb.CountNearestRequest) -> requests.CountNearest:
    queries, hints = len(message.inputs.indices), _hints(requests.CountNearest)
    require(len(message.edges_squared) == 8 * queries * message.edges, "edges of another number than announced")
    edges = np.frombuffer(message.edges_squared, dtype="<i8").astype(np.int64).reshape(queries, message.edges)
    others = {name: _read_field(hint, name, message) for name, hint in hints.items() if name != "edges_squared"}
    return requests.CountNearest(edges_squared=edges, **others)


def _counts(value: Any, dtype: str) -> _Form:
    """The codec of a value with ``counts``, an array ``[queries, classes]`` that is sent as ``dtype``."""

    def write_counts(body: Any, message: Any) -> None:
        message.queries, message.classes = body.counts.shape
        message.counts = body.counts.astype(dtype).tobytes()

    def read_counts(reply: Any) -> Any:
        size = reply.queries * reply.classes * np.dtype(dtype).itemsize
        require(len(reply.counts) == size, "counts of another size than they announce")
        return value(np.frombuffer(reply.counts, dtype).astype(np.int64).reshape(reply.queries, reply.classes))

    return _Form(write_counts, read_counts)


def _carried(value: Any) -> _Form:
    """The codec of a value with a ``message`` of the secure sum."""
    return _Form(lambda body, message: message.CopyFrom(body.message), value)


_FORMS: dict[type, _Form] = {
    Features: _Form(_write_features, _read_features),
    requests.CountNearest: _Form(_write_count_nearest, _read_count_nearest),
    requests.SecureSumStep: _carried(requests.SecureSumStep),
    replies.Votes: _counts(replies.Votes, "<u2"),
    replies.Neighbours: _counts(replies.Neighbours, "<u4"),
    replies.Sums: _counts(replies.Sums, "<i8"),
    replies.SecureSumAnswer: _carried(replies.SecureSumAnswer),
    replies.Failure: _Form(
        lambda failure, message: message.MergeFrom(pb.Error(code=failure.code, message=failure.message)),
        lambda reply: replies.Failure(reply.code[:64], reply.message[: limits.MAX_TEXT_CHARS]),
    ),
}
