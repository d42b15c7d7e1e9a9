"""What the entries of a ledger's file say so far; every look first checks and takes in what others appended."""

import hashlib
import json
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from collegium.errors import LedgerCorrupt
from collegium.limits import MAX_LEDGER_TERMS_BYTES
from collegium.privacy.ledger.chain import Chain, Entry, Head
from collegium.privacy.ledger.entry import (
    Block,
    Charge,
    ProtectedUnit,
    Settings,
    Terms,
    names_an_input,
    queries_digest,
)
from collegium.privacy.ledger.store import EntryStore
from collegium_accounting.game.laws import Law, VectorLaw

Laws = Mapping[str, Law]
"""What one round releases, by unit."""


class LedgerReader:
    """A budget, what was charged to it, and the labels it paid for, as they stand. Safe for threads and processes."""

    def __init__(self, store: EntryStore) -> None:
        self.path = store.path
        self._store = store
        self._lock = store.lock
        self._chain = Chain()

    @classmethod
    def read(cls, path: Path, signed: Sequence[str] = (), chain: str = "") -> Self:
        """Open an existing ledger to look at it; raises StorageError where there is none, LedgerCorrupt.

        ``signed`` are heads whose signatures were checked already, that of the first entry first. ``chain`` names one
        of several ledgers in a file; see `EntryStore`.
        """
        ledger = cls(EntryStore.read(path, chain))
        ledger._chain = Chain(signed)
        try:
            _ = ledger.settings
        except BaseException:
            ledger.close()
            raise
        return ledger

    def close(self) -> None:
        """Let go of the file. Everything was already durable."""
        with self._lock:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def settings(self) -> Settings:
        """What this ledger was created with."""
        with self._reading() as chain:
            return chain.settings

    def epsilon(self, unit: ProtectedUnit | None = None) -> float:
        """ε that the entries promise to the budget's own ``unit`` unless another is named; zero before any charge.

        It is that of the rounds that were charged; where answers decide how much is used of several blocks, it is
        that of the largest numbers of rounds that were stated. Infinite where a charge says nothing of that unit.
        """
        with self._reading() as chain:
            return chain.epsilon(unit)

    @property
    def adaptive(self) -> bool:
        """Whether answers decide how much is used of several blocks: ε is then that of what was stated for them."""
        with self._reading() as chain:
            return chain.spending.adaptive

    @property
    def values(self) -> int | None:
        """How many values ε could have had, had answers stopped the rounds elsewhere; see `Spending.values`."""
        with self._reading() as chain:
            return chain.spending.values

    def terms(self) -> Terms:
        """What charges are made under now."""
        with self._reading() as chain:
            return chain.terms

    def charged(self) -> list[tuple[Terms, dict[str, int]]]:
        """All terms under which something was charged, with the rounds by purpose."""
        with self._reading() as chain:
            return [(terms, dict(rounds)) for terms, rounds in chain.periods if rounds]

    def units(self) -> list[ProtectedUnit]:
        """Every unit that charges are stated for, the budget's own first."""
        with self._reading() as chain:
            return chain.units()

    def identity(self) -> bytes:
        """The first entry's hash: it holds the time, so that a ledger made afresh has another one."""
        with self._reading() as chain:
            return chain.first

    def untouched(self) -> dict[int, tuple[Terms, Charge]]:
        """Charges that name their queries and under which nothing was released, by number, with their terms."""
        with self._reading() as chain:
            return dict(chain.untouched)

    def unspent(self, names: Sequence[str], laws: Laws, purpose: str | None = None) -> int | None:
        """The charge for these names by ``laws`` under which nothing was released; None without.

        ``purpose`` : of the charge, where it matters.
        """
        charges = self.untouched().items()
        return next((seq for seq, paid in charges if _pays(*paid, queries_digest(names), laws, purpose)), None)

    def may_open(self, charge: int, sum_: str, names: Sequence[str], laws: Laws, purpose: str | None = None) -> bool:
        """Whether ``charge`` pays for the sum of this name: nothing was released under it, or it was spent on this sum.

        ``names``, ``laws`` and ``purpose`` as for `unspent`.
        """
        with self._reading() as chain:
            if charge in chain.opening:
                terms, paid, opened = chain.opening[charge]
                return opened == sum_ and _pays(terms, paid, queries_digest(names), laws, purpose)
            paid_for = chain.untouched.get(charge)
        return paid_for is not None and _pays(*paid_for, queries_digest(names), laws, purpose)

    def queries_charged(self) -> int:
        """Answers paid for so far, over all charges."""
        with self._reading() as chain:
            return chain.queries_charged

    def labels(self) -> dict[str, int]:
        """Every label released so far: query key to class, -1 for an abstention."""
        with self._reading() as chain:
            return {key: label for key, label in chain.labels.items() if names_an_input(key)}

    def head(self) -> Head:
        """The last entry; print it in reports, so that an auditor can tell a shortened ledger."""
        with self._reading() as chain:
            _ = chain.settings
            assert chain.head is not None  # there are settings, hence a first entry
            return chain.head

    def require(self, head: Head) -> None:
        """LedgerCorrupt unless the ledger still holds this entry: it was cut, or an older copy took its place."""
        with self._lock:
            rows = self._store.rows(head.seq, 1)
        if not rows or (rows[0].seq, rows[0].hash) != (head.seq, head.hash):
            raise LedgerCorrupt(
                f"the ledger {self.path} lacks entry {head.seq}, which it had: it was cut, or an older copy was put in "
                "its place; restore the newest one, or start in another folder"
            )

    def shown_after(self, head: Head | None, at_most: int) -> tuple[list[bytes], list[bytes]]:
        """SHA-256 of the lines of the entries after ``head``, in order, and the lines of those that state terms.

        They prove that the ledger still holds ``head``, to somebody who kept it (`chain.following`), and let them see
        what is charged. LedgerCorrupt where ``head`` is not there.
        """
        if head is not None:
            self.require(head)
        with self._lock:
            rows = self._store.rows(0 if head is None else head.seq + 1, at_most)
        digests, terms, left = list[bytes](), list[bytes](), MAX_LEDGER_TERMS_BYTES
        for row in rows:
            stated = [row.body] if json.loads(row.body)["kind"] == "terms" else []
            left -= sum(map(len, stated))
            if left < 0 and digests:
                break  # the rest is shown next
            digests.append(hashlib.sha256(row.body).digest())
            terms += stated
        return digests, terms

    def used(self, purpose: str, laws: Mapping[str, Laws] | None = None, fixed: Container[str] = ()) -> int:
        """Rounds of this block that were charged; 0 where the terms in force do not state it.

        With ``laws``, by purpose, those that were charged while the blocks of these laws were stated together, of which
        ``fixed`` are never raised.
        """
        with self._reading() as chain:
            terms = chain.terms
            if laws is not None:
                terms = replace(terms, blocks={p: Block(held, 0, p in fixed) for p, held in laws.items()})
            return chain.spending.used(terms, purpose) if purpose in terms.blocks else 0

    def left(self, purpose: str) -> float:
        """Rounds of this block that its number still allows; 0 where the terms in force do not state it."""
        with self._reading() as chain:
            block = chain.terms.blocks.get(purpose)
            if block is None:
                return 0
            return math.inf if block.rounds is None else block.rounds - chain.spending.used(chain.terms, purpose)

    def entries(self) -> Iterator[Entry]:
        """Every entry from the first; each is checked as it is read, so this may raise LedgerCorrupt."""
        with self._lock:
            rows = self._store.rows()
        chain = Chain()
        for row in rows:
            entry = chain.absorb(row)
            yield replace(entry, spent=chain.epsilon())
        chain.settle()

    @contextmanager
    def _reading(self) -> Iterator[Chain]:
        with self._lock:
            self._catch_up()
            yield self._chain

    def _catch_up(self) -> None:
        """Check and take in what other processes appended."""
        head = self._chain.head
        rows = self._store.rows(0 if head is None else head.seq)
        if head is not None:
            if not rows or (rows[0].seq, rows[0].hash) != (head.seq, head.hash):
                raise LedgerCorrupt(f"entry {head.seq}: it was changed or removed while the ledger was open")
            rows = rows[1:]
        try:
            for row in rows:
                self._chain.absorb(row)
            if rows:
                self._chain.settle()
        except LedgerCorrupt:
            self._chain = Chain()
            raise


def _pays(terms: Terms, paid: Charge, digest: str, laws: Laws, purpose: str | None) -> bool:
    """Whether a charge is for the queries of this digest, by these laws."""
    if paid.queries_sha256 != digest or purpose not in (None, paid.purpose):
        return False
    return _alike(terms.blocks[paid.purpose].laws, laws)


def _alike(paid: Laws, asked: Laws) -> bool:
    """Whether the laws are equal but for rounding: the last digits of noise change with the parties and the cells."""

    def same(one: Law, other: Law) -> bool:
        if not (isinstance(one, VectorLaw) and isinstance(other, VectorLaw)):
            return one == other
        return math.isclose(one.mu, other.mu, rel_tol=1e-9) and math.isclose(one.slack, other.slack, rel_tol=1e-9)

    return paid.keys() == asked.keys() and all(same(law, asked[unit]) for unit, law in paid.items())
