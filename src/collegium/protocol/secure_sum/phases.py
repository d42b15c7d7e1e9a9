"""The five phases, in order, and which field of a message belongs to which."""

from __future__ import annotations

from enum import IntEnum

from collegium.protocol.secure_sum.errors import MalformedMessage
from collegium.protocol.v1 import secure_sum_pb2 as pb


class Phase(IntEnum):
    """What is asked for next."""

    ADVERTISE = 0
    """Fresh keys, signed."""

    SHARE = 1
    """Shares of both secrets, sealed for the holders."""

    MASK = 2
    """The masked vector."""

    SIGN = 3
    """A signature under the survivors' list."""

    UNMASK = 4
    """Shares of survivors' self seeds and drop-outs' mask keys."""

    DONE = 5
    """Nothing."""


_REQUESTS = {
    "advertise_keys": Phase.ADVERTISE,
    "share_keys": Phase.SHARE,
    "mask_input": Phase.MASK,
    "sign_survivors": Phase.SIGN,
    "unmask": Phase.UNMASK,
}
_REPLIES = {
    "keys_advertised": Phase.ADVERTISE,
    "keys_shared": Phase.SHARE,
    "input_masked": Phase.MASK,
    "survivors_signed": Phase.SIGN,
    "unmasked": Phase.UNMASK,
}


def phase_of_request(request: pb.SecureSumRequest) -> Phase:
    """The phase that a request asks for; raises MalformedMessage when it asks for none."""
    field = request.WhichOneof("phase")
    if field is None:
        raise MalformedMessage("a secure-sum request names no phase")
    return _REQUESTS[field]


def phase_of_reply(reply: pb.SecureSumReply) -> Phase:
    """The phase that a reply answers; raises MalformedMessage when it answers none."""
    field = reply.WhichOneof("phase")
    if field is None:
        raise MalformedMessage("a secure-sum reply names no phase")
    return _REPLIES[field]
