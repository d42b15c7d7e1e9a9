"""What a party keeps of one secure sum between two requests, and the bytes as which its disk holds it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from collegium.protocol.secure_sum.messages import Phase


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
