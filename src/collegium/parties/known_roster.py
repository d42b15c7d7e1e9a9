"""With whom this party is summed: the names that its institution typed, each with the key that it had first.

The coordinator announces rosters, and the authority that certifies them is the operator's: neither the announcement nor
a certificate adds a name or changes a key. A person adds a name in party.toml, and accepts a key by `accept_key`.
"""

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from collegium.errors import CollegiumError, IdentityError, ProtocolViolation
from collegium.limits import MAX_ROSTER_BYTES
from collegium.logs import event
from collegium.protocol.certificates import Subject
from collegium.protocol.codec import parse_json
from collegium.protocol.roster import Roster, RosterEntry
from collegium.whole_files import exclusive

logger = logging.getLogger("collegium.party")


class KnownRoster(Mapping[str, bytes]):
    """Ed25519 public key of each party of the sums, by name; `announced` may change it between rounds.

    Parameters
    ----------
    path : the roster's file, which keeps the first key of every name, also of those that left.
    authority_pem : the authority that this party trusts.
    vouched : names of the parties that the institution agreed to be summed with, this party's own among them.
    minimum_parties : no roster with fewer admitted parties is taken over.
    """

    def __init__(self, path: Path, authority_pem: bytes, *, vouched: Collection[str], minimum_parties: int) -> None:
        self._path, self._authority_pem = path, authority_pem
        self.vouched, self._minimum = frozenset(vouched), minimum_parties
        self.unnamed: tuple[str, ...] = ()
        """Parties of the roster that was announced last whose name, or whose key, this institution does not know."""
        self._use(Roster.load(path))

    def __getitem__(self, name: str) -> bytes:
        return self._keys[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def announced(self, roster_json: str) -> None:
        """Take over what may be taken over of a roster that the coordinator announced, and log what may not."""
        try:
            self.take(roster_json)
        except CollegiumError as error:
            logger.error("of the roster that the coordinator announced: %s", error)

    def take(self, roster_json: str) -> None:
        """Take over, of an announced roster, the parties that the institution named, with the keys that they had first.

        Raises
        ------
        IdentityError
            If it names others, or other keys: these are left out, and no sum with them is taken part in. If it is of
            another consortium, smaller than ``minimum_parties``, or not certified: nothing is taken over then.
        ProtocolViolation, StorageError
            If it is no roster; if the file cannot be used.
        """
        if len(roster_json) > MAX_ROSTER_BYTES:
            raise ProtocolViolation(f"a roster has at most {MAX_ROSTER_BYTES} bytes")
        fresh = parse_json(Roster, roster_json, "a roster")
        with exclusive(_lock(self._path)):
            kept = Roster.load(self._path)  # a command may have accepted a key since
            if fresh.consortium != kept.consortium:
                raise IdentityError(f"it is the roster of {fresh.consortium!r}, not of {kept.consortium!r}")
            strangers = [name for name in fresh.admitted() if name not in self.vouched]
            named = fresh.only(self.vouched)
            changed = {
                name: first.model_copy(update={"admitted": first.admitted and entry.admitted})
                for name, entry in named.parties.items()
                if (first := kept.parties.get(name)) is not None and first.signing_key != entry.signing_key
            }
            swapped = [name for name in named.admitted() if name in changed]
            self.unnamed = (*strangers, *swapped)
            taken = named.model_copy(update={"parties": named.parties | changed})
            if taken.signing_keys() != self._keys and len(taken.admitted()) < self._minimum:
                raise IdentityError(
                    f"it admits {len(taken.admitted())} of the parties that this institution named, fewer than "
                    f"minimum_parties = {self._minimum}"
                )
            named.only(named.parties.keys() - changed.keys()).require_certified(self._authority_pem)
            taken = taken.remembering(kept)
            if taken != kept:
                taken.save(self._path)
        self._use(taken)
        if strangers:
            raise IdentityError(
                f"it admits {', '.join(strangers)}, not named under parties in this institution's own file: no sum "
                "with them; name them there once you have asked whose they are, and serve again"
            )
        if swapped:
            raise IdentityError(
                f"it has another key for {', '.join(swapped)}: no sum with that key; let that institution read to you "
                "the signing key that its collegium party show prints, then: collegium party accept-key"
            )

    def _use(self, kept: Roster) -> None:
        """Sum with the parties of ``kept`` that the institution names, from now on."""
        roster = kept.only(self.vouched)
        keys, before = roster.signing_keys(), getattr(self, "_keys", {})
        self.roster, self._keys = roster, keys
        if not before or keys == before:
            return
        for name in sorted(keys.keys() | before.keys()):
            if keys.get(name) != before.get(name):
                what = "left" if name not in keys else "has another key" if name in before else "joined"
                told = event("roster-changed", party=name, what=what, parties=len(keys))
                logger.info("%s %s; summed with %d parties now", name, what, len(keys), extra=told)
        logger.info("%s", self)

    def __str__(self) -> str:
        return f"summed are {', '.join(self)}: the roster's digest {self.roster.digest} is the same at each of them"


def begin(path: Path, consortium: str, own: Subject) -> None:
    """Have this party itself, with the key of its own folder, in the file ``path``; what else is there stays.

    Raises StorageError if the file cannot be used, and IdentityError if it is another consortium's.
    """
    with exclusive(_lock(path)):
        kept = Roster.load(path) if path.exists() else Roster(consortium=consortium, parties={})
        if kept.consortium != consortium:
            raise IdentityError(f"{path} is the roster of {kept.consortium!r}, not of {consortium!r}")
        entry = RosterEntry(signing_key=own.signing_key.hex())
        kept.model_copy(update={"parties": {**kept.parties, own.name: entry}}).save(path)


def accept_key(path: Path, name: str, key: str) -> str | None:
    """Know ``name`` by this key, 64 hexadecimal digits, from now on; returns the key before, None for none.

    Raises IdentityError if it is no key; StorageError or IdentityError if the file cannot be used.
    """
    if re.fullmatch("[0-9a-f]{64}", key) is None:
        raise IdentityError("a signing key has 64 hexadecimal digits, as collegium party show prints it there")
    with exclusive(_lock(path)):
        kept = Roster.load(path)
        before = kept.parties.get(name)
        # Whether it is admitted is announced; a certificate for this key will be, too.
        entry = RosterEntry(signing_key=key, admitted=before is not None and before.admitted)
        if before is None or before.signing_key != key:
            kept.model_copy(update={"parties": {**kept.parties, name: entry}}).save(path)
    return None if before is None else before.signing_key


def _lock(path: Path) -> Path:
    return path.with_name(f".{path.stem}.lock")
