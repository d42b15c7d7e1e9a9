"""Requests and replies with their ids, and their translation to and from protobuf.

Every decoder raises ProtocolViolation. Only this module, `codec` and the transports use the protobuf classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from collegium.data.values import IDENTIFIER, ArraySpec, PoolChunk, PoolState, check_party_name, require
from collegium.errors import ProtocolViolation
from collegium.protocol.codec import from_message, parse, to_message
from collegium.protocol.replies import (
    Description,
    Failure,
    Fitted,
    LedgerHead,
    Neighbours,
    Prepared,
    ReplyBody,
    SecureSumAnswer,
    Sums,
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
    ShowLedger,
    SumClasses,
    SumRecords,
    Terms,
    VoteRequest,
    lowest,
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
    "LedgerHead",
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
    "ShowLedger",
    "SumClasses",
    "SumRecords",
    "Sums",
    "Terms",
    "VoteRequest",
    "Votes",
    "check_party_name",
    "check_votes",
    "lowest",
]

_REQUESTS: dict[str, type[RequestBody]] = {
    "describe": Describe,
    "hold_pool": HoldPool,
    "pool_chunk": PoolChunk,
    "fit": Fit,
    "cast_votes": CastVotes,
    "cast_neighbours": CastNeighbours,
    "count_nearest": CountNearest,
    "sum_classes": SumClasses,
    "secure_sum": SecureSumStep,
    "show_ledger": ShowLedger,
}
_REPLIES: dict[str, type[ReplyBody]] = {
    "description": Description,
    "pool_state": PoolState,
    "ledger_head": LedgerHead,
    "fitted": Fitted,
    "votes": Votes,
    "neighbours": Neighbours,
    "sums": Sums,
    "prepared": Prepared,
    "secure_sum": SecureSumAnswer,
    "error": Failure,
}
"""What a message's body may be, by the name of its field."""
_FIELD_OF = {kind: name for name, kind in (*_REQUESTS.items(), *_REPLIES.items())}


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
        field: dict[str, Any] = {_FIELD_OF[type(self.body)]: to_message(self.body)}
        return pb.Request(request_id=self.request_id, run_id=self.run_id, **field)

    def to_bytes(self) -> bytes:
        return self.to_proto().SerializeToString(deterministic=True)

    @classmethod
    def from_proto(cls, message: pb.Request) -> Request:
        name = message.WhichOneof("body")
        if name is None:
            raise ProtocolViolation("a request of an unknown kind: update Collegium on this side")
        return cls(message.request_id, message.run_id, from_message(_REQUESTS[name], getattr(message, name)))

    @classmethod
    def from_bytes(cls, data: bytes) -> Request:
        return cls.from_proto(parse(pb.Request, data))


@dataclass(frozen=True)
class Reply:
    """A party's reply to the request with the same id."""

    request_id: str
    body: ReplyBody

    def __post_init__(self) -> None:
        require(IDENTIFIER.fullmatch(self.request_id) is not None, "a reply names its request")

    def to_proto(self) -> pb.Reply:
        field: dict[str, Any] = {_FIELD_OF[type(self.body)]: to_message(self.body)}
        return pb.Reply(request_id=self.request_id, **field)

    def to_bytes(self) -> bytes:
        return self.to_proto().SerializeToString(deterministic=True)

    @classmethod
    def from_proto(cls, message: pb.Reply) -> Reply:
        name = message.WhichOneof("body")
        if name is None:
            raise ProtocolViolation("a reply of an unknown kind")
        return cls(message.request_id, from_message(_REPLIES[name], getattr(message, name)))

    @classmethod
    def from_bytes(cls, data: bytes) -> Reply:
        return cls.from_proto(parse(pb.Reply, data))
