"""The roster as this party knows it: the file that enrolment left, and what the coordinator announces later.

The coordinator's word is not enough for a change: this party's own authority must have certified every entry, and
the institution's own settings may forbid changes or small rosters.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from collegium.errors import CollegiumError, IdentityError, ProtocolViolation
from collegium.limits import MAX_ROSTER_BYTES
from collegium.logs import event
from collegium.protocol.roster import Roster

logger = logging.getLogger("collegium.party")


class KnownRoster(Mapping[str, bytes]):
    """Ed25519 public key of each admitted party, by name; `announced` may change it between rounds.

    Parameters
    ----------
    path : the roster's file; a roster that is taken over replaces it.
    authority_pem : the authority that this party trusts.
    updates : whether announced rosters are taken over at all.
    minimum_parties : no roster with fewer admitted parties is taken over.
    """

    def __init__(self, path: Path, authority_pem: bytes, *, updates: bool, minimum_parties: int) -> None:
        self._path, self._authority_pem = path, authority_pem
        self._updates, self._minimum = updates, minimum_parties
        self.roster = Roster.load(path)
        self._keys = self.roster.signing_keys()

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
        try:
            fresh = Roster.model_validate_json(roster_json)
        except ValidationError as error:
            raise ProtocolViolation("it is no roster of this protocol") from error
        if fresh == self.roster:
            return
        if fresh.consortium != self.roster.consortium:
            raise IdentityError(f"it is the roster of {fresh.consortium!r}, not of {self.roster.consortium!r}")
        keys = fresh.signing_keys()
        if keys != self._keys:
            if not self._updates:
                raise IdentityError("roster_updates = false: enrol again to take over who joined or left")
            if len(keys) < self._minimum:
                raise IdentityError(f"it admits {len(keys)} parties, fewer than minimum_parties = {self._minimum}")
        fresh.require_certified(self._authority_pem)
        fresh.save(self._path)
        for name in sorted(keys.keys() | self._keys.keys()):
            if keys.get(name) != self._keys.get(name):
                what = "left" if name not in keys else "joined" if name not in self._keys else "rejoined"
                told = event("roster-changed", party=name, what=what, parties=len(keys))
                logger.info("%s %s the consortium; %d parties now", name, what, len(keys), extra=told)
        self.roster, self._keys = fresh, keys
