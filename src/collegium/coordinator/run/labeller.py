"""From vote histograms to labels under a budget: look up, charge, draw, release, in that order.

Every stage of a mechanism is charged for its queries before its noise is drawn, and what it decided is
on the disk before anyone sees it. A charge whose outcome was lost in a crash is taken up again rather
than paid twice: nothing had been released under it. A sum that parties made noisy is an outcome once it is opened.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np

from collegium.errors import BudgetExceeded, LabelConflict
from collegium.limits import MAX_POOL_INPUTS
from collegium.privacy.ledger.entry import queries_digest
from collegium.privacy.ledger.ledger import Ledger
from collegium_accounting.analysis.epsilons import Bound
from collegium_accounting.game.laws import Law, RenyiLaw, VectorLaw, block_epsilon
from collegium_accounting.mechanisms import (
    NEXT_STAGE,
    AnsweredBy,
    IntArray,
    Mechanism,
    SeededNoise,
    Stage,
    SystemNoise,
    Unit,
)
from collegium_accounting.renyi import WIDE_ORDERS

_PASSED = 0
"""What the ledger holds, under a stage's own key, for a query that went on to the next stage."""


@dataclass(frozen=True)
class NoiseStrategy:
    """Runs a stage with noise: from the operating system's randomness, or from a seed for runs that are not private.

    With a seed, the noise follows from the seed, the stage and the query, so that it is the same however a run is cut
    into batches or resumed.
    """

    seed: int | None = None

    @property
    def private(self) -> bool:
        return self.seed is None

    def run(
        self, stage: Stage, counts: IntArray, queries: Sequence[str], predictions: IntArray | None = None
    ) -> IntArray:
        """Outcome per query, shape ``[queries]``, for ``counts`` of shape ``[queries, classes]``."""
        if self.seed is None:
            return stage.run(counts, SystemNoise(), predictions)
        outcomes = np.empty(len(queries), dtype=np.int64)
        for row, query in enumerate(queries):
            name = hashlib.sha256(f"{self.seed}|{stage.name}|{query}".encode()).digest()
            noise = SeededNoise(int.from_bytes(name[:16], "big"))
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
    queries : of the whole run; the ledger's terms make room for so many at a time.
    bound : whether to charge by the exact accountant, or what published accountants charge.
    classes : their number where it is known; two cost less.
    beside : by purpose, the laws of vectors that are fixed with this run and released once each, at any time. All
        count together with the labels, unless labels are vectors themselves: those add up in any case.
    study : which pays for itself where records near an input vote and a run is charged once.
    """

    def __init__(
        self,
        ledger: Ledger,
        mechanism: Mechanism,
        unit: Unit,
        draw: NoiseStrategy,
        *,
        others: Mapping[str, Unit] = {},
        queries: int = 1,
        bound: Bound = "exact",
        classes: int | None = None,
        beside: Mapping[str, Law] = {},
        study: str | None = None,
    ) -> None:
        self._ledger = ledger
        self._stages = mechanism.stages
        self._draw = draw
        units = {ledger.terms().unit: unit, **others}
        own = mechanism.charged_once and mechanism.answered_by is AnsweredBy.RECORDS_WITHIN_A_RADIUS
        whose = f" of {study}" if study and own else ""
        self._blocks = [stage.name + whose for stage in self._stages]
        self._laws = {
            block: {name: law_of(stage, bound, one, classes) for name, one in units.items()}
            for block, stage in zip(self._blocks, self._stages, strict=True)
        }
        vectors = all(isinstance(law, VectorLaw) for laws in self._laws.values() for law in laws.values())
        vectors_beside = {} if vectors else {name: {ledger.terms().unit: law} for name, law in beside.items()}
        self._queries = queries
        self._for_the_run: tuple[str, int] | None = None
        if mechanism.charged_once:
            # Paid once, for as many queries as one unit pays for; then every query is free.
            self._for_the_run = self._blocks[0], mechanism.charged_queries(MAX_POOL_INPUTS)
            self._blocks = [f"{name}, paid with the run" for name in self._blocks]
            self._laws |= {name: {} for name in self._blocks}
        self._one_by_one = mechanism.answered_by is AnsweredBy.ALL_RECORDS
        self._beside = self._charged_with(vectors_beside)
        self._laws = {**self._beside, **self._laws}
        self._name = mechanism.name
        self._open = open_charges(ledger)

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
        delta = self._ledger.settings.delta
        if self._for_the_run is not None:
            purpose, rounds = self._for_the_run
            whole = block_epsilon({self._own_law(purpose): rounds}, delta)
            return (
                f"{self._ledger.epsilon():.4g} of ε = {budget:g} is spent, and a run of {self._name} alone costs "
                f"{whole:.4g} (δ = {delta:g}) however much is asked; raise budget.epsilon, lower budget.study if the "
                "noise follows from it, add noise, or allow fewer participations"
            )
        return (
            f"{self._ledger.epsilon():.4g} of ε = {budget:g} is spent (δ = {delta:g}) and one more query of "
            f"{self._name} does not fit; raise budget.epsilon, add noise, or stop here"
        )

    def _own_law(self, purpose: str) -> Law:
        return self._laws[purpose][self._ledger.terms().unit]

    def worth_asking(self, queries: Sequence[str]) -> list[str]:
        """The first of ``queries`` that have no label yet and that the budget may still cover, in order."""
        held = self._ledger.labels()
        pending = [query for query in queries if query not in held]
        if not self._run_fits():
            return []
        fresh = [query for query in pending if self._stage_of(query, held) == 0]
        paid = max(self._paid_prefix(fresh, number) for number in range(len(self._stages)))
        more = self._room(0, len(fresh) - paid)
        left_out = set(fresh[paid + more :])
        return [query for query in pending if query not in left_out]

    def label(self, queries: Sequence[str], counts: IntArray, predictions: IntArray | None = None) -> bool:
        """Release labels from ``counts``, ``[queries, classes]``, that serve every stage; see `label_by_stage`."""
        rows = {query: row for row, query in enumerate(queries)}
        return self.label_by_stage(queries, lambda _, chunk, __: counts[[rows[query] for query in chunk]], predictions)

    def label_by_stage(
        self,
        queries: Sequence[str],
        counts_of: Callable[[Stage, Sequence[str], Callable[[], None] | None], IntArray],
        predictions: IntArray | None = None,
    ) -> bool:
        """Release a label or an abstention for as many of ``queries`` as the budget allows.

        Parameters
        ----------
        queries : distinct keys; those with a label keep it, free of charge.
        counts_of : called with a stage and some of ``queries`` once these are paid for; returns their counts, shape
            ``[queries, classes]``. Where parties add the noise, it calls what it is given besides before a sum is
            opened: until then a round may fail and be asked again under the same charge.
        predictions : shape ``[queries]``, the student's own answers or -1; for interactive mechanisms. A query
            without one has nothing to be confirmed: it goes straight to the release, and pays for that alone.

        Returns
        -------
        False when the budget stopped it; what still fitted is released.
        """
        rows = {query: row for row, query in enumerate(queries)}
        unpredicted = self._unpredicted(queries, predictions)
        while True:
            held = self._ledger.labels()
            pending = [query for query in queries if query not in held]
            if not pending:
                return True
            number, chunk = self._next_chunk(pending, held, unpredicted) if self._run_fits() else (0, [])
            if not chunk:
                return False
            try:
                charge = self.pay(number, chunk)
            except BudgetExceeded:
                return False  # another writer of this ledger spent what was left
            own = None if predictions is None else predictions[[rows[query] for query in chunk]]
            stage = self._stages[number]
            opening = None if stage.share is None else partial(self._ledger.spend, charge, for_labels=True)
            self._release(charge, number, chunk, self._draw.run(stage, counts_of(stage, chunk, opening), chunk, own))

    def give(self, queries: Sequence[str], outcomes: IntArray, sums: int) -> bool:
        """Release outcomes, ``[queries]``, that follow from sums over all records; False where these are not paid.

        Parameters
        ----------
        queries : distinct keys without labels.
        sums : how many of the sums that the mechanism charges for were released.
        """
        assert self._for_the_run is not None  # sums over all records are charged once
        self._for_the_run = self._for_the_run[0], sums
        if not self._run_fits():
            return False
        try:
            charge = self.pay(0, queries)
        except BudgetExceeded:
            return False
        self._release(charge, 0, queries, outcomes)
        return True

    def pay_for_sum(self, ready: Callable[[], object], question: str, further: int) -> int:
        """The charge of one sum over all records: one that a crash left unspent, or a new one.

        Parameters
        ----------
        ready : called before a new charge; what it raises leaves the sum unpaid.
        question : names the sum.
        further : how many more sums of the run are to fit beside a new one.

        Raises
        ------
        BudgetExceeded
            If they do not fit; nothing is charged then.
        """
        assert self._for_the_run is not None  # sums over all records are charged once
        purpose, due = self._for_the_run[0], 1 + further
        laws = self._laws[purpose]
        if (paid := self._ledger.unspent(question, laws)) is not None:
            return paid
        if not self._stated() or self._ledger.left(purpose) < due:
            self._ledger.allow(self._laws, dict.fromkeys(self._laws, 0) | {purpose: due}, self._beside)
        if self._ledger.affordable(purpose, due) < due:
            raise BudgetExceeded(f"{due} more class sums do not fit the budget")
        ready()
        return self._ledger.charge(purpose, [question], expected=laws)

    def pay(self, number: int, queries: Sequence[str]) -> int:
        """Charge stage ``number`` for ``queries``, or take up a charge for them that a crash left open.

        Returns
        -------
        The charge's entry in the ledger.

        Raises
        ------
        BudgetExceeded
            If it does not fit.
        """
        if self._for_the_run is not None and not self.run_is_paid():
            # Two processes at once may both pay for the run: never too little.
            purpose, rounds = self._for_the_run
            self._ledger.charge(purpose, rounds, expected=self._laws[purpose])
        earlier = self._open.pop(self._claim(number, queries), None)
        if earlier is not None:
            return earlier
        return self._ledger.charge(self._blocks[number], list(queries), expected=self._laws[self._blocks[number]])

    def run_is_paid(self) -> bool:
        """Whether nothing is due for the run as a whole: the charge that names no queries is in the ledger."""
        return self._for_the_run is None or self._ledger.used(self._for_the_run[0]) >= self._for_the_run[1]

    def _run_fits(self) -> bool:
        if self._for_the_run is None:
            return True
        # A further sum may have been stated and not charged: labels are free where all that is stated is paid.
        if not self._stated() or (self.run_is_paid() and self._ledger.left(self._for_the_run[0])):
            self._allow(0)
        if self.run_is_paid():
            return True
        purpose, rounds = self._for_the_run
        # Sums are charged one by one, what records take part in for the whole run at once.
        due = rounds - self._ledger.used(purpose) * self._one_by_one
        return self._ledger.affordable(purpose, due) == due

    def _room(self, number: int, queries: int) -> int:
        """How many of ``queries`` that enter at stage ``number`` the terms and the budget take through every stage."""
        needed = self._blocks[number:]
        if not self._stated() or any(self._ledger.left(block) < queries for block in needed):
            self._allow(queries)
            if number and not self._ledger.affordable(needed[0], 1):
                self._allow(queries, number)
        return min(self._ledger.affordable(block, queries) for block in needed)

    def pay_beside(self, purpose: str, name: str) -> int | None:
        """Charge a vector that is released beside the labels; None where it counts apart or was charged before.

        Where the budget does not take all such vectors together, the last of them are left to count apart.
        """
        while purpose in self._beside:
            if not self._stated():
                self._allow(self._queries)
            if self._ledger.used(purpose):
                return None
            if self._ledger.affordable(purpose, 1):
                return self._ledger.charge(purpose, [name], expected=self._laws[purpose])
            self._count_apart(next(reversed(self._beside)))
        return None

    def leave_paid(self, purpose: str) -> None:
        """Have a vector count where it was charged, and not also beside these labels where that was elsewhere."""
        if purpose in self._beside and not self._ledger.used(purpose, self._laws, self._beside):
            self._count_apart(purpose)

    def _count_apart(self, purpose: str) -> None:
        """Leave out a vector, and those that were charged beside it: they count there, and not once more without it."""
        charged = {name for name in self._beside if self._ledger.used(name, self._laws, self._beside)}
        for name in charged | {purpose}:
            del self._beside[name], self._laws[name]
        self._allow(self._queries)

    def _charged_with(self, beside: Mapping[str, dict[str, Law]]) -> dict[str, dict[str, Law]]:
        """Those of ``beside`` with which labels were charged before; all of them where none were.

        Another vector counts apart: with it the labels would count as others, chosen after those that are there.
        """
        for number in range(len(beside), -1, -1):
            for kept in combinations(beside, number):
                held = {name: beside[name] for name in kept}
                if any(self._ledger.used(block, held | self._laws, kept) for block in self._laws):
                    return held
        return dict(beside)

    def _stated(self) -> bool:
        """Whether the terms in force are this mechanism's own: another study may have left blocks of the same names."""
        blocks = self._ledger.terms().blocks
        return all(
            name in blocks and blocks[name].laws == laws and blocks[name].fixed == (name in self._beside)
            for name, laws in self._laws.items()
        )

    def _allow(self, queries: int, entry: int = 0) -> None:
        """State this mechanism's blocks in the ledger, with room for all queries of the run that enter at this stage.

        It is room for ``queries`` more at least. What was charged before counts among the run's queries, also where
        another study stated its own blocks since.

        Answers decide which queries skip a stage. The numbers that count are those that were fixed beforehand, so
        that all stages get the same room, unless the budget takes none of the first.
        """
        entered = self._blocks[entry:]
        in_all = dict.fromkeys(entered, self._queries) | dict.fromkeys(self._beside, 1)
        in_all |= {} if self._for_the_run is None else dict([self._for_the_run])
        rounds = dict.fromkeys(self._laws, 0) | dict.fromkeys(entered, queries)
        self._ledger.allow(self._laws, rounds, self._beside, in_all)

    def _unpredicted(self, queries: Sequence[str], predictions: IntArray | None) -> set[str]:
        """The queries that the first stage has nothing to say of. The student decides it, which is public."""
        if not self._stages[0].needs_prediction:
            return set()
        return {query for row, query in enumerate(queries) if predictions is None or predictions[row] < 0}

    def _next_chunk(
        self, pending: Sequence[str], held: Mapping[str, int], unpredicted: Set[str]
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
        size = self._paid_prefix(entering, entry) or self._room(entry, len(entering))
        return entry, entering[:size]

    def _release(self, charge: int, number: int, queries: Sequence[str], outcomes: IntArray) -> None:
        """Write down what stage ``number`` decided: a label, an abstention, or that the query goes on."""
        stage, onward = self._stages[number], outcomes == NEXT_STAGE
        if onward.any() and number == len(self._stages) - 1:
            raise AssertionError(f"the last stage, {stage.name}, passed a query on")
        entries = {
            mark(query, stage) if passed else query: _PASSED if passed else int(outcome)
            for query, outcome, passed in zip(queries, outcomes, onward, strict=True)
        }
        with contextlib.suppress(LabelConflict):  # another process was first: its outcomes count, ours were never shown
            self._ledger.release(charge, entries)

    def _claim(self, number: int, queries: Sequence[str]) -> "Claim":
        digest = queries_digest(list(queries))
        block = self._blocks[number]
        return Claim(block, frozenset(self._laws[block].items()), len(queries), digest)

    def _paid_prefix(self, fresh: Sequence[str], number: int) -> int:
        """How many of the first queries an interrupted charge has paid for already, at stage ``number``."""
        sizes = {open_claim.queries for open_claim in self._open if open_claim.queries <= len(fresh)}
        return max((size for size in sizes if self._claim(number, fresh[:size]) in self._open), default=0)

    def _stage_of(self, query: str, held: Mapping[str, int]) -> int:
        return sum(mark(query, stage) in held for stage in self._stages)


def law_of(stage: Stage, bound: Bound, unit: Unit, classes: int | None = None) -> Law:
    """What one query costs at ``stage`` by ``bound``."""
    return stage.law(unit, classes) if bound == "exact" else RenyiLaw.of(stage.charge(WIDE_ORDERS, unit))


def mark(query: str, stage: Stage) -> str:
    """The ledger's key for "this query passed this stage"."""
    return f"{query}>{stage.name}"


@dataclass(frozen=True)
class Claim:
    """What a charge paid for: one round of a block for each of these queries in this order."""

    purpose: str
    laws: frozenset[tuple[str, Law]]
    queries: int
    queries_sha256: str


def open_charges(ledger: Ledger) -> dict[Claim, int]:
    """The charges under which nothing was released or opened: paid for, and lost with the process that made them."""
    return {
        Claim(paid.purpose, frozenset(terms.blocks[paid.purpose].laws.items()), paid.queries, paid.queries_sha256): seq
        for seq, (terms, paid) in ledger.untouched().items()
    }
