"""The chain of a ledger, apart from where it is kept: how entries are hashed and signed, and what they add up to.

An entry's hash covers the hash before it, its number and the SHA-256 of its line; the signature covers the hash.
``Chain`` walks entries in order and refuses the first one that does not follow from those before it,
so whoever holds a chain holds only facts that were checked.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium import signatures
from collegium.errors import CollegiumError, ConfigurationError, LedgerCorrupt
from collegium.privacy.ledger.entry import Charge, Content, ProtectedUnit, Release, Settings, Terms, decode
from collegium.privacy.ledger.spending import Spending
from collegium.privacy.ledger.stated_laws import check_terms

_HASH_PURPOSE = b"collegium ledger entry v1\0"
_SIGNATURE_PURPOSE = b"collegium ledger signature v1\0"
_BEFORE_THE_FIRST = bytes(32)
_SLACK, _SLACK_OF_GAMES = 1e-9, 0.01
"""Relative: two machines may round a formula, and divide the positions of a game, differently. Either ε is true."""


@dataclass(frozen=True)
class Head:
    """The last entry of a ledger: enough to tell later whether a ledger still holds all it held then."""

    seq: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash.hex()}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """The head printed as ``SEQ:HASH``; raises ConfigurationError for anything else."""
        seq, _, digest = text.strip().partition(":")
        try:
            head = cls(int(seq), bytes.fromhex(digest))
        except ValueError:
            head = cls(-1, b"")
        if head.seq < 0 or len(head.hash) != 32:
            raise ConfigurationError(f"a ledger's head looks like 12:5f0c… (number, 64 hex digits); got {text!r}")
        return head


@dataclass(frozen=True)
class Row:
    """An entry as it is kept."""

    seq: int
    body: bytes
    hash: bytes
    signature: bytes


@dataclass(frozen=True)
class Entry:
    """An entry as it is read; ``terms`` are those in force after it, ``spent`` is ε then in their unit, if known."""

    seq: int
    time_utc: str
    content: Content
    hash: bytes
    terms: Terms
    spent: float = math.nan


def sign(previous: Head | None, body: bytes, signer: Ed25519PrivateKey | None) -> Row:
    """The entry that follows ``previous`` and says ``body``."""
    head = following(previous, hashlib.sha256(body).digest())
    return Row(head.seq, body, head.hash, b"" if signer is None else signer.sign(_SIGNATURE_PURPOSE + head.hash))


def following(previous: Head | None, body_sha256: bytes) -> Head:
    """The head after one more entry. The SHA-256 of its line is enough, so the entry itself may stay unseen."""
    seq, before = (0, _BEFORE_THE_FIRST) if previous is None else (previous.seq + 1, previous.hash)
    return Head(seq, hashlib.sha256(_HASH_PURPOSE + before + seq.to_bytes(8, "big") + body_sha256).digest())


class Chain:
    """What the entries so far add up to. ``absorb`` them in order; each is checked against all before it."""

    def __init__(self, signed: Sequence[str] = ()) -> None:
        self._signed = signed
        """Heads, from the first entry on, whose signatures the caller has checked."""
        self.first = b""
        """The hash of the first entry."""
        self.head: Head | None = None
        self.labels: dict[str, int] = {}
        self.periods: list[tuple[Terms, dict[str, int]]] = [(Terms(), {})]
        """Terms in order, and the queries that were charged under each by purpose; default ones before the first."""
        self.unreleased: dict[int, int] = {}
        """The labels that a charge still pays for, by charge; no charge that has paid for all of them."""
        self.untouched: dict[int, tuple[Terms, Charge]] = {}
        """Charges that name their queries and under which nothing was released, with their terms."""
        self.opening: dict[int, tuple[Terms, Charge, str]] = {}
        """Charges that were spent on a sum of this name, with their terms, until labels are released under them."""
        self.time_utc: datetime | None = None
        """When the last entry was made."""
        self.spending = Spending()
        self.stated: Settings | None = None

    @property
    def settings(self) -> Settings:
        if self.stated is None:
            raise LedgerCorrupt("the ledger is empty: its first entry is missing; restore it from a backup")
        return self.stated

    @property
    def length(self) -> int:
        """How many entries there are."""
        return 0 if self.head is None else self.head.seq + 1

    @property
    def terms(self) -> Terms:
        """Those in force."""
        return self.periods[-1][0]

    @property
    def queries_charged(self) -> int:
        return sum(sum(charged.values()) for _, charged in self.periods)

    def units(self) -> list[ProtectedUnit]:
        """Every unit that a cost is stated for, the budget's own first."""
        unit, adjacency = self.protected(self.terms)
        return [(name, adjacency) for name in dict.fromkeys([unit, *(other for other, _ in self.spending.units())])]

    def protected(self, terms: Terms) -> ProtectedUnit:
        """The unit of the budget: ``replace`` where every charge is about that, else ``add-remove``."""
        added = any(adjacency == "add-remove" for _, adjacency in self.spending.units())
        return terms.unit, "add-remove" if added else terms.adjacency

    def epsilon(
        self, unit: ProtectedUnit | None = None, terms: Terms | None = None, more: Mapping[str, int] | None = None
    ) -> float:
        """ε of everything charged to ``unit`` (the budget's own by default), and of ``more`` rounds under ``terms``.

        Zero before the first charge, infinite where a cost is not stated for the unit or is not finite.
        """
        return self.spending.epsilon(unit or self.protected(terms or self.terms), self.settings.delta, terms, more)

    def absorb(self, row: Row) -> Entry:
        """Take in the next entry; raises LedgerCorrupt, naming it, when it cannot be the next one."""
        with _naming(row.seq):
            content, time_utc = self._checked(row)
        if isinstance(content, Terms):
            self.settle()
        with _naming(row.seq):
            match content:
                case Settings():
                    self.stated, self.first = content, row.hash
                case Terms():
                    self._take_terms(content)
                case Charge():
                    self._take_charge(row.seq, content)
                case Release():
                    self._take_release(content)
        self.head = Head(row.seq, row.hash)
        return Entry(row.seq, time_utc, content, row.hash, self.terms)

    def settle(self) -> None:
        """LedgerCorrupt where the charges took ε past the budget of the terms in force; to be called after the last."""
        terms, charged = self.periods[-1]
        if self.head is None or terms.epsilon_budget is None or not any(terms.blocks[one].laws for one in charged):
            return  # a budget that was lowered since forbids nothing that costs nothing
        with _naming(self.head.seq):
            spent, slack = self.epsilon(), _SLACK_OF_GAMES if self.spending.games else _SLACK
            if spent > terms.epsilon_budget * (1 + slack):
                raise LedgerCorrupt(f"ε reaches {spent:.6g}, past the budget of {terms.epsilon_budget:.6g}")

    def _checked(self, row: Row) -> tuple[Content, str]:
        if row.seq != self.length:
            raise LedgerCorrupt(f"entry {self.length} is missing; restore the ledger from a backup")
        if following(self.head, hashlib.sha256(row.body).digest()).hash != row.hash:
            raise LedgerCorrupt("its hash does not follow from the entries before it: it or they were changed")
        content, time_utc = decode(row.body, None if self.head is None else self.settings)
        public_key = content.public_key if isinstance(content, Settings) else self.settings.public_key
        if public_key and (row.seq >= len(self._signed) or self._signed[row.seq] != str(Head(row.seq, row.hash))):
            try:
                signatures.verify(public_key, row.signature, _SIGNATURE_PURPOSE + row.hash)
            except InvalidSignature:
                raise LedgerCorrupt("its signature is not the ledger owner's") from None
        elif row.signature and not public_key:
            raise LedgerCorrupt("it is signed, in a ledger that is not")
        made = datetime.fromisoformat(time_utc).astimezone(UTC)
        if self.time_utc is not None and made < self.time_utc:
            raise LedgerCorrupt("it is dated before the entry that it follows")
        self.time_utc = made
        return content, time_utc

    def _take_terms(self, terms: Terms) -> None:
        if self.queries_charged and terms.seeded != self.terms.seeded:
            raise LedgerCorrupt("it mixes noise from a seed with noise from the system's randomness")
        check_terms(terms, all_known=False)
        self.periods.append((terms, {}))

    def _take_charge(self, seq: int, charge: Charge) -> None:
        terms, charged = self.periods[-1]
        self.spending.take(terms, charge.purpose, charge.queries)
        charged[charge.purpose] = charged.get(charge.purpose, 0) + charge.queries
        self.unreleased[seq] = charge.queries
        if charge.queries_sha256:
            self.untouched[seq] = terms, charge

    def _take_release(self, release: Release) -> None:
        left = self.unreleased.get(release.charge, 0) - len(release.labels)
        if left < 0:
            raise LedgerCorrupt(f"it releases labels that entry {release.charge} does not pay for")
        if not release.labels.keys().isdisjoint(self.labels.keys()):
            raise LedgerCorrupt("it releases a label for a query that already has one")
        if not release.labels and release.charge not in self.untouched:
            raise LedgerCorrupt(f"it opens again what entry {release.charge} paid for")
        paid = self.untouched.pop(release.charge, None)
        self.opening.pop(release.charge, None)
        if release.sum:
            if paid is None:
                raise LedgerCorrupt(f"it opens another sum for what entry {release.charge} paid for")
            self.opening[release.charge] = *paid, release.sum
        self.unreleased[release.charge] = left
        if not left:
            self.unreleased.pop(release.charge, None)
        self.labels.update(release.labels)


@contextmanager
def _naming(seq: int) -> Iterator[None]:
    """Turn what is wrong with an entry into LedgerCorrupt that names it."""
    try:
        yield
    except LedgerCorrupt as error:
        raise LedgerCorrupt(f"entry {seq}: {error}") from None
    except (CollegiumError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise LedgerCorrupt(f"entry {seq}: it cannot be read; restore the ledger from a backup") from None
