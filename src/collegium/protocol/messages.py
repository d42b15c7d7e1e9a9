"""Requests and replies with their ids, and their translation to and from protobuf.

Every decoder raises ProtocolViolation. Only this module, `codec` and the transports use the protobuf classes.
"""

import hashlib
from dataclasses import dataclass

from collegium.data.values import IDENTIFIER, require
from collegium.protocol.codec import Translated
from collegium.protocol.replies import ReplyBody
from collegium.protocol.requests import RequestBody
from collegium.protocol.v1 import collegium_pb2 as pb


@dataclass(frozen=True)
class Request(Translated):
    """A request of the coordinator."""

    request_id: str
    run_id: str
    body: RequestBody
    message = pb.Request

    def __post_init__(self) -> None:
        require(IDENTIFIER.fullmatch(self.request_id) is not None, "a request has an id")
        require(IDENTIFIER.fullmatch(self.run_id) is not None, "a request belongs to a run")

    def fingerprint(self) -> bytes:
        """The same 32 bytes for requests that ask the same within the same run, whatever their ids."""
        message = self.to_proto()
        message.request_id = ""
        return hashlib.sha256(message.SerializeToString(deterministic=True)).digest()


@dataclass(frozen=True)
class Reply(Translated):
    """A party's reply to the request with the same id."""

    request_id: str
    body: ReplyBody
    message = pb.Reply

    def __post_init__(self) -> None:
        require(IDENTIFIER.fullmatch(self.request_id) is not None, "a reply names its request")
