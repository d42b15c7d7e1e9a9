"""Checked values as protobuf messages and back: field by field and by name, each through the value's own checks.

A dataclass and its message have fields of the same names. Only what has another form on the wire is written out here:
arrays, teacher settings, and values that carry a message of the secure sum. Every decoder raises ProtocolViolation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_origin, get_type_hints

import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray
from pydantic import ValidationError

from collegium import limits
from collegium.data.features import Features
from collegium.data.kernels import KernelSpec
from collegium.data.task import TeacherSettings
from collegium.data.values import ArraySpec, PoolChunk, PoolState, array_spec, canonical_bytes, require
from collegium.errors import ProtocolViolation
from collegium.protocol import replies, requests
from collegium.protocol.v1 import collegium_pb2 as pb

_MessageT = TypeVar("_MessageT", bound=Message)
_ValueT = TypeVar("_ValueT")

_MESSAGES: dict[type, type[Message]] = {
    ArraySpec: pb.ArraySpec,
    PoolChunk: pb.PoolChunk,
    PoolState: pb.PoolState,
    requests.CastNeighbours: pb.CastNeighboursRequest,
    requests.CastVotes: pb.CastVotesRequest,
    requests.Describe: pb.DescribeRequest,
    requests.Fit: pb.FitRequest,
    requests.HoldPool: pb.HoldPoolRequest,
    KernelSpec: pb.KernelSpec,
    requests.PoolRange: pb.PoolRange,
    requests.ShowLedger: pb.ShowLedgerRequest,
    requests.SumClasses: pb.SumClassesRequest,
    requests.Terms: pb.Terms,
    replies.Description: pb.Description,
    replies.Fitted: pb.Fitted,
    replies.LedgerHead: pb.LedgerHead,
    replies.Prepared: pb.Prepared,
}
"""The messages of the values that are translated field by field."""


class _Form(NamedTuple):
    """How a value is translated that has another form on the wire."""

    write: Callable[[Any], Message]
    read: Callable[[Any], Any]


def parse(kind: type[_MessageT], data: bytes, most_bytes: int = limits.MAX_MESSAGE_BYTES) -> _MessageT:
    """A protobuf message; ProtocolViolation where the bytes are too many or no such message."""
    require(len(data) <= most_bytes, f"a message has at most {most_bytes} bytes")
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ProtocolViolation("bytes that are no message of this protocol") from error


def to_message(value: object) -> Message:
    """The message of a value of this protocol."""
    form = _FORMS.get(type(value))
    return form.write(value) if form is not None else packed(_MESSAGES[type(value)], value)


def from_message(kind: type[_ValueT], message: Any) -> _ValueT:
    """The value of class ``kind`` that a message holds; ProtocolViolation where a check of the value fails."""
    form = _FORMS.get(kind)
    value: _ValueT = form.read(message) if form is not None else unpacked(kind, message)
    return value


def packed(kind: type[_MessageT], value: Any) -> _MessageT:
    """A message of class ``kind`` with the fields of a dataclass; a field that is None stays unset."""
    return kind(**dict(_packed(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)))


def unpacked(kind: type[_ValueT], message: Any) -> _ValueT:
    """A dataclass with the fields of a message; an optional field that is unset becomes None."""
    of: Any = kind
    return kind(**{name: _unpacked(hint, name, message) for name, hint in _hints(of).items()})


def _packed(name: str, content: Any) -> tuple[str, Any]:
    if isinstance(content, TeacherSettings):
        return f"{name}_json", content.canonical_json()
    return name, to_message(content) if dataclasses.is_dataclass(content) else content


def _unpacked(hint: Any, name: str, message: Any) -> Any:
    if hint is TeacherSettings:
        return _teacher(getattr(message, f"{name}_json"))
    content = getattr(message, name)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return from_message(hint, content)
    if get_origin(hint) is tuple:
        return tuple(content)
    if get_origin(hint) is Mapping:
        return dict(content)
    return None if hint == int | None and not message.HasField(name) else content


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


def _write_features(features: Features) -> pb.Features:
    message = pb.Features(name=features.name, network=features.network or b"")
    for name, array in (("projection", features.projection), ("scaling", features.scaling)):
        if array is not None:
            getattr(message, name).CopyFrom(to_message(array_spec(array)))
            setattr(message, f"{name}_data", bytes(canonical_bytes(array)))
    return message


def _read_features(message: pb.Features) -> Features:
    def array(name: str) -> NDArray[Any] | None:
        if not message.HasField(name):
            return None
        spec, data = from_message(ArraySpec, getattr(message, name)), getattr(message, f"{name}_data")
        require(len(data) == spec.size_bytes, "an array of another size than it announces")
        flat = np.frombuffer(data, dtype=np.dtype(spec.dtype).newbyteorder("<"))
        return flat.astype(spec.dtype).reshape(spec.shape)

    return Features(message.name, array("projection"), array("scaling"), message.network or None)


def _write_count_nearest(body: requests.CountNearest) -> pb.CountNearestRequest:
    names = ("terms", "features", "inputs", "by_class", "round_id", "ledger_id")
    edges = body.edges_squared
    return pb.CountNearestRequest(
        **dict(_packed(name, getattr(body, name)) for name in names),
        edges=edges.shape[1],
        edges_squared=bytes(canonical_bytes(edges)),
    )


def _read_count_nearest(message: pb.CountNearestRequest) -> requests.CountNearest:
    queries, hints = len(message.inputs.indices), _hints(requests.CountNearest)
    require(len(message.edges_squared) == 8 * queries * message.edges, "edges of another number than announced")
    edges = np.frombuffer(message.edges_squared, dtype="<i8").astype(np.int64).reshape(queries, message.edges)
    others = {name: _unpacked(hint, name, message) for name, hint in hints.items() if name != "edges_squared"}
    return requests.CountNearest(edges_squared=edges, **others)


def _counts(value: Any, message: Any, dtype: str) -> _Form:
    """The codec of a value with ``counts``, an array ``[queries, classes]`` that is sent as ``dtype``."""

    def write(body: Any) -> Message:
        queries, classes = body.counts.shape
        written: Message = message(queries=queries, classes=classes, counts=body.counts.astype(dtype).tobytes())
        return written

    def read(reply: Any) -> Any:
        size = reply.queries * reply.classes * np.dtype(dtype).itemsize
        require(len(reply.counts) == size, "counts of another size than they announce")
        return value(np.frombuffer(reply.counts, dtype).astype(np.int64).reshape(reply.queries, reply.classes))

    return _Form(write, read)


_FORMS: dict[type, _Form] = {
    Features: _Form(_write_features, _read_features),
    requests.CountNearest: _Form(_write_count_nearest, _read_count_nearest),
    requests.SecureSumStep: _Form(lambda step: step.message, requests.SecureSumStep),
    replies.Votes: _counts(replies.Votes, pb.Votes, "<u2"),
    replies.Neighbours: _counts(replies.Neighbours, pb.Neighbours, "<u4"),
    replies.Sums: _counts(replies.Sums, pb.Sums, "<i8"),
    replies.SecureSumAnswer: _Form(lambda answer: answer.message, replies.SecureSumAnswer),
    replies.Failure: _Form(
        lambda failure: pb.Error(code=failure.code, message=failure.message),
        lambda reply: replies.Failure(reply.code[:64], reply.message[: limits.MAX_TEXT_CHARS]),
    ),
}
