"""The chain of a ledger, apart from where it is kept: how entries are hashed and signed, and what they add up to.

An entry's hash covers the hash before it, its number and the SHA-256 of its line; the signature covers the hash.
``Chain`` walks entries in order and refuses the first one that does not follow from those before it,
so whoever holds a chain holds only facts that were checked.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from collegium.errors import CollegiumError, ConfigurationError, LedgerCorrupt
from collegium.privacy.ledger.entry import Charge, Content, ProtectedUnit, Release, Settings, Terms, decode
from collegium.privacy.renyi import Epsilon, RenyiCurve

_HASH_PURPOSE = b"collegium ledger entry v1\0"
_SIGNATURE_PURPOSE = b"collegium ledger signature v1\0"
_BEFORE_THE_FIRST = bytes(32)
_AUDIT_SLACK = 1e-9
"""Relative; two machines may round the logarithms of one conversion differently."""


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
    """An entry as it is read; ``terms`` are those in force after it, ``spent`` is ε after it in their unit."""

    seq: int
    time_utc: str
    content: Content
    hash: bytes
    terms: Terms
    spent: Epsilon


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

    def __init__(self) -> None:
        self.head: Head | None = None
        self.labels: dict[str, int] = {}
        self.charges = 0
        self.queries_charged = 0
        self.terms = Terms()
        """Those in force; the default ones before the first."""
        self.time_utc: datetime | None = None
        """When the last entry was made."""
        self.charged_budgets: list[float | None] = []
        """The budget of each terms under which something was charged."""
        self._settings: Settings | None = None
        self._unreleased: dict[int, int] = {}
        self._repeats: dict[ProtectedUnit, dict[tuple[bytes, float], tuple[RenyiCurve, int]]] = {}
        self._stated: dict[ProtectedUnit, int] = {}
        self._terms_charged = False

    @property
    def settings(self) -> Settings:
        if self._settings is None:
            raise LedgerCorrupt("the ledger is empty: its first entry is missing; restore it from a backup")
        return self._settings

    def units(self) -> list[ProtectedUnit]:
        """Every unit that a charge is stated for, the budget's own first."""
        return list(dict.fromkeys([self.terms.protected, *self._repeats]))

    def unreleased(self, charge: int) -> int | None:
        """Queries of this charge whose label is not out yet; None where no such charge was made."""
        return self._unreleased.get(charge)

    def spent(self, curve: RenyiCurve | None = None, queries: int = 0, unit: ProtectedUnit | None = None) -> RenyiCurve:
        """Everything charged to ``unit`` (the budget's own by default), and ``queries`` more at ``curve`` each.

        Equal charges are multiplied rather than added one by one, so that the sum does not depend on
        how queries were cut into batches. Infinite where a charge says nothing of that unit.
        """
        unit = unit or self.terms.protected
        total = RenyiCurve.zero(self.settings.orders)
        if self._stated.get(unit, 0) < self.charges:
            return RenyiCurve(total.orders, np.full(len(total.orders), np.inf))
        repeats = dict(self._repeats.get(unit, {}))
        if curve is not None:
            _repeat(repeats, curve, queries)
        for each, times in repeats.values():
            total = total + each * times
        return total

    def epsilon(
        self,
        curve: RenyiCurve | None = None,
        queries: int = 0,
        *,
        unit: ProtectedUnit | None = None,
        filter_order: float | None = None,
    ) -> Epsilon:
        """ε of ``spent``: zero before the first charge, infinite where failure probabilities reach 1.

        At ``filter_order``, or that of the terms in force, where there is one.
        """
        settings, unit = self.settings, unit or self.terms.protected
        if not self.charges and not queries:
            return Epsilon(0.0, settings.delta, settings.orders[0], settings.conversion)
        failure = sum(each.delta * times for each, times in self._repeats.get(unit, {}).values())
        if failure + (0.0 if curve is None else curve.delta * queries) >= settings.delta:
            return Epsilon(math.inf, settings.delta, settings.orders[0], settings.conversion)
        return settings.epsilon(self.spent(curve, queries, unit), filter_order or self.terms.filter_order)

    def guarantee(self) -> float:
        """ε that the entries promise to the budget's unit.

        It is what was charged. Where charges depend on answers (there is a filter order), it is the largest budget
        under which anything was charged: the filter kept that one, and what was charged itself tells of the answers.
        """
        spent = self.epsilon().epsilon
        if self.terms.filter_order is None or not self.charges:
            return spent
        return max(spent, *(math.inf if budget is None else budget for budget in self.charged_budgets))

    def absorb(self, row: Row) -> Entry:
        """Take in the next entry; raises LedgerCorrupt, naming it, when it cannot be the next one."""
        try:
            content, time_utc = self._checked(row)
            match content:
                case Settings():
                    self._settings = content
                case Terms():
                    self._take_terms(content)
                case Charge():
                    self._take_charge(row.seq, content)
                case Release():
                    self._take_release(content)
            spent = self.epsilon()
        except LedgerCorrupt as error:
            raise LedgerCorrupt(f"entry {row.seq}: {error}") from None
        except (CollegiumError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            raise LedgerCorrupt(f"entry {row.seq}: it cannot be read; restore the ledger from a backup") from None
        budget = self.terms.epsilon_budget if isinstance(content, Charge) else None
        if budget is not None and spent.epsilon > budget * (1 + _AUDIT_SLACK):
            raise LedgerCorrupt(f"entry {row.seq}: ε reaches {spent.epsilon:.6g}, past the budget of {budget:.6g}")
        self.head = Head(row.seq, row.hash)
        return Entry(row.seq, time_utc, content, row.hash, self.terms, spent)

    def _checked(self, row: Row) -> tuple[Content, str]:
        expected = 0 if self.head is None else self.head.seq + 1
        if row.seq != expected:
            raise LedgerCorrupt(f"entry {expected} is missing; restore the ledger from a backup")
        if following(self.head, hashlib.sha256(row.body).digest()).hash != row.hash:
            raise LedgerCorrupt("its hash does not follow from the entries before it: it or they were changed")
        content, time_utc = decode(row.body, None if self.head is None else self.settings)
        public_key = content.public_key if isinstance(content, Settings) else self.settings.public_key
        if public_key:
            try:
                Ed25519PublicKey.from_public_bytes(public_key).verify(row.signature, _SIGNATURE_PURPOSE + row.hash)
            except InvalidSignature:
                raise LedgerCorrupt("its signature is not the ledger owner's") from None
        elif row.signature:
            raise LedgerCorrupt("it is signed, in a ledger that is not")
        made = datetime.fromisoformat(time_utc).astimezone(UTC)
        if self.time_utc is not None and made < self.time_utc:
            raise LedgerCorrupt("it is dated before the entry that it follows")
        self.time_utc = made
        return content, time_utc

    def _take_terms(self, terms: Terms) -> None:
        if self.charges and terms.seeded != self.terms.seeded:
            raise LedgerCorrupt("it mixes noise from a seed with noise from the system's randomness")
        if self.terms.filter_order is not None and terms.filter_order != self.terms.filter_order:
            raise LedgerCorrupt("it changes the order of the budget's filter")
        self.terms, self._terms_charged = terms, False

    def _take_charge(self, seq: int, charge: Charge) -> None:
        if self.terms.unit not in charge.curves:
            raise LedgerCorrupt(f"it does not say what it costs one {self.terms.unit}, the unit of the budget")
        for unit, curve in charge.curves.items():
            key = unit, self.terms.adjacency
            _repeat(self._repeats.setdefault(key, {}), curve, charge.queries)
            self._stated[key] = self._stated.get(key, 0) + 1
        if not self._terms_charged:
            self._terms_charged = True
            self.charged_budgets.append(self.terms.epsilon_budget)
        self._unreleased[seq] = charge.queries
        self.charges += 1
        self.queries_charged += charge.queries

    def _take_release(self, release: Release) -> None:
        left = self._unreleased.get(release.charge)
        if left is None:
            raise LedgerCorrupt(f"it releases labels under entry {release.charge}, which is no charge")
        if left < len(release.labels):
            raise LedgerCorrupt(f"it releases more labels than entry {release.charge} paid for")
        if not release.labels.keys().isdisjoint(self.labels):
            raise LedgerCorrupt("it releases a label for a query that already has one")
        self._unreleased[release.charge] = left - len(release.labels)
        self.labels.update(release.labels)


def _repeat(repeats: dict[tuple[bytes, float], tuple[RenyiCurve, int]], curve: RenyiCurve, queries: int) -> None:
    key = (curve.values.tobytes(), curve.delta)
    repeats[key] = (curve, repeats.get(key, (curve, 0))[1] + queries)
