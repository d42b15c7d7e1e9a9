"""Requests and replies as frozen, validated values, and their translation to and from protobuf.

A value that exists is valid: every constructor checks what it can check alone, and every decoder
raises ProtocolViolation. The protobuf classes do not leave this module and the transports.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from pydantic import ValidationError

from collegium.protocol import limits
from collegium.protocol.errors import CollegiumError, ProtocolViolation, error_for_code
from collegium.protocol.neighbours import KERNELS, Features, Neighbours
from collegium.protocol.task import PARTY_NAME, TeacherSettings
from collegium.protocol.v1 import collegium_pb2 as pb
from collegium.protocol.v1 import secure_sum_pb2

_SHA256 = re.compile(r"[0-9a-f]{64}")
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
_DTYPES = {"uint8": 1, "float32": 4}


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ProtocolViolation(what)


def check_party_name(name: str) -> str:
    """The name itself; ProtocolViolation unless it is 1 to 63 lower-case letters, digits and inner hyphens."""
    _require(PARTY_NAME.fullmatch(name) is not None, f"not a party name: {name[:64]!r}")
    return name


@dataclass(frozen=True)
class ArraySpec:
    """An array named by the SHA-256 of its header and row-major little-endian bytes (`inputs.array_spec`)."""

    sha256: str
    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        _require(_SHA256.fullmatch(self.sha256) is not None, "an array is named by 64 hexadecimal digits")
        _require(self.dtype in _DTYPES, f"arrays are uint8 or float32, not {self.dtype[:32]!r}")
        _require(1 <= len(self.shape) <= limits.MAX_DIMENSIONS, "an array has 1 to 4 dimensions")
        _require(all(size > 0 for size in self.shape), "an array's sizes are positive")
        _require(self.shape[0] <= limits.MAX_POOL_INPUTS, f"at most {limits.MAX_POOL_INPUTS} inputs")
        _require(self.size_bytes <= limits.MAX_POOL_BYTES, f"at most {limits.MAX_POOL_BYTES} bytes")

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * _DTYPES[self.dtype]


@dataclass(frozen=True)
class Describe:
    """Ask a party what it is."""


@dataclass(frozen=True)
class HoldPool:
    """Ask whether the party holds the pool already."""

    pool: ArraySpec


@dataclass(frozen=True)
class PoolChunk:
    """A piece of the pool, in order."""

    pool: ArraySpec
    offset_bytes: int
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        _require(0 < len(self.data) <= limits.MAX_CHUNK_BYTES, f"a chunk holds 1 to {limits.MAX_CHUNK_BYTES} bytes")
        _require(0 <= self.offset_bytes <= self.pool.size_bytes - len(self.data), "a chunk lies within its pool")


@dataclass(frozen=True)
class Fit:
    """Ask a party to have its teachers ready."""

    teacher: TeacherSettings


@dataclass(frozen=True)
class Terms:
    """What will be done with the votes: the party's policy decides by this."""

    mechanism: str
    parameters: Mapping[str, float]
    adjacency: str = "replace"
    sum_mode: str = "clear"

    def __post_init__(self) -> None:
        _require(_IDENTIFIER.fullmatch(self.mechanism) is not None, "a mechanism has a name")
        _require(len(self.parameters) <= 32, "a mechanism has at most 32 parameters")
        _require(all(math.isfinite(value) for value in self.parameters.values()), "parameters are finite numbers")
        _require(self.adjacency in ("replace", "add-remove"), "adjacency is replace or add-remove")
        _require(self.sum_mode in ("clear", "masked", "masked+noised"), f"unknown sum mode {self.sum_mode[:32]!r}")


@dataclass(frozen=True)
class PoolRange:
    """Inputs named by their positions in the pool."""

    pool_sha256: str
    indices: tuple[int, ...]

    def __post_init__(self) -> None:
        _require(_SHA256.fullmatch(self.pool_sha256) is not None, "a pool is named by 64 hexadecimal digits")
        _require(0 < len(self.indices) <= limits.MAX_QUERIES_PER_ROUND, "a round has 1 to 100,000 queries")


@dataclass(frozen=True, eq=False)
class InlineInputs:
    """Inputs sent along, shape ``[queries, …]``."""

    array: NDArray[Any] = field(repr=False)

    def __post_init__(self) -> None:
        _require(str(self.array.dtype) in _DTYPES, "inputs are uint8 or float32")
        _require(0 < len(self.array) <= limits.MAX_QUERIES_PER_ROUND, "a round has 1 to 100,000 queries")
        _require(self.array.nbytes <= limits.MAX_MESSAGE_BYTES // 2, "send a pool instead of so many inputs at once")


@dataclass(frozen=True)
class CastVotes:
    """Ask for the votes of the party's teachers on some inputs."""

    terms: Terms
    teacher: TeacherSettings
    inputs: PoolRange | InlineInputs
    round_id: str

    def __post_init__(self) -> None:
        _require(_IDENTIFIER.fullmatch(self.round_id) is not None, "a round has an id")

    @property
    def highest(self) -> int:
        """The largest entry of one party's answer; public."""
        return min(self.teacher.per_party, limits.MAX_TEACHERS_PER_PARTY)


@dataclass(frozen=True)
class CastNeighbours:
    """Ask for the classes of the party's records within a radius of some inputs of a pool.

    Parameters
    ----------
    terms : with the parameters ``sigma`` (noise on each entry of the sum), ``levels`` (what the largest weight
        counts in an entry) and ``participations`` (full-weight votes that one record may cast in the run).
    features : made from public data alone, like the radii.
    radii_squared : one per input, in the units of the features.
    kernel : how a record's weight falls with its distance; see `neighbours.weight_units`.
    ledger_id : the ledger under which the labels are released.
    """

    terms: Terms
    features: Features
    inputs: PoolRange
    radii_squared: tuple[int, ...]
    kernel: str
    round_id: str
    ledger_id: str

    def __post_init__(self) -> None:
        _require(_IDENTIFIER.fullmatch(self.round_id) is not None, "a round has an id")
        _require(_IDENTIFIER.fullmatch(self.ledger_id) is not None, "a ledger has an id")
        _require(self.kernel in KERNELS, f"a kernel is one of {', '.join(KERNELS)}")
        _require(len(self.radii_squared) == len(self.inputs.indices), "every query has its radius")
        _require(len(set(self.inputs.indices)) == len(self.inputs.indices), "a round asks an input once")
        _require(
            all(0 <= radius <= limits.MAX_RADIUS_SQUARED for radius in self.radii_squared),
            f"a squared radius lies between 0 and {limits.MAX_RADIUS_SQUARED}",
        )

    @property
    def highest(self) -> int:
        """The largest entry of one party's answer; public."""
        return limits.MAX_NEIGHBOUR_COUNT


@dataclass(frozen=True)
class SecureSumStep:
    """One phase of a secure sum; its own module validates it."""

    message: secure_sum_pb2.SecureSumRequest = field(repr=False)


RequestBody = Describe | HoldPool | PoolChunk | Fit | CastVotes | CastNeighbours | SecureSumStep


@dataclass(frozen=True)
class Description:
    """What a party says of itself. Nothing here depends on a private record."""

    party: str
    software: str
    teachers: int
    teacher_kind: str

    def __post_init__(self) -> None:
        check_party_name(self.party)
        _require(len(self.software) <= 64 and len(self.teacher_kind) <= 64, "a description's texts are short")
        _require(0 <= self.teachers <= limits.MAX_TEACHERS_PER_PARTY, "a party has at most 1,000 teachers")


@dataclass(frozen=True)
class PoolState:
    """How much of a pool the party holds."""

    sha256: str
    received_bytes: int
    complete: bool

    def __post_init__(self) -> None:
        _require(_SHA256.fullmatch(self.sha256) is not None, "a pool is named by 64 hexadecimal digits")
        _require(0 <= self.received_bytes <= limits.MAX_POOL_BYTES, "a pool's size is bounded")


@dataclass(frozen=True)
class Fitted:
    """The teachers are ready; ``reused`` of them were fitted before."""

    teachers: int
    reused: int

    def __post_init__(self) -> None:
        _require(0 <= self.reused <= self.teachers <= limits.MAX_TEACHERS_PER_PARTY, "0 ≤ reused ≤ teachers ≤ 1,000")


@dataclass(frozen=True, eq=False)
class Votes:
    """Counts per query and class of one party's teachers, shape ``[queries, classes]``, dtype int64.

    Every row sums to the number of teachers; whoever asked checks that with `check_votes`.
    """

    counts: NDArray[np.int64] = field(repr=False)

    def __post_init__(self) -> None:
        _require(self.counts.ndim == 2, "votes have the shape [queries, classes]")
        queries, classes = self.counts.shape
        _require(0 < queries <= limits.MAX_QUERIES_PER_ROUND, "a round has 1 to 100,000 queries")
        _require(0 < classes <= limits.MAX_CLASSES, "at most 1,000 classes")
        _require(self.counts.dtype == np.int64, "votes are integers")
        lowest, highest = int(self.counts.min()), int(self.counts.max())
        _require(lowest >= 0 and highest <= limits.MAX_TEACHERS_PER_PARTY, "votes are counts from 0 to 1,000")


@dataclass(frozen=True)
class Prepared:
    """The votes of a round are ready to be summed."""

    round_id: str


@dataclass(frozen=True)
class SecureSumAnswer:
    """A party's answer within a secure sum."""

    message: secure_sum_pb2.SecureSumReply = field(repr=False)


@dataclass(frozen=True)
class Failure:
    """Why there is no answer: what the party said, or what happened on the way to it."""

    code: str
    message: str

    @classmethod
    def of(cls, error: CollegiumError) -> Failure:
        return cls(error.code, str(error)[: limits.MAX_TEXT_CHARS])

    def error(self) -> CollegiumError:
        return error_for_code(self.code, self.message)


ReplyBody = Description | PoolState | Fitted | Votes | Neighbours | Prepared | SecureSumAnswer | Failure


def check_votes(votes: Votes, *, queries: int, classes: int, teachers: int) -> None:
    """Raise ProtocolViolation unless every one of ``queries`` rows holds ``teachers`` votes over ``classes``."""
    _require(votes.counts.shape == (queries, classes), f"votes of shape {votes.counts.shape}, not {(queries, classes)}")
    _require(bool((votes.counts.sum(axis=1) == teachers).all()), f"a row of votes does not sum to {teachers} teachers")


@dataclass(frozen=True)
class Request:
    """What the coordinator asks. A repeated ``request_id`` gets the same answer."""

    request_id: str
    run_id: str
    body: RequestBody

    def __post_init__(self) -> None:
        _require(_IDENTIFIER.fullmatch(self.request_id) is not None, "a request has an id")
        _require(_IDENTIFIER.fullmatch(self.run_id) is not None, "a request belongs to a run")

    def to_proto(self) -> pb.Request:
        message = pb.Request(request_id=self.request_id, run_id=self.run_id)
        match self.body:
            case Describe():
                message.describe.SetInParent()
            case HoldPool(pool):
                message.hold_pool.pool.CopyFrom(_spec_to_proto(pool))
            case PoolChunk(pool, offset, data):
                message.pool_chunk.CopyFrom(pb.PoolChunk(pool=_spec_to_proto(pool), offset_bytes=offset, data=data))
            case Fit(teacher):
                message.fit.teacher_json = teacher.canonical_json()
            case CastVotes():
                message.cast_votes.CopyFrom(_cast_votes_to_proto(self.body))
            case CastNeighbours():
                message.cast_neighbours.CopyFrom(_cast_neighbours_to_proto(self.body))
            case SecureSumStep(step):
                message.secure_sum.CopyFrom(step)
        return message

    def to_bytes(self) -> bytes:
        return self.to_proto().SerializeToString()

    @classmethod
    def from_proto(cls, message: pb.Request) -> Request:
        body: RequestBody
        match message.WhichOneof("body"):
            case "describe":
                body = Describe()
            case "hold_pool":
                body = HoldPool(_spec_from_proto(message.hold_pool.pool))
            case "pool_chunk":
                chunk = message.pool_chunk
                body = PoolChunk(_spec_from_proto(chunk.pool), chunk.offset_bytes, chunk.data)
            case "fit":
                body = Fit(_teacher_from_json(message.fit.teacher_json))
            case "cast_votes":
                body = _cast_votes_from_proto(message.cast_votes)
            case "cast_neighbours":
                body = _cast_neighbours_from_proto(message.cast_neighbours)
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
    """What a party answers to the request of the same id."""

    request_id: str
    body: ReplyBody

    def __post_init__(self) -> None:
        _require(_IDENTIFIER.fullmatch(self.request_id) is not None, "a reply names its request")

    def to_proto(self) -> pb.Reply:
        message = pb.Reply(request_id=self.request_id)
        match self.body:
            case Description(party, software, teachers, kind):
                message.description.CopyFrom(
                    pb.Description(party=party, software=software, teachers=teachers, teacher_kind=kind)
                )
            case PoolState(sha256, received, complete):
                message.pool_state.CopyFrom(pb.PoolState(sha256=sha256, received_bytes=received, complete=complete))
            case Fitted(teachers, reused):
                message.fitted.CopyFrom(pb.Fitted(teachers=teachers, reused=reused))
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
        return self.to_proto().SerializeToString()

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
                body = Fitted(message.fitted.teachers, message.fitted.reused)
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
    _require(len(data) <= limits.MAX_MESSAGE_BYTES, f"a message has at most {limits.MAX_MESSAGE_BYTES} bytes")
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise ProtocolViolation("bytes that are no message of this protocol") from error
    return message


def _spec_to_proto(spec: ArraySpec) -> pb.ArraySpec:
    return pb.ArraySpec(sha256=spec.sha256, dtype=spec.dtype, shape=spec.shape)


def _spec_from_proto(message: pb.ArraySpec) -> ArraySpec:
    return ArraySpec(message.sha256, message.dtype, tuple(message.shape))


def _teacher_from_json(text: str) -> TeacherSettings:
    _require(len(text) <= limits.MAX_JSON_BYTES, "teacher settings are too long")
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
    )


def _terms_from_proto(message: pb.Terms) -> Terms:
    return Terms(message.mechanism, dict(message.parameters), message.adjacency, message.sum_mode)


def _cast_votes_to_proto(body: CastVotes) -> pb.CastVotesRequest:
    message = pb.CastVotesRequest(
        terms=_terms_to_proto(body.terms), teacher_json=body.teacher.canonical_json(), round_id=body.round_id
    )
    match body.inputs:
        case PoolRange(sha256, indices):
            message.pool_range.CopyFrom(pb.PoolRange(pool_sha256=sha256, indices=indices))
        case InlineInputs(array):
            message.inline_inputs.array.CopyFrom(_spec_of(array))
            message.inline_inputs.data = _little(array)
    return message


def _cast_votes_from_proto(message: pb.CastVotesRequest) -> CastVotes:
    inputs: PoolRange | InlineInputs
    match message.WhichOneof("inputs"):
        case "pool_range":
            inputs = PoolRange(message.pool_range.pool_sha256, tuple(message.pool_range.indices))
        case "inline_inputs":
            inputs = InlineInputs(_array_from_proto(message.inline_inputs.array, message.inline_inputs.data))
        case _:
            raise ProtocolViolation("a request for votes names its inputs")
    teacher = _teacher_from_json(message.teacher_json)
    return CastVotes(_terms_from_proto(message.terms), teacher, inputs, message.round_id)


def _cast_neighbours_to_proto(body: CastNeighbours) -> pb.CastNeighboursRequest:
    features = pb.Features(name=body.features.name)
    if body.features.projection is not None:
        features.projection.CopyFrom(_spec_of(body.features.projection))
        features.projection_data = _little(body.features.projection)
    return pb.CastNeighboursRequest(
        terms=_terms_to_proto(body.terms),
        features=features,
        inputs=pb.PoolRange(pool_sha256=body.inputs.pool_sha256, indices=body.inputs.indices),
        radii_squared=body.radii_squared,
        kernel=body.kernel,
        round_id=body.round_id,
        ledger_id=body.ledger_id,
    )


def _cast_neighbours_from_proto(message: pb.CastNeighboursRequest) -> CastNeighbours:
    sent = message.features
    projection = _array_from_proto(sent.projection, sent.projection_data) if sent.HasField("projection") else None
    return CastNeighbours(
        _terms_from_proto(message.terms),
        Features(sent.name, projection),
        PoolRange(message.inputs.pool_sha256, tuple(message.inputs.indices)),
        tuple(message.radii_squared),
        message.kernel,
        message.round_id,
        message.ledger_id,
    )


def _spec_of(array: NDArray[Any]) -> pb.ArraySpec:
    from collegium.protocol.inputs import array_spec

    return _spec_to_proto(array_spec(array))


def _little(array: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()


def _array_from_proto(described: pb.ArraySpec, data: bytes) -> NDArray[Any]:
    spec = _spec_from_proto(described)
    _require(len(data) == spec.size_bytes, "an array of another size than it announces")
    flat = np.frombuffer(data, dtype=np.dtype(spec.dtype).newbyteorder("<"))
    return flat.astype(spec.dtype).reshape(spec.shape)


def _counts_from_proto(message: pb.Votes | pb.Neighbours, dtype: str) -> NDArray[np.int64]:
    size = message.queries * message.classes * np.dtype(dtype).itemsize
    _require(len(message.counts) == size, "counts of another size than they announce")
    counts = np.frombuffer(message.counts, dtype=dtype).astype(np.int64)
    return counts.reshape(message.queries, message.classes)
