"""Requests and replies with their ids, and their translation to and from protobuf.

Every decoder raises ProtocolViolation. Only this module, `codec` and the transports use the protobuf classes.
"""

from dataclasses import dataclass

from collegium.data.values import IDENTIFIER, require
from collegium.data.values import ArraySpec as ArraySpec
from collegium.data.values import PoolChunk as PoolChunk
from collegium.data.values import PoolState as PoolState
from collegium.data.values import check_party_name as check_party_name
from collegium.protocol.codec import Translated
from collegium.protocol.replies import Description as Description
from collegium.protocol.replies import Failure as Failure
from collegium.protocol.replies import Fitted as Fitted
from collegium.protocol.replies import LedgerHead as LedgerHead
from collegium.protocol.replies import Neighbours as Neighbours
from collegium.protocol.replies import Prepared as Prepared
from collegium.protocol.replies import ReplyBody as ReplyBody
from collegium.protocol.replies import SecureSumAnswer as SecureSumAnswer
from collegium.protocol.replies import Sums as Sums
from collegium.protocol.replies import Votes as Votes
from collegium.protocol.replies import check_votes as check_votes
from collegium.protocol.requests import CastNeighbours as CastNeighbours
from collegium.protocol.requests import CastVotes as CastVotes
from collegium.protocol.requests import CountNearest as CountNearest
from collegium.protocol.requests import Describe as Describe
from collegium.protocol.requests import Evaluate as Evaluate
from collegium.protocol.requests import Fit as Fit
from collegium.protocol.requests import HoldPool as HoldPool
from collegium.protocol.requests import PoolRange as PoolRange
from collegium.protocol.requests import RequestBody as RequestBody
from collegium.protocol.requests import SecureSumStep as SecureSumStep
from collegium.protocol.requests import ShowEvaluation as ShowEvaluation
from collegium.protocol.requests import ShowLedger as ShowLedger
from collegium.protocol.requests import SumClasses as SumClasses
from collegium.protocol.requests import SumRecords as SumRecords
from collegium.protocol.requests import Terms as Terms
from collegium.protocol.requests import VoteRequest as VoteRequest
from collegium.protocol.requests import lowest as lowest
from collegium.protocol.v1 import collegium_pb2 as pb


@dataclass(frozen=True)
class Request(Translated):
    """A request of the coordinator. A repeated ``request_id`` gets the same answer."""

    request_id: str
    run_id: str
    body: RequestBody
    message = pb.Request

    def __post_init__(self) -> None:
        require(IDENTIFIER.fullmatch(self.request_id) is not None, "a request has an id")
        require(IDENTIFIER.fullmatch(self.run_id) is not None, "a request belongs to a run")


@dataclass(frozen=True)
class Reply(Translated):
    """A party's reply to the request with the same id."""

    request_id: str
    body: ReplyBody
    message = pb.Reply

    def __post_init__(self) -> None:
        require(IDENTIFIER.fullmatch(self.request_id) is not None, "a reply names its request")
