"""The chain of a ledger, apart from where it is kept: how entries are hashed and signed, and what they add up to.

An entry's hash covers the hash before it, its number and its line; the signature covers the hash.
``Chain`` walks entries in order and refuses the first one that does not follow from those before it,
so whoever holds a chain holds only facts that were checked.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from collegium.errors import CollegiumError, ConfigurationError, LedgerCorrupt
from collegium.privacy.ledger.entry import Charge, Content, Release, Settings, decode
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
    """An entry as it is read; ``spent`` is ε after it, by the ledger's own settings."""

    seq: int
    time_utc: str
    content: Content
    hash: bytes
    spent: Epsilon


def sign(previous: Head | None, body: bytes, signer: Ed25519PrivateKey | None) -> Row:
    """The entry that follows ``previous`` and says ``body``."""
    seq = 0 if previous is None else previous.seq + 1
    digest = _digest(previous, seq, body)
    return Row(seq, body, digest, b"" if signer is None else signer.sign(_SIGNATURE_PURPOSE + digest))


class Chain:
    """What the entries so far add up to. ``absorb`` them in order; each is checked against all before it."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.labels: dict[str, int] = {}
        self.charges = 0
        self.queries_charged = 0
        self._settings: Settings | None = None
        self._unreleased: dict[int, int] = {}
        self._repeats: dict[tuple[bytes, float], tuple[RenyiCurve, int]] = {}

    @property
    def settings(self) -> Settings:
        if self._settings is None:
            raise LedgerCorrupt("the ledger is empty: its first entry is missing; restore it from a backup")
        return self._settings

    def unreleased(self, charge: int) -> int | None:
        """Queries of this charge whose label is not out yet; None where no such charge was made."""
        return self._unreleased.get(charge)

    def spent(self, curve: RenyiCurve | None = None, queries: int = 0) -> RenyiCurve:
        """Everything charged, and ``queries`` more at ``curve`` each.

        Equal charges are multiplied rather than added one by one, so that the sum does not depend on
        how queries were cut into batches.
        """
        repeats = dict(self._repeats)
        if curve is not None:
            _repeat(repeats, curve, queries)
        total = RenyiCurve.zero(self.settings.orders)
        for each, times in repeats.values():
            total = total + each * times
        return total

    def epsilon(self, curve: RenyiCurve | None = None, queries: int = 0) -> Epsilon:
        """ε of ``spent``: zero before the first charge, infinite where failure probabilities reach 1."""
        settings = self.settings
        if not self._repeats and not queries:
            return Epsilon(0.0, settings.delta, settings.orders[0], settings.conversion)
        failure = sum(each.delta * times for each, times in self._repeats.values())
        if failure + (0.0 if curve is None else curve.delta * queries) >= settings.delta:
            return Epsilon(math.inf, settings.delta, settings.orders[0], settings.conversion)
        return settings.epsilon(self.spent(curve, queries))

    def absorb(self, row: Row) -> Entry:
        """Take in the next entry; raises LedgerCorrupt, naming it, when it cannot be the next one."""
        try:
            content, time_utc = self._checked(row)
            match content:
                case Settings():
                    self._settings = content
                case Charge():
                    self._take_charge(row.seq, content)
                case Release():
                    self._take_release(content)
            spent = self.epsilon()
        except LedgerCorrupt as error:
            raise LedgerCorrupt(f"entry {row.seq}: {error}") from None
        except (CollegiumError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            raise LedgerCorrupt(f"entry {row.seq}: it cannot be read; restore the ledger from a backup") from None
        budget = content.epsilon_budget if isinstance(content, Charge) else None
        if budget is not None and spent.epsilon > budget * (1 + _AUDIT_SLACK):
            raise LedgerCorrupt(f"entry {row.seq}: ε reaches {spent.epsilon:.6g}, past the budget of {budget:.6g}")
        self.head = Head(row.seq, row.hash)
        return Entry(row.seq, time_utc, content, row.hash, spent)

    def _checked(self, row: Row) -> tuple[Content, str]:
        expected = 0 if self.head is None else self.head.seq + 1
        if row.seq != expected:
            raise LedgerCorrupt(f"entry {expected} is missing; restore the ledger from a backup")
        if _digest(self.head, row.seq, row.body) != row.hash:
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
        return content, time_utc

    def _take_charge(self, seq: int, charge: Charge) -> None:
        _repeat(self._repeats, charge.curve, charge.queries)
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


def _digest(previous: Head | None, seq: int, body: bytes) -> bytes:
    before = _BEFORE_THE_FIRST if previous is None else previous.hash
    return hashlib.sha256(_HASH_PURPOSE + before + seq.to_bytes(8, "big") + body).digest()
