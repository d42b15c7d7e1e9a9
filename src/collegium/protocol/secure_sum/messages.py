"""The phases of a secure sum and the contents of its messages: every length and index is checked here."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from collegium.privacy.units import IntArray
from collegium.protocol.secure_sum.errors import MalformedMessage, WrongLength, WrongRing
from collegium.protocol.secure_sum.setup import RingArray, SumSetup
from collegium.protocol.secure_sum.shamir import SHARE_BYTES
from collegium.protocol.v1 import secure_sum_pb2 as pb

KEY_BYTES = 32
SIGNATURE_BYTES = 64
SEALED_BYTES = 2 * SHARE_BYTES + 16


class Phase(IntEnum):
    """The phases of a round: the answer that the coordinator asks for next."""

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


def pack_set(indices: IntArray, parties: int) -> bytes:
    """Bitmap of a set of parties."""
    flags = np.zeros(parties, dtype=np.bool_)
    flags[indices] = True
    return np.packbits(flags).tobytes()


def unpack_set(bitmap: bytes, parties: int, what: str) -> IntArray:
    """Ascending indices of a set of parties; raises MalformedMessage on a wrong length or a set padding bit."""
    if len(bitmap) != (parties + 7) // 8:
        raise MalformedMessage(f"the set of {what} has {len(bitmap)} bytes; {(parties + 7) // 8} are due")
    flags = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8))
    if flags[parties:].any():
        raise MalformedMessage(f"the set of {what} names parties that are not on the roster")
    return np.flatnonzero(flags).astype(np.int64)


def unpack_column(column: bytes, entries: int, entry_bytes: int, what: str) -> list[bytes]:
    """One entry per party of a set; raises MalformedMessage unless the length fits."""
    if len(column) != entries * entry_bytes:
        raise MalformedMessage(f"{what}: {len(column)} bytes instead of {entries} times {entry_bytes}")
    return [column[start : start + entry_bytes] for start in range(0, len(column), entry_bytes)]


def fixed(value: bytes, size: int, what: str) -> bytes:
    """``value`` if it has ``size`` bytes; raises MalformedMessage otherwise."""
    if len(value) != size:
        raise MalformedMessage(f"{what} has {len(value)} bytes instead of {size}")
    return value


@dataclass(frozen=True)
class Advert:
    """One party's fresh public keys, its commitment to a graph nonce, and its signature."""

    channel_key: bytes
    mask_key: bytes
    nonce_commitment: bytes
    signature: bytes


@dataclass(frozen=True)
class Adverts:
    """The list of adverts as every party is shown it."""

    participants: IntArray
    of: dict[int, Advert]
    bitmap: bytes
    columns: tuple[bytes, bytes, bytes, bytes]


def unpack_advert(message: pb.KeysAdvertised) -> Advert:
    """A party's advert; raises MalformedMessage."""
    return Advert(
        fixed(message.channel_key, KEY_BYTES, "channel_key"),
        fixed(message.mask_key, KEY_BYTES, "mask_key"),
        fixed(message.nonce_commitment, KEY_BYTES, "nonce_commitment"),
        fixed(message.signature, SIGNATURE_BYTES, "signature"),
    )


def pack_adverts(adverts: dict[int, Advert], parties: int) -> pb.ShareKeys:
    """All adverts in columns."""
    order = sorted(adverts)
    return pb.ShareKeys(
        participants=pack_set(np.array(order, dtype=np.int64), parties),
        channel_keys=b"".join(adverts[i].channel_key for i in order),
        mask_keys=b"".join(adverts[i].mask_key for i in order),
        nonce_commitments=b"".join(adverts[i].nonce_commitment for i in order),
        signatures=b"".join(adverts[i].signature for i in order),
    )


def unpack_adverts(message: pb.ShareKeys, parties: int) -> Adverts:
    """The list of adverts; raises MalformedMessage."""
    participants = unpack_set(message.participants, parties, "participants")
    columns = (message.channel_keys, message.mask_keys, message.nonce_commitments, message.signatures)
    channel = unpack_column(columns[0], participants.size, KEY_BYTES, "channel_keys")
    masks = unpack_column(columns[1], participants.size, KEY_BYTES, "mask_keys")
    commitments = unpack_column(columns[2], participants.size, KEY_BYTES, "nonce_commitments")
    signatures = unpack_column(columns[3], participants.size, SIGNATURE_BYTES, "signatures")
    entries = zip(participants.tolist(), channel, masks, commitments, signatures, strict=True)
    return Adverts(participants, {i: Advert(*rest) for i, *rest in entries}, message.participants, columns)


def unpack_vector(message: pb.InputMasked, setup: SumSetup) -> RingArray:
    """A masked vector; raises WrongRing or WrongLength."""
    if message.ring_bits != setup.ring_bits:
        raise WrongRing(f"a vector modulo 2^{message.ring_bits} came; this sum is modulo 2^{setup.ring_bits}")
    if len(message.vector) != setup.vector_bytes:
        raise WrongLength(f"a vector of {len(message.vector)} bytes came; {setup.vector_bytes} are due")
    return np.frombuffer(message.vector, dtype=setup.word)
