"""The phases of a secure sum and the contents of its messages: every length and index is checked here."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collegium.protocol.secure_sum import keys
from collegium.protocol.secure_sum.errors import MalformedMessage, WrongLength, WrongRing
from collegium.protocol.secure_sum.setup import RingArray, SumSetup
from collegium.protocol.secure_sum.shamir import SHARE_BYTES
from collegium.protocol.v1 import secure_sum_pb2 as pb
from collegium_accounting.units import IntArray

KEY_BYTES = 32
SIGNATURE_BYTES = 64
ADVERT_BYTES = 3 * KEY_BYTES + SIGNATURE_BYTES
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


def phase_of(message: pb.SecureSumRequest | pb.SecureSumReply) -> Phase:
    """The phase that a request asks for or a reply answers; raises MalformedMessage when it names none."""
    field = message.WhichOneof("phase")
    if field is None:
        raise MalformedMessage("a message of the secure sum names no phase")
    return Phase([each.name for each in message.DESCRIPTOR.oneofs_by_name["phase"].fields].index(field))


def pack_set(indices: IntArray, parties: int) -> bytes:
    """Bitmap of a set of parties."""
    flags = np.zeros(parties, dtype=np.bool_)
    flags[indices] = True
    return np.packbits(flags).tobytes()


def unpack_set(bitmap: bytes, parties: int, what: str) -> NDArray[np.bool_]:
    """Of each party whether it is in a set; raises MalformedMessage on a wrong length or a set padding bit."""
    if len(bitmap) != (parties + 7) // 8:
        raise MalformedMessage(f"the set of {what} has {len(bitmap)} bytes; {(parties + 7) // 8} are due")
    flags = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8)).view(np.bool_)
    if flags[parties:].any():
        raise MalformedMessage(f"the set of {what} names parties that are not on the roster")
    return flags[:parties]


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


class Advert(NamedTuple):
    """One party's fresh public keys, the nonce that draws its holders, and its signature."""

    channel_key: bytes
    mask_key: bytes
    graph_nonce: bytes
    signature: bytes

    def pack(self) -> bytes:
        """The fields one after the other."""
        return b"".join(self)

    @classmethod
    def of(cls, packed: bytes) -> "Advert":
        """What `pack` gave; nobody looks at the signature."""
        return cls(packed[:32], packed[32:64], packed[64:96], packed[96:])


def unpack_advert(packed: bytes, setup: SumSetup, party: int) -> Advert:
    """The advert of ``party``; raises MalformedMessage, or ForgedSignature unless the party signed it for this sum."""
    fixed(packed, ADVERT_BYTES, "an advert")
    advert = Advert.of(packed)
    name = setup.names[party]
    signed = keys.advert_message(setup.digest, party, *advert[:3])
    keys.verify(setup.roster[name], advert.signature, signed, name, "its advert")
    return advert


def unpack_vector(message: pb.InputMasked, setup: SumSetup) -> RingArray:
    """A masked vector; raises WrongRing or WrongLength."""
    if message.ring_bits != setup.ring_bits:
        raise WrongRing(f"a vector modulo 2^{message.ring_bits} came; this sum is modulo 2^{setup.ring_bits}")
    if len(message.vector) != setup.vector_bytes:
        raise WrongLength(f"a vector of {len(message.vector)} bytes came; {setup.vector_bytes} are due")
    return np.frombuffer(message.vector, dtype=setup.word)
