"""What a party keeps of one secure sum between two requests, and the bytes as which its disk holds it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
        answered = {phase: [one.hex() for one in told] for phase, told in self.answered.items()}
        known = {
            "due": int(self.due),
            "answered": answered,
            **{name: {key: value.hex() for key, value in getattr(self, name).items()} for name in _BY_PARTY},
            **{name: getattr(self, name).hex() for name in _TEXTS},
        }
        return json.dumps(known).encode()

    @classmethod
    def from_bytes(cls, kept: bytes) -> "PartyState":
        """What `to_bytes` gave."""
        known = json.loads(kept)
        fields: dict[str, Any] = {name: bytes.fromhex(known[name]) for name in _TEXTS}
        fields |= {name: {int(k): bytes.fromhex(v) for k, v in known[name].items()} for name in _BY_PARTY}
        answered = {int(k): (bytes.fromhex(v[0]), bytes.fromhex(v[1])) for k, v in known["answered"].items()}
        return cls(Phase(known["due"]), answered=answered, **fields)


_BY_PARTY = "adverts", "held"
_TEXTS = "channel", "mask", "self_seed", "transcript", "sharers", "senders", "survivors"
