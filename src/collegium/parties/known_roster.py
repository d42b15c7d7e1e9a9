"""The roster as this party knows it: the file that enrolment left, and what the coordinator announces later.

The coordinator's word is not enough for a change, and neither is a certificate, since the authority is the operator's.
Who may be summed with this party is the institution's own list of names, and a name keeps the key it was seen with.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from collegium.errors import CollegiumError, IdentityError, ProtocolViolation
from collegium.limits import MAX_ROSTER_BYTES
from collegium.logs import event
from collegium.protocol.codec import parse_json
from collegium.protocol.roster import Roster

logger = logging.getLogger("collegium.party")


class KnownRoster(Mapping[str, bytes]):
    """Ed25519 public key of each admitted party, by name; `announced` may change it between rounds.

    Parameters
    ----------
    path : the roster's file; a roster that is taken over replaces it.
    authority_pem : the authority that this party trusts.
    vouched : names of the parties that the institution agreed to be summed with; nobody else is taken over.
    minimum_parties : no roster with fewer admitted parties is taken over.
    """

    def __init__(self, path: Path, authority_pem: bytes, *, vouched: Collection[str], minimum_parties: int) -> None:
        self._path, self._authority_pem = path, authority_pem
        self.vouched, self._minimum = frozenset(vouched), minimum_parties
        self.roster = Roster.load(path)
        self._keys = self.roster.signing_keys()
        self.unnamed: tuple[str, ...] = ()
        """Parties of the roster that was announced last, and refused for them."""

    def __getitem__(self, name: str) -> bytes:
        return self._keys[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def announced(self, roster_json: str) -> None:
        """Take over a roster that the coordinator announced, or keep the one from before and log why."""
        try:
            self._take(roster_json)
        except CollegiumError as error:
            logger.error("the roster that the coordinator announced is refused, the one before stays: %s", error)

    def _take(self, roster_json: str) -> None:
        if len(roster_json) > MAX_ROSTER_BYTES:
            raise ProtocolViolation(f"a roster has at most {MAX_ROSTER_BYTES} bytes")
        fresh = parse_json(Roster, roster_json, "a roster")
        self.unnamed = ()
        if fresh == self.roster:
            return
        if fresh.consortium != self.roster.consortium:
            raise IdentityError(f"it is the roster of {fresh.consortium!r}, not of {self.roster.consortium!r}")
        keys = fresh.signing_keys()
        strangers = sorted(keys.keys() - self._keys.keys() - self.vouched)
        if strangers:
            self.unnamed = tuple(strangers)
            raise IdentityError(
                f"it admits {', '.join(strangers)}, not named under parties in this institution's own file: name it "
                "there once you have asked whose it is"
            )
        for name in sorted(keys.keys() & self.roster.parties.keys()):
            if self.roster.parties[name].signing_key != keys[name].hex():
                raise IdentityError(f"it has another key for {name}: ask that party, then enrol again to take it over")
        if keys != self._keys and len(keys) < self._minimum:
            raise IdentityError(f"it admits {len(keys)} parties, fewer than minimum_parties = {self._minimum}")
        fresh.require_certified(self._authority_pem)
        fresh = fresh.remembering(self.roster)
        fresh.save(self._path)
        for name in sorted(keys.keys() | self._keys.keys()):
            if keys.get(name) != self._keys.get(name):
                what = "left" if name not in keys else "joined"
                told = event("roster-changed", party=name, what=what, parties=len(keys))
                logger.info("%s %s the consortium; %d parties now", name, what, len(keys), extra=told)
        logger.info("the roster's digest is now %s: it is the same at every party", fresh.digest)
        self.roster, self._keys = fresh, keys
