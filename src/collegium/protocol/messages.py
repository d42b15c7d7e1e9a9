"""Requests and replies with their ids, and their translation to and from protobuf.

Every decoder raises ProtocolViolation. Only this module and the transports use the protobuf classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from pydantic import ValidationError

from collegium import limits
from collegium.data.feature_spec import Features
from collegium.data.task import TeacherSettings
from collegium.data.values import IDENTIFIER, ArraySpec, PoolChunk, PoolState, check_party_name, require
from collegium.errors import ProtocolViolation
from collegium.protocol.neighbours import Neighbours
from collegium.protocol.replies import (
    Description,
    Failure,
    Fitted,
    Prepared,
    ReplyBody,
    SecureSumAnswer,
    Votes,
    check_votes,
)
from collegium.protocol.requests import (
    CastNeighbours,
    CastVotes,
    CountNearest,
    Describe,
    Fit,
    HoldPool,
    PoolRange,
    RequestBody,
    SecureSumStep,
    Terms,
    VoteRequest,
)
from collegium.protocol.v1 import collegium_pb2 as pb

__all__ = [
    "ArraySpec",
    "CastNeighbours",
    "CastVotes",
    "CountNearest",
    "Describe",
    "Description",
    "Failure",
    "Fit",
    "Fitted",
    "HoldPool",
    "Neighbours",
    "PoolChunk",
    "PoolRange",
    "PoolState",
    "Prepared",
    "Reply",
    "ReplyBody",
    "Request",
    "RequestBody",
    "SecureSumAnswer",
    "SecureSumStep",
    "Terms",
    "VoteRequest",
    "Votes",
    "check_party_name",
    "check_votes",
    "spec_from_proto",
    "spec_to_proto",
]


@dataclass(frozen=True)
class Request:
    """A request of the coordinator. A repeated ``request_id`` gets the same answer."""

    request_id: str
    run_id: str
    body: RequestBody

    def __post_init__(self) -> None:
        require(IDENTIFIER.fullmatch(self.request_id) is not None, "a request has an id")
        require(IDENTIFIER.fullmatch(self.run_id) is not None, "a request belongs to a run")

    def to_proto(self) -> pb.Request:
        message = pb.Request(request_id=self.request_id, run_id=self.run_id)
        match self.body:
            case Describe():
                message.describe.SetInParent()
            case HoldPool(pool):
                message.hold_pool.pool.CopyFrom(spec_to_proto(pool))
            case PoolChunk(pool, offset, data):
                message.pool_chunk.CopyFrom(pb.PoolChunk(pool=spec_to_proto(pool), offset_bytes=offset, data=data))
            case Fit(teacher):
                message.fit.teacher_json = teacher.canonical_json()
            case CastVotes():
                message.cast_votes.CopyFrom(_cast_votes_to_proto(self.body))
            case CastNeighbours():
                message.cast_neighbours.CopyFrom(_cast_neighbours_to_proto(self.body))
            case CountNearest():
                message.count_nearest.CopyFrom(_count_nearest_to_proto(self.body))
            case SecureSumStep(step):
                message.secure_sum.CopyFrom(step)
        return message

    def to_bytes(self) -> bytes:
        return self.to_proto().SerializeToString(deterministic=True)

    @classmethod
    def from_proto(cls, message: pb.Request) -> Request:
        body: RequestBody
        match message.WhichOneof("body"):
            case "describe":
                body = Describe()
            case "hold_pool":
                body = HoldPool(spec_from_proto(message.hold_pool.pool))
            case "pool_chunk":
                chunk = message.pool_chunk
                body = PoolChunk(spec_from_proto(chunk.pool), chunk.offset_bytes, chunk.data)
            case "fit":
                body = Fit(_teacher_from_json(message.fit.teacher_json))
            case "cast_votes":
                body = _cast_votes_from_proto(message.cast_votes)
            case "cast_neighbours":
                body = _cast_neighbours_from_proto(message.cast_neighbours)
            case "count_nearest":
                body = _count_nearest_from_proto(message.count_nearest)
            case "secure_sum":
                body = SecureSumStep(message.secure_sum)
            case _:
                raise ProtocolViolation("a request of an unknown kind: update Collegium on this side")
        return cls(message.request_id, message.run_id, body)

    @classmethod
    def from_bytes(cls, data: bytes) -> Request:
        return cls.from_proto(_parse(pb.Request(), data))


@dataclass(frozen=True)
class Reply:
    """A party's reply to the request with the same id."""

    request_id: str
    body: ReplyBody

    def __post_init__(self) -> None:
        require(IDENTIFIER.fullmatch(self.request_id) is not None, "a reply names its request")

    def to_proto(self) -> pb.Reply:
        message = pb.Reply(request_id=self.request_id)
        match self.body:
            case Description(party, software, teachers, kind):
                message.description.CopyFrom(
                    pb.Description(party=party, software=software, teachers=teachers, teacher_kind=kind)
                )
            case PoolState(sha256, received, complete):
                message.pool_state.CopyFrom(pb.PoolState(sha256=sha256, received_bytes=received, complete=complete))
            case Fitted(teachers):
                message.fitted.CopyFrom(pb.Fitted(teachers=teachers))
            case Votes(counts):
                queries, classes = counts.shape
                data = counts.astype("<u2").tobytes()
                message.votes.CopyFrom(pb.Votes(queries=queries, classes=classes, counts=data))
            case Neighbours(counts):
                queries, classes = counts.shape
                data = counts.astype("<u4").tobytes()
                message.neighbours.CopyFrom(pb.Neighbours(queries=queries, classes=classes, counts=data))
            case Prepared(round_id):
                message.prepared.round_id = round_id
            case SecureSumAnswer(answer):
                message.secure_sum.CopyFrom(answer)
            case Failure(code, text):
                message.error.CopyFrom(pb.Error(code=code, message=text))
        return message

    def to_bytes(self) -> bytes:
        return self.to_proto().SerializeToString(deterministic=True)

    @classmethod
    def from_proto(cls, message: pb.Reply) -> Reply:
        body: ReplyBody
        match message.WhichOneof("body"):
            case "description":
                said = message.description
                body = Description(said.party, said.software, said.teachers, said.teacher_kind)
            case "pool_state":
                state = message.pool_state
                body = PoolState(state.sha256, state.received_bytes, state.complete)
            case "fitted":
                body = Fitted(message.fitted.teachers)
            case "votes":
                body = Votes(_counts_from_proto(message.votes, "<u2"))
            case "neighbours":
                body = Neighbours(_counts_from_proto(message.neighbours, "<u4"))
            case "prepared":
                body = Prepared(message.prepared.round_id)
            case "secure_sum":
                body = SecureSumAnswer(message.secure_sum)
            case "error":
                body = Failure(message.error.code[:64], message.error.message[: limits.MAX_TEXT_CHARS])
            case _:
                raise ProtocolViolation("a reply of an unknown kind")
        return cls(message.request_id, body)

    @classmethod
    def from_bytes(cls, data: bytes) -> Reply:
        return cls.from_proto(_parse(pb.Reply(), data))


_Message = TypeVar("_Message", pb.Request, pb.Reply)


def _parse(message: _Message, data: bytes) -> _Message:
    require(len(data) <= limits.MAX_MESSAGE_BYTES, f"a message has at most {limits.MAX_MESSAGE_BYTES} bytes")
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise ProtocolViolation("bytes that are no message of this protocol") from error
    return message


def spec_to_proto(spec: ArraySpec) -> pb.ArraySpec:
    return pb.ArraySpec(sha256=spec.sha256, dtype=spec.dtype, shape=spec.shape)


def spec_from_proto(message: pb.ArraySpec) -> ArraySpec:
    return ArraySpec(message.sha256, message.dtype, tuple(message.shape))


def _teacher_from_json(text: str) -> TeacherSettings:
    require(len(text) <= limits.MAX_JSON_BYTES, "teacher settings are too long")
    try:
        return TeacherSettings.model_validate_json(text)
    except ValidationError as error:
        raise ProtocolViolation(f"teacher settings are not valid: {error.errors()[0]['msg']}") from error


def _terms_to_proto(terms: Terms) -> pb.Terms:
    return pb.Terms(
        mechanism=terms.mechanism,
        parameters=dict(terms.parameters),
        adjacency=terms.adjacency,
        sum_mode=terms.sum_mode,
        stage=terms.stage,
    )


def _terms_from_proto(message: pb.Terms) -> Terms:
    parameters = dict(message.parameters)
    return Terms(message.mechanism, parameters, message.adjacency, message.sum_mode, message.stage)


def _cast_votes_to_proto(body: CastVotes) -> pb.CastVotesRequest:
    return pb.CastVotesRequest(
        terms=_terms_to_proto(body.terms),
        teacher_json=body.teacher.canonical_json(),
        inputs=_range_to_proto(body.inputs),
        round_id=body.round_id,
    )


def _cast_votes_from_proto(message: pb.CastVotesRequest) -> CastVotes:
    teacher = _teacher_from_json(message.teacher_json)
    return CastVotes(_terms_from_proto(message.terms), teacher, _range_from_proto(message.inputs), message.round_id)


def _range_to_proto(inputs: PoolRange) -> pb.PoolRange:
    return pb.PoolRange(pool_sha256=inputs.pool_sha256, indices=inputs.indices)


def _range_from_proto(message: pb.PoolRange) -> PoolRange:
    return PoolRange(message.pool_sha256, tuple(message.indices))


def _features_to_proto(features: Features) -> pb.Features:
    message = pb.Features(name=features.name, network=features.network or b"")
    if features.projection is not None:
        message.projection.CopyFrom(_spec_of(features.projection))
        message.projection_data = _little(features.projection)
    if features.scaling is not None:
        message.scaling.CopyFrom(_spec_of(features.scaling))
        message.scaling_data = _little(features.scaling)
    return message


def _features_from_proto(message: pb.Features) -> Features:
    return Features(
        message.name,
        _array_from_proto(message.projection, message.projection_data) if message.HasField("projection") else None,
        _array_from_proto(message.scaling, message.scaling_data) if message.HasField("scaling") else None,
        message.network or None,
    )


def _cast_neighbours_to_proto(body: CastNeighbours) -> pb.CastNeighboursRequest:
    return pb.CastNeighboursRequest(
        terms=_terms_to_proto(body.terms),
        features=_features_to_proto(body.features),
        inputs=_range_to_proto(body.inputs),
        radii_squared=body.radii_squared,
        kernel=body.kernel,
        round_id=body.round_id,
        ledger_id=body.ledger_id,
    )


def _cast_neighbours_from_proto(message: pb.CastNeighboursRequest) -> CastNeighbours:
    return CastNeighbours(
        _terms_from_proto(message.terms),
        _features_from_proto(message.features),
        _range_from_proto(message.inputs),
        tuple(message.radii_squared),
        message.kernel,
        message.round_id,
        message.ledger_id,
    )


def _count_nearest_to_proto(body: CountNearest) -> pb.CountNearestRequest:
    return pb.CountNearestRequest(
        terms=_terms_to_proto(body.terms),
        features=_features_to_proto(body.features),
        inputs=_range_to_proto(body.inputs),
        edges=body.edges_squared.shape[1],
        edges_squared=_little(body.edges_squared),
        by_class=body.by_class,
        round_id=body.round_id,
        ledger_id=body.ledger_id,
    )


def _count_nearest_from_proto(message: pb.CountNearestRequest) -> CountNearest:
    queries = len(message.inputs.indices)
    require(len(message.edges_squared) == 8 * queries * message.edges, "edges of another number than announced")
    edges = np.frombuffer(message.edges_squared, dtype="<i8").astype(np.int64)
    return CountNearest(
        _terms_from_proto(message.terms),
        _features_from_proto(message.features),
        _range_from_proto(message.inputs),
        edges.reshape(queries, message.edges),
        message.by_class,
        message.round_id,
        message.ledger_id,
    )


def _spec_of(array: NDArray[Any]) -> pb.ArraySpec:
    from collegium.data import array_spec

    return spec_to_proto(array_spec(array))


def _little(array: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()


def _array_from_proto(described: pb.ArraySpec, data: bytes) -> NDArray[Any]:
    spec = spec_from_proto(described)
    require(len(data) == spec.size_bytes, "an array of another size than it announces")
    flat = np.frombuffer(data, dtype=np.dtype(spec.dtype).newbyteorder("<"))
    return flat.astype(spec.dtype).reshape(spec.shape)


def _counts_from_proto(message: pb.Votes | pb.Neighbours, dtype: str) -> NDArray[np.int64]:
    size = message.queries * message.classes * np.dtype(dtype).itemsize
    require(len(message.counts) == size, "counts of another size than they announce")
    counts = np.frombuffer(message.counts, dtype=dtype).astype(np.int64)
    return counts.reshape(message.queries, message.classes)
