"""From vote histograms to labels under a budget: look up, charge, draw, release, in that order.

Every stage of a mechanism is charged for its queries before its noise is drawn, and what it decided is
on the disk before anyone sees it. A charge whose outcome was lost in a crash is taken up again rather
than paid twice: nothing had been released under it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from collegium.errors import BudgetExceeded, LabelConflict
from collegium.limits import MAX_POOL_INPUTS
from collegium.privacy.ledger.chain import Entry
from collegium.privacy.ledger.entry import Charge, Release, queries_digest
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.mechanisms import (
    NEXT_STAGE,
    IntArray,
    Mechanism,
    Noise,
    SeededNoise,
    Stage,
    SystemNoise,
    Unit,
)
from collegium.privacy.renyi import RenyiCurve

Bound = Literal["argmax", "classic"]

_PASSED = 0
"""What the ledger holds, under a stage's own key, for a query that went on to the next stage."""


class NoiseStrategy(Protocol):
    """Runs a stage with noise."""

    @property
    def private(self) -> bool: ...

    def run(
        self, stage: Stage, counts: IntArray, queries: Sequence[str], predictions: IntArray | None = None
    ) -> IntArray:
        """Outcome per query, shape ``[queries]``, for ``counts`` of shape ``[queries, classes]``."""
        ...


@dataclass(frozen=True)
class SystemNoiseStrategy:
    """Fresh noise from the operating system's randomness."""

    noise: Noise = field(default_factory=SystemNoise)

    @property
    def private(self) -> bool:
        return self.noise.private

    def run(
        self, stage: Stage, counts: IntArray, queries: Sequence[str], predictions: IntArray | None = None
    ) -> IntArray:
        return stage.run(counts, self.noise, predictions)


@dataclass(frozen=True)
class SeededNoiseStrategy:
    """Noise that follows from a seed, the query and the stage: the same however a run is cut up or resumed."""

    seed: int
    continuous: bool = False

    @property
    def private(self) -> bool:
        return False

    def run(
        self, stage: Stage, counts: IntArray, queries: Sequence[str], predictions: IntArray | None = None
    ) -> IntArray:
        outcomes = np.empty(len(queries), dtype=np.int64)
        for row, query in enumerate(queries):
            name = hashlib.sha256(f"{self.seed}|{stage.name}|{query}".encode()).digest()
            noise = SeededNoise(int.from_bytes(name[:16], "big"), continuous=self.continuous)
            own = None if predictions is None else predictions[row : row + 1]
            outcomes[row] = stage.run(counts[row : row + 1], noise, own)[0]
        return outcomes


class Labeller:
    """Labels for queries by one mechanism under one ledger.

    Parameters
    ----------
    unit : what one neighbour may change; the ledger's budget is counted in it.
    draw : where the noise comes from.
    others : further units that the ledger states the cost for, by their names.
    bound : ``argmax`` charges the least that is proven, ``classic`` what published accountants charge.
    take_up : serve queries from a charge that a crash left open. Only where the noise is drawn here: a sum
        that parties noised is an answer in its own right, and asking again is paid again.
    """

    def __init__(
        self,
        ledger: Ledger,
        mechanism: Mechanism,
        unit: Unit,
        draw: NoiseStrategy,
        *,
        others: Mapping[str, Unit] = {},
        bound: Bound = "argmax",
        take_up: bool = True,
    ) -> None:
        self._ledger = ledger
        self._stages = mechanism.stages
        self._draw = draw
        self._curves = [charge_of(stage, bound, ledger.settings.orders, unit) for stage in self._stages]
        self._others = [
            {name: charge_of(stage, bound, ledger.settings.orders, other) for name, other in others.items()}
            for stage in self._stages
        ]
        self._worst = sum(self._curves[1:], self._curves[0])
        self._for_the_run: tuple[RenyiCurve, int] | None = None
        if mechanism.charged_once:
            # Paid once, for as many queries as one unit pays for; then every query is free.
            self._for_the_run = self._worst, mechanism.charged_queries(MAX_POOL_INPUTS)
            self._worst = RenyiCurve.zero(ledger.settings.orders)
            self._curves = [self._worst for _ in self._stages]
            self._others = [{} for _ in self._stages]
        self._terms: dict[str, float | int | str] = {
            "name": mechanism.name,
            "votes_per_unit": unit.votes,
            "adjacency": unit.adjacency.value,
            "bound": bound,
            **mechanism.parameters(),
        }
        self._take_up = take_up
        self._open = open_charges(ledger.entries()) if take_up else {}

    def labels(self, queries: Iterable[str]) -> dict[str, int]:
        """The labels given out already among ``queries``: class, or ABSTAIN."""
        held = self._ledger.labels()
        return {query: held[query] for query in queries if query in held}

    def pending(self, queries: Iterable[str]) -> list[str]:
        """Those of ``queries`` that have neither a label nor an abstention."""
        held = self._ledger.labels()
        return [query for query in queries if query not in held]

    def why_stopped(self, budget: float) -> str:
        """What stands in the way of the next query, and what to do."""
        if self._for_the_run is not None:
            curve, queries = self._for_the_run
            whole = self._ledger.settings.epsilon(curve * queries)
            return (
                f"a run of {self._terms['name']} costs ε = {whole.epsilon:.4g} (δ = {whole.delta:g}) however much is "
                f"asked, which does not fit ε = {budget:g}; raise budget.epsilon, add noise, "
                "or allow fewer participations"
            )
        one = self._ledger.settings.epsilon(self._worst)
        spent = self._ledger.epsilon()
        return (
            f"{spent.epsilon:.4g} of ε = {budget:g} is spent (δ = {one.delta:g}) and one more query of "
            f"{self._terms['name']} does not fit (alone it costs {one.epsilon:.4g}); raise budget.epsilon, "
            "add noise, or stop here"
        )

    def worth_asking(self, queries: Sequence[str]) -> list[str]:
        """The first of ``queries`` that have no label yet and that the budget may still cover, in order."""
        held = self._ledger.labels()
        pending = [query for query in queries if query not in held]
        if not self._run_fits():
            return []
        fresh = [query for query in pending if self._stage_of(query, held) == 0]
        paid = max(self._paid_prefix(fresh, number) for number in range(len(self._stages)))
        more = self._ledger.affordable(self._worst, 1) and self._ledger.affordable(self._curves[0], len(fresh) - paid)
        left_out = set(fresh[paid + more :])
        return [query for query in pending if query not in left_out]

    def label(self, queries: Sequence[str], counts: IntArray, predictions: IntArray | None = None) -> bool:
        """Release a label or an abstention for as many of ``queries`` as the budget allows.

        Parameters
        ----------
        queries : distinct keys; those with a label keep it, free of charge.
        counts : shape ``[queries, classes]``.
        predictions : shape ``[queries]``, the student's own answers or -1; for interactive mechanisms. A query
            without one has nothing to be confirmed: it goes straight to the release, and pays for that alone.

        Returns
        -------
        False when the budget stopped it; what still fitted is released.
        """
        rows = {query: row for row, query in enumerate(queries)}
        if not self._pay_for_the_run():
            return False
        while True:
            held = self._ledger.labels()
            pending = [query for query in queries if query not in held]
            if not pending:
                return True
            first_stage, chunk = self._next_chunk(pending, held, self._unpredicted(queries, predictions))
            if not chunk:
                return False
            at = np.array([rows[query] for query in chunk])
            try:
                self._run_stages(first_stage, chunk, counts[at], None if predictions is None else predictions[at])
            except BudgetExceeded:
                return False  # another writer of this ledger spent what was left

    def next_stage(self, queries: Sequence[str]) -> tuple[int, list[str]]:
        """The stage that comes next and the queries to put to it; no queries when the budget stops it.

        With `pay` and `settle`, for sums that are paid first: answers in their own right, or samples of their own.
        """
        if not self._run_fits():
            return 0, []
        held = self._ledger.labels()
        return self._next_chunk([query for query in queries if query not in held], held)

    def pay(self, number: int, queries: Sequence[str]) -> None:
        """Charge stage ``number`` for ``queries`` unless that is done; BudgetExceeded when it does not fit."""
        if not self._pay_for_the_run():
            raise BudgetExceeded("the budget does not take this run")
        if self._take_up and self._claim(number, queries) in self._open:
            return
        stage = self._stages[number]
        paid = self._ledger.charge(
            purpose=stage.name,
            mechanism=self._terms,
            curve=self._curves[number],
            queries=list(queries),
            others=self._others[number],
        )
        self._open[self._claim(number, queries)] = paid

    def settle(self, number: int, queries: Sequence[str], counts: IntArray) -> None:
        """Run the paid stage on ``counts``, shape ``[queries, classes]``, and release its outcomes."""
        self._run_stages(number, list(queries), counts, None, last=number)

    def _run_is_paid(self) -> bool:
        """Whether nothing is due for the run as a whole: the charge that names no queries is in the ledger."""
        if self._for_the_run is None:
            return True
        return any(
            isinstance(paid := entry.content, Charge)
            and not paid.queries_sha256
            and dict(paid.mechanism) == self._terms
            and paid.queries == self._for_the_run[1]
            for entry in self._ledger.entries()
        )

    def _run_fits(self) -> bool:
        if self._for_the_run is None or self._run_is_paid():
            return True
        curve, queries = self._for_the_run
        return self._ledger.affordable(curve, queries) == queries

    def _pay_for_the_run(self) -> bool:
        """Pay it unless that was done; False when it does not fit. Two at once may both pay: never too little."""
        if self._for_the_run is None or self._run_is_paid():
            return True
        curve, queries = self._for_the_run
        try:
            self._ledger.charge(purpose=self._stages[0].name, mechanism=self._terms, curve=curve, queries=queries)
        except BudgetExceeded:
            return False
        return True

    def _unpredicted(self, queries: Sequence[str], predictions: IntArray | None) -> set[str]:
        """The queries that the first stage has nothing to say of. The student decides it, which is public."""
        if not self._stages[0].needs_prediction:
            return set()
        return {query for row, query in enumerate(queries) if predictions is None or predictions[row] < 0}

    def _next_chunk(
        self, pending: Sequence[str], held: Mapping[str, int], unpredicted: Set[str] = frozenset()
    ) -> tuple[int, list[str]]:
        """Queries at one same stage: those under way first, then those paid for, then what the budget takes.

        A query enters only when the budget takes it through every stage, so that none is paid for halfway.
        """
        stages = {query: self._stage_of(query, held) for query in pending}
        furthest = max(stages.values())
        if furthest > 0:
            return furthest, [query for query in pending if stages[query] == furthest]
        straight = [query for query in pending if query in unpredicted]
        entry, entering = (1, straight) if straight else (0, list(pending))
        cost = self._worst if entry == 0 else sum(self._curves[2:], self._curves[1])
        size = self._paid_prefix(entering, entry) or self._ledger.affordable(cost, len(entering))
        return entry, entering[:size]

    def _run_stages(
        self, first: int, chunk: list[str], counts: IntArray, predictions: IntArray | None, last: int | None = None
    ) -> None:
        alive = np.arange(len(chunk))
        for number in range(first, len(self._stages) if last is None else last + 1):
            stage = self._stages[number]
            queries = [chunk[row] for row in alive]
            charge = self._charge(number, queries)
            own = None if predictions is None else predictions[alive]
            outcomes = self._draw.run(stage, counts[alive], queries, own)
            passed = outcomes == NEXT_STAGE
            if passed.any() and number == len(self._stages) - 1:
                raise AssertionError(f"the last stage, {stage.name}, passed a query on")
            entries = {
                mark(query, stage) if onward else query: _PASSED if onward else int(outcome)
                for query, outcome, onward in zip(queries, outcomes, passed, strict=True)
            }
            try:
                self._ledger.release(charge, entries)
            except LabelConflict:
                return  # another process was first: its outcomes count, ours were never shown
            alive = alive[passed]
            if not len(alive):
                return

    def _charge(self, number: int, queries: list[str]) -> int:
        earlier = self._open.pop(self._claim(number, queries), None)
        if earlier is not None:
            return earlier
        stage = self._stages[number]
        return self._ledger.charge(
            purpose=stage.name,
            mechanism=self._terms,
            curve=self._curves[number],
            queries=queries,
            others=self._others[number],
        )

    def _claim(self, number: int, queries: Sequence[str]) -> Claim:
        return claim(self._stages[number].name, self._terms, self._curves[number], queries)

    def _paid_prefix(self, fresh: Sequence[str], number: int) -> int:
        """How many of the first queries an interrupted charge has paid for already, at stage ``number``."""
        sizes = {open_claim.queries for open_claim in self._open if open_claim.queries <= len(fresh)}
        return max((size for size in sizes if self._claim(number, fresh[:size]) in self._open), default=0)

    def _stage_of(self, query: str, held: Mapping[str, int]) -> int:
        return sum(mark(query, stage) in held for stage in self._stages)


def charge_of(stage: Stage, bound: str, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
    """What one query costs at ``stage`` by ``bound``; a stage without a published bound has its own alone."""
    return stage.published_charge(orders, unit) if bound == "classic" else stage.charge(orders, unit)


def mark(query: str, stage: Stage) -> str:
    """The ledger's key for "this query passed this stage"."""
    return f"{query}>{stage.name}"


@dataclass(frozen=True)
class Claim:
    """What a charge paid for: one stage, on its terms, for these queries in this order."""

    purpose: str
    terms: tuple[tuple[str, float | int | str], ...]
    curve: bytes
    queries: int
    queries_sha256: str


def claim(purpose: str, terms: Mapping[str, float | int | str], curve: RenyiCurve, queries: Sequence[str]) -> Claim:
    """What a charge for ``queries`` at ``curve`` each pays for."""
    return Claim(
        purpose, tuple(sorted(terms.items())), curve.values.tobytes(), len(queries), queries_digest(list(queries))
    )


def open_charges(entries: Iterable[Entry]) -> dict[Claim, int]:
    """The charges under which nothing was released: paid for, and lost with the process that made them."""
    found: dict[int, Claim] = {}
    for entry in entries:
        match entry.content:
            case Charge(purpose, mechanism, curves, queries, queries_sha256) if queries_sha256:
                terms, curve = tuple(sorted(mechanism.items())), curves[entry.terms.unit]
                found[entry.seq] = Claim(purpose, terms, curve.values.tobytes(), queries, queries_sha256)
            case Release(charge):
                found.pop(charge, None)
            case _:
                pass
    return {paid_for: seq for seq, paid_for in found.items()}
