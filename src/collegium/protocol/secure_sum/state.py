"""What each side keeps of one secure sum between two requests, and the form in which its disk holds it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from collegium.protocol.secure_sum import keys, messages
from collegium.protocol.secure_sum.messages import Phase
from collegium.protocol.secure_sum.setup import RingArray, SumSetup
from collegium_accounting.units import IntArray


@dataclass(frozen=True)
class PartyState:
    """What a party keeps between two phases. It is secret, and leaves its process only as shares, or never.

    Parameters
    ----------
    due : the phase that is not answered yet; the last one is never answered for good.
    channel, mask, self_seed : its own secrets, until its vector is masked.
    adverts : packed, its own and those that it was shown, until its vector is masked.
    transcript, sharers, senders, survivors : what was agreed in the phases before; bitmaps.
    held : of each sender the shares of both secrets; once a list is signed, of the one that the list lets it open.
    answered : by phase, SHA-256 of the request and the reply; those before the signature until there is one.
    """

    due: Phase = Phase.ADVERTISE
    channel: bytes = field(default=b"", repr=False)
    mask: bytes = field(default=b"", repr=False)
    self_seed: bytes = field(default=b"", repr=False)
    adverts: Mapping[int, bytes] = field(default_factory=dict)
    transcript: bytes = b""
    sharers: bytes = b""
    senders: bytes = b""
    survivors: bytes = b""
    held: Mapping[int, bytes] = field(default_factory=dict, repr=False)
    answered: Mapping[int, tuple[bytes, bytes]] = field(default_factory=dict, repr=False)

    def to_bytes(self) -> bytes:
        """All of it, to be kept where nobody else reads it."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, kept: bytes) -> "PartyState":
        """What `to_bytes` gave."""
        return _decoder.decode(kept)


_decoder = msgspec.msgpack.Decoder(PartyState)


@dataclass(frozen=True, eq=False)
class Collected:
    """The masked vectors of a sum, added up, and what opens it together with the parties' shares.

    Parameters
    ----------
    total : the sum of the masked vectors, shape ``[length]``; it tells nothing without the shares.
    transcript : tells the keys that were shown to the parties.
    sharers, survivors : the parties that shared keys, and those whose vectors are in the sum; bitmaps.
    views, commitments, mask_keys : of each sharer, by its index, its signature under the list of sharers (survivors
        alone), its commitment to its self seed, and its public mask key.
    senders, holders : of each sharer, the parties whose shares it holds, and those that hold its own; see `packed`.
    """

    setup: SumSetup
    total: RingArray
    transcript: bytes
    sharers: bytes
    survivors: bytes
    views: Mapping[int, bytes]
    commitments: Mapping[int, bytes]
    mask_keys: Mapping[int, bytes]
    senders: Mapping[int, bytes]
    holders: Mapping[int, bytes]

    def about(self) -> dict[str, Any]:
        """All but ``total``, as JSON has it."""
        by_party = {name: {str(index): one.hex() for index, one in getattr(self, name).items()} for name in _BY_PARTY}
        return {**self.setup.about(), **{name: getattr(self, name).hex() for name in _TEXTS}, **by_party}

    @classmethod
    def of(cls, about: Mapping[str, Any], total: RingArray) -> "Collected":
        """What `about` told of."""
        fields: dict[str, Any] = {name: bytes.fromhex(about[name]) for name in _TEXTS}
        fields |= {name: {int(i): bytes.fromhex(one) for i, one in about[name].items()} for name in _BY_PARTY}
        return cls(SumSetup.of(about), total, **fields)

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the survivors, sorted."""
        return tuple(self.setup.names[index] for index in self.members(self.survivors))

    def members(self, bitmap: bytes) -> list[int]:
        """The indices of a set of parties, ascending."""
        indices: list[int] = np.flatnonzero(messages.unpack_set(bitmap, self.setup.plan.parties, "parties")).tolist()
        return indices

    @cached_property
    def signed(self) -> bytes:
        """What survivors sign."""
        return keys.survivors_message(self.transcript, self.sharers, self.survivors)


def packed(parties: Sequence[int] | IntArray) -> bytes:
    """The indices of some parties, four bytes each."""
    return np.asarray(parties, dtype="<u4").tobytes()


def unpacked(parties: bytes) -> list[int]:
    """What `packed` gave."""
    indices: list[int] = np.frombuffer(parties, dtype="<u4").tolist()
    return indices


_TEXTS = "transcript", "sharers", "survivors"
_BY_PARTY = "views", "commitments", "mask_keys", "senders", "holders"
