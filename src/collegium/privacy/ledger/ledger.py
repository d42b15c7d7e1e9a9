"""The durable account of what was charged and which labels were given out.

A charge is on the disk before ``charge`` returns, and a label is released only under a charge that is
already there: a crash may waste budget, never overspend it. A query has one label for good. The
entries form a signed chain (``ledger_chain``) in one SQLite file (``ledger_store``). Nothing secret is
kept: no votes, counts, gaps or private keys.
"""

from __future__ import annotations

import math
import operator
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.errors import BudgetExceeded, ConfigurationError, LabelConflict, LedgerCorrupt
from collegium.privacy.ledger.audit import VerifyReport, audit
from collegium.privacy.ledger.chain import Chain, Entry, Head, sign
from collegium.privacy.ledger.entry import (
    ABSTENTION,
    Charge,
    Content,
    Parameter,
    Release,
    Settings,
    encode,
    queries_digest,
)
from collegium.privacy.ledger.store import EntryStore
from collegium.privacy.renyi import Conversion, Epsilon, RenyiCurve, check_orders


def _now_utc() -> datetime:
    return datetime.now(UTC)


class Ledger:
    """A budget, what was charged to it, and the labels it paid for. Safe for threads and processes.

    Make one with ``Ledger.open`` (to write) or ``Ledger.read`` (to look).
    """

    def __init__(
        self,
        store: EntryStore,
        *,
        signer: Ed25519PrivateKey | None = None,
        epsilon_budget: float | None = None,
        budget_setting: str = "",
        clock: Callable[[], datetime] = _now_utc,
    ) -> None:
        self.epsilon_budget = epsilon_budget
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
        epsilon_budget: float | None,
        name: str,
        conversion: Conversion = Conversion.IMPROVED,
        filter_order: float | None = None,
        budget_setting: str = "budget.epsilon in consortium.toml",
        clock: Callable[[], datetime] = _now_utc,
        on_connect: Callable[[sqlite3.Connection], None] | None = None,
    ) -> Ledger:
        """Open the ledger at ``path``, or create it; every entry of an existing one is checked.

        Parameters
        ----------
        signer : the owner's identity; None gives an unsigned ledger (simulations).
        name, orders, delta, conversion, filter_order : see ``Settings``; always those it was created with.
        epsilon_budget : no charge may take ε past it; may differ from opening to opening. None: no limit.
        budget_setting : where a user raises that budget, for the error that says so.
        clock, on_connect : the time that entries bear; a hook handed the connection before its first use.

        Raises
        ------
        ConfigurationError, when settings are invalid or not those of the existing ledger; LedgerCorrupt;
        StorageError, when the file cannot be read or written.
        """
        grid = check_orders(orders)
        if filter_order is not None and filter_order not in grid:
            raise ConfigurationError(f"the filter's order {filter_order:g} is not among the ledger's orders")
        if not 0.0 < delta < 1.0:
            raise ConfigurationError(f"delta must lie in (0, 1); got {delta}")
        if epsilon_budget is not None and not (math.isfinite(epsilon_budget) and epsilon_budget >= 0.0):
            raise ConfigurationError(f"{budget_setting} must be a finite number of 0 or more; got {epsilon_budget}")
        public_key = b"" if signer is None else signer.public_key().public_bytes_raw()
        order = None if filter_order is None else float(filter_order)
        settings = Settings(name, grid, float(delta), conversion, order, public_key)
        store = EntryStore.open(path, on_connect)
        ledger = cls(store, signer=signer, epsilon_budget=epsilon_budget, budget_setting=budget_setting, clock=clock)
        try:
            with store.writing():
                if store.begin():
                    ledger._append(settings)
            _check_same(path, ledger.settings, settings)
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

    def spent(self) -> RenyiCurve:
        """Everything charged so far, by whichever process."""
        with self._reading() as chain:
            return chain.spent()

    def epsilon(self) -> Epsilon:
        """ε of everything charged so far: the value that the budget limits. Zero while nothing was charged."""
        with self._reading() as chain:
            return chain.epsilon()

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

    def affordable(self, curve: RenyiCurve, at_most: int) -> int:
        """How many queries at ``curve`` each still fit the budget, ``at_most`` or fewer."""
        with self._reading() as chain:
            return self._affordable(chain, curve, at_most)

    def charge(
        self, *, purpose: str, mechanism: Mapping[str, Parameter], curve: RenyiCurve, queries: Sequence[str] | int
    ) -> int:
        """Pay for ``queries`` (their keys, or how many) at ``curve`` each; durable when this returns.

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
            fit = self._affordable(chain, curve, count)
            if fit < count:
                raise BudgetExceeded(
                    f"{chain.epsilon().epsilon:.4g} of {self.epsilon_budget} charged, and only {fit} of {count} more "
                    f"queries fit; raise {self._budget_setting} or stop"
                )
            return self._append(Charge(purpose, mechanism, curve, count, digest, self.epsilon_budget))

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

    def verify(self, public_key: bytes | None = None, head: Head | None = None) -> VerifyReport:
        """Walk the whole chain afresh; raises LedgerCorrupt naming the first bad entry.

        ``public_key`` (32 bytes) is what the entries must be signed with: without it the chain is only
        shown to agree with itself. ``head`` was printed earlier: the ledger must still hold that entry.
        Entries cut off the end show against a later ``head`` alone.
        """
        with self._lock:
            rows = self._store.rows()
        return audit(rows, public_key, head)

    def _affordable(self, chain: Chain, curve: RenyiCurve, at_most: int) -> int:
        if curve.orders != chain.settings.orders:
            raise ConfigurationError("the charge is on another grid of orders than the ledger")
        if at_most <= 0:
            return 0
        if self.epsilon_budget is None:
            return at_most
        fits, too_many = 0, at_most + 1
        while too_many - fits > 1:  # ε grows with the number of queries
            queries = (fits + too_many) // 2
            epsilon = chain.epsilon(curve, queries).epsilon
            if math.isfinite(epsilon) and epsilon <= self.epsilon_budget:
                fits = queries
            else:
                too_many = queries
        return fits

    def _append(self, content: Content) -> int:
        """Sign and store the next entry, inside ``_writing``."""
        try:
            body = encode(content, self._clock().isoformat(timespec="microseconds"))
        except (TypeError, ValueError):
            raise ConfigurationError("a ledger entry holds plain texts and finite numbers alone") from None
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


def _check_same(path: Path, held: Settings, asked: Settings) -> None:
    if held.public_key != asked.public_key:
        raise ConfigurationError(
            f"the ledger {path} belongs to another identity; use its owner's key or another folder"
        )
    for what in ("name", "orders", "delta", "conversion", "filter_order"):
        old, new = getattr(held, what), getattr(asked, what)
        if old != new:
            texts = ("another grid", "this one") if what == "orders" else (old, new)
            raise ConfigurationError(
                f"the ledger {path} was begun with {what} = {texts[0]}, not {texts[1]}: "
                "keep that setting or start in another folder"
            )
