"""The durable account of what was charged and which labels were given out.

A charge is on the disk before ``charge`` returns, and a label is released only under a charge that is
already there: a crash may waste budget, never overspend it. A query has one label for good. The
entries form a signed chain (``ledger_chain``) in one SQLite file (``ledger_store``). Nothing secret is
kept: no votes, counts, gaps or private keys.
"""

from __future__ import annotations

import hashlib
import math
import operator
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.clock import utc_now
from collegium.errors import BudgetExceeded, ConfigurationError, LabelConflict, LedgerCorrupt, StorageError
from collegium.privacy.ledger.chain import Chain, Entry, Head, sign
from collegium.privacy.ledger.entry import (
    ABSTENTION,
    Charge,
    Content,
    Parameter,
    ProtectedUnit,
    Release,
    Settings,
    Terms,
    encode,
    queries_digest,
)
from collegium.privacy.ledger.store import EntryStore
from collegium.privacy.renyi import Conversion, Epsilon, RenyiCurve, check_orders


class Ledger:
    """A budget, what was charged to it, and the labels it paid for. Safe for threads and processes.

    Make one with ``Ledger.open`` (to write) or ``Ledger.read`` (to look).
    """

    def __init__(
        self,
        store: EntryStore,
        *,
        signer: Ed25519PrivateKey | None = None,
        terms: Terms | None = None,
        budget_setting: str = "",
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.path = store.path
        self._terms = terms
        self._budget_setting = budget_setting
        self._store = store
        self._signer = signer
        self._clock = clock
        self._lock = threading.RLock()
        self._chain = Chain()

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        signer: Ed25519PrivateKey | None,
        orders: Sequence[float],
        delta: float,
        terms: Terms,
        name: str,
        conversion: Conversion = Conversion.IMPROVED,
        budget_setting: str = "budget.epsilon in consortium.toml",
        clock: Callable[[], datetime] = utc_now,
        on_connect: Callable[[sqlite3.Connection], None] | None = None,
    ) -> Ledger:
        """Open the ledger at ``path``, or create it; every entry of an existing one is checked.

        Parameters
        ----------
        signer : the owner's identity; None gives an unsigned ledger (simulations).
        name, orders, delta, conversion : see ``Settings``; always those it was created with.
        terms : what is charged from now on. Where they differ from those in force they become an entry; what was
            charged before stays under its own terms and counts against the new budget by what it says of the new unit.
        budget_setting : where a user raises that budget, for the error that says so.
        clock, on_connect : the time that entries bear; a hook handed the connection before its first use.

        Raises
        ------
        ConfigurationError, when settings are invalid or not those of the existing ledger; LedgerCorrupt;
        StorageError, when the file cannot be read or written.
        """
        grid = check_orders(orders)
        if terms.filter_order is not None and terms.filter_order not in grid:
            raise ConfigurationError(f"the filter's order {terms.filter_order:g} is not among the ledger's orders")
        if not 0.0 < delta < 1.0:
            raise ConfigurationError(f"delta must lie in (0, 1); got {delta}")
        budget = terms.epsilon_budget
        if budget is not None and not (math.isfinite(budget) and budget >= 0.0):
            raise ConfigurationError(f"{budget_setting} must be a finite number of 0 or more; got {budget}")
        public_key = b"" if signer is None else signer.public_key().public_bytes_raw()
        settings = Settings(name, grid, float(delta), conversion, public_key)
        store = EntryStore.open(path, on_connect)
        ledger = cls(store, signer=signer, terms=terms, budget_setting=budget_setting, clock=clock)
        try:
            with store.writing():
                if store.begin():
                    ledger._append(settings)
                _check_same(path, ledger.settings, settings)
                ledger._agree()
        except BaseException:
            store.close()
            raise
        return ledger

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """Open an existing ledger to look at it; raises StorageError where there is none, LedgerCorrupt."""
        ledger = cls(EntryStore.read(path))
        try:
            _ = ledger.settings
        except BaseException:
            ledger.close()
            raise
        return ledger

    def _agree(self) -> None:
        """Put this owner's terms in force, inside ``_writing``; nothing is written where they are in force already.

        The order of the budget's filter stays once there is one. Where another mechanism follows what was charged,
        whoever chose it may have seen labels: from then on the budget is tested at one order.
        """
        chain, terms = self._chain, self._terms
        if terms is None:
            raise StorageError("this ledger was opened readonly: open it with its owner's key and terms to charge")
        order = chain.terms.filter_order or terms.filter_order
        if order is None and chain.charges and terms.mechanism != chain.terms.mechanism:
            order = _order_for(terms.epsilon_budget, chain.settings)
        terms = self._terms = replace(terms, filter_order=order)
        if terms == chain.terms:
            return
        if chain.charges and terms.seeded != chain.terms.seeded:
            raise ConfigurationError(
                "the labels of this ledger were drawn with a seed and would be drawn without one, or the reverse: "
                "keep the seed as it was, or start in another folder"
            )
        self._append(terms)

    def close(self) -> None:
        """Let go of the file. Everything was already durable."""
        with self._lock:
            self._store.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def settings(self) -> Settings:
        """What this ledger was created with."""
        with self._reading() as chain:
            return chain.settings

    def spent(self, unit: ProtectedUnit | None = None) -> RenyiCurve:
        """Everything charged so far, by whichever process, to the budget's own unit unless another is named."""
        with self._reading() as chain:
            return chain.spent(unit=unit)

    def epsilon(self, unit: ProtectedUnit | None = None) -> Epsilon:
        """ε of everything charged so far: the value that the budget limits. Zero while nothing was charged.

        In the budget's own ``unit`` unless another is named; infinite where a charge says nothing of that unit.
        """
        with self._reading() as chain:
            return chain.epsilon(unit=unit)

    def guarantee(self) -> float:
        """ε that the entries promise to the budget's unit; see ``Chain.guarantee``."""
        with self._reading() as chain:
            return chain.guarantee()

    def terms(self) -> Terms:
        """What charges are made under now."""
        with self._reading() as chain:
            return chain.terms

    def units(self) -> list[ProtectedUnit]:
        """Every unit that charges are stated for, the budget's own first."""
        with self._reading() as chain:
            return chain.units()

    def queries_charged(self) -> int:
        """Answers paid for so far, over all charges."""
        with self._reading() as chain:
            return chain.queries_charged

    def labels(self) -> dict[str, int]:
        """Every label released so far: query key to class, -1 for an abstention."""
        with self._reading() as chain:
            return dict(chain.labels)

    def head(self) -> Head:
        """The last entry; print it in reports, so that an auditor can tell a shortened ledger."""
        with self._reading() as chain:
            _ = chain.settings
            assert chain.head is not None  # there are settings, hence a first entry
            return chain.head

    def require(self, head: Head) -> None:
        """LedgerCorrupt unless the ledger still holds this entry: it was cut, or an older copy took its place."""
        with self._lock:
            rows = self._store.rows(head.seq)
        if not rows or (rows[0].seq, rows[0].hash) != (head.seq, head.hash):
            raise LedgerCorrupt(
                f"the ledger {self.path} lacks entry {head.seq}, which it had: it was cut, or an older copy was put in "
                "its place; restore the newest one, or start in another folder"
            )

    def digests_after(self, head: Head | None) -> list[bytes]:
        """SHA-256 of the line of every entry after ``head``, in order; LedgerCorrupt where ``head`` is not there.

        They prove that the ledger still holds ``head``, to somebody who kept it (`chain.following`).
        """
        if head is not None:
            self.require(head)
        with self._lock:
            rows = self._store.rows(0 if head is None else head.seq + 1)
        return [hashlib.sha256(row.body).digest() for row in rows]

    def affordable(self, curve: RenyiCurve, at_most: int) -> int:
        """How many queries at ``curve`` each still fit the budget, ``at_most`` or fewer."""
        with self._reading() as chain:
            return self._affordable(chain, curve, at_most)

    def charge(
        self,
        *,
        purpose: str,
        mechanism: Mapping[str, Parameter],
        curve: RenyiCurve,
        queries: Sequence[str] | int,
        others: Mapping[str, RenyiCurve] = {},
    ) -> int:
        """Pay for ``queries`` (their keys, or how many) at ``curve`` each; durable when this returns.

        ``curve`` is what one query costs the budget's unit, ``others`` what it costs further units, by their names.
        Returns the charge's number, under which its labels are released. All or nothing: raises
        BudgetExceeded, with nothing charged, when not all of them fit; ConfigurationError on bad input.
        """
        if isinstance(queries, int):
            count, digest = queries, ""
        else:
            count, digest = len(queries), queries_digest(queries)
            if isinstance(queries, str) or len(set(queries)) != count:
                raise ConfigurationError("a charge names its queries by a list of keys, each of them once")
        if count < 1:
            raise ConfigurationError("a charge needs at least one query")
        with self._writing() as chain:
            self._agree()
            fit = self._affordable(chain, curve, count)
            if fit < count:
                raise BudgetExceeded(
                    f"{chain.epsilon().epsilon:.4g} of {chain.terms.epsilon_budget} charged, and only {fit} of {count} "
                    f"more queries fit; raise {self._budget_setting} or stop"
                )
            return self._append(Charge(purpose, mechanism, {**others, chain.terms.unit: curve}, count, digest))

    def release(self, charge: int, labels: Mapping[str, int]) -> None:
        """Give out ``labels`` under an earlier charge; durable when this returns: show them only then.

        A query keeps the first label it got. The same one again changes nothing and costs nothing.

        Raises
        ------
        LabelConflict, when queries already have another label (another process was first). The rest
        of ``labels`` is released all the same, and the error's ``labels`` hold what counts for each query.
        ConfigurationError, when there is no such charge or it paid for fewer labels; then none is released.
        """
        asked = {query: operator.index(label) for query, label in labels.items()}
        if any(not isinstance(query, str) or label < ABSTENTION for query, label in asked.items()):
            raise ConfigurationError("a label is a class of 0 or more, or -1 for an abstention, under a query's key")
        with self._writing() as chain:
            left = chain.unreleased(charge)
            if left is None:
                raise ConfigurationError(f"entry {charge} of the ledger is no charge: charge first, then release")
            fresh = {query: label for query, label in asked.items() if query not in chain.labels}
            if len(fresh) > left:
                raise ConfigurationError(
                    f"{len(fresh)} labels to release, but only {left} are left of what entry {charge} paid for"
                )
            if fresh:
                self._append(Release(charge, fresh))
            held = {query: chain.labels[query] for query in asked}
        if held != asked:
            conflicts = sum(held[query] != label for query, label in asked.items())
            raise LabelConflict(f"{conflicts} queries already have another label, and keep it", held)

    def entries(self) -> Iterator[Entry]:
        """Every entry from the first; each is checked as it is read, so this may raise LedgerCorrupt."""
        with self._lock:
            rows = self._store.rows()
        chain = Chain()
        return (chain.absorb(row) for row in rows)

    def _affordable(self, chain: Chain, curve: RenyiCurve, at_most: int) -> int:
        if curve.orders != chain.settings.orders:
            raise ConfigurationError("the charge is on another grid of orders than the ledger")
        if at_most <= 0:
            return 0
        terms = self._terms or chain.terms
        if terms.epsilon_budget is None:
            return at_most
        fits, too_many = 0, at_most + 1
        while too_many - fits > 1:  # ε grows with the number of queries
            queries = (fits + too_many) // 2
            spent = chain.epsilon(curve, queries, unit=terms.protected, filter_order=terms.filter_order)
            if math.isfinite(spent.epsilon) and spent.epsilon <= terms.epsilon_budget:
                fits = queries
            else:
                too_many = queries
        return fits

    def _append(self, content: Content) -> int:
        """Sign and store the next entry, inside ``_writing``."""
        try:
            now = self._clock()
            now = max(now, self._chain.time_utc or now)  # a clock that was set back dates nothing back
            body = encode(content, now.astimezone(UTC).isoformat(timespec="microseconds"))
        except (TypeError, ValueError):
            raise ConfigurationError("a ledger entry holds only plain texts and finite numbers") from None
        row = sign(self._chain.head, body, self._signer)
        self._store.insert(row)
        self._chain.absorb(row)
        return row.seq

    @contextmanager
    def _reading(self) -> Iterator[Chain]:
        with self._lock:
            self._catch_up()
            yield self._chain

    @contextmanager
    def _writing(self) -> Iterator[Chain]:
        """The chain as it is now, with every other writer kept out until what is appended is durable."""
        with self._lock:
            caught_up: Head | None = None
            try:
                with self._store.writing():
                    self._catch_up()
                    caught_up = self._chain.head
                    yield self._chain
            except BaseException:
                if self._chain.head != caught_up:
                    self._chain = Chain()  # what was appended did not reach the disk: read again
                raise

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
        except LedgerCorrupt:
            self._chain = Chain()
            raise


def _order_for(epsilon_budget: float | None, settings: Settings) -> float | None:
    """The order at which costs that grow with the order, as those of Gaussian noise do, reach the budget last."""
    if epsilon_budget is None:
        return None
    whole = RenyiCurve(settings.orders, np.asarray(settings.orders))

    def fits(factor: float) -> bool:
        return settings.epsilon(_scaled(whole, factor)).epsilon < epsilon_budget

    low, high = 0.0, 1.0
    while fits(high):
        high *= 2.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if fits(middle) else (low, middle)
    return settings.epsilon(_scaled(whole, high)).order


def _scaled(curve: RenyiCurve, factor: float) -> RenyiCurve:
    return RenyiCurve(curve.orders, curve.values * factor)


def _check_same(path: Path, held: Settings, asked: Settings) -> None:
    if held.public_key != asked.public_key:
        raise ConfigurationError(
            f"the ledger {path} belongs to another identity; use its owner's key or another folder"
        )
    for what in ("name", "orders", "delta", "conversion"):
        old, new = getattr(held, what), getattr(asked, what)
        if old != new:
            texts = ("another grid", "this one") if what == "orders" else (old, new)
            raise ConfigurationError(
                f"the ledger {path} was begun with {what} = {texts[0]}, not {texts[1]}: "
                "keep that setting or start in another folder"
            )
