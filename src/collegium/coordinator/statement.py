"""What a run states to the ledger before anything is released, and the one way in which its releases are paid.

Every question that can be stated before the run is stated at its start, so that all of them count together: the
ledger then holds a block for each stage of the labels, for the sums over all records, and for counts beside them. A
charge whose outcome was lost in a crash is taken up again rather than paid twice: nothing had been released under it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from collegium.errors import BudgetExceeded
from collegium.limits import MAX_POOL_INPUTS
from collegium.privacy.ledger.entry import Block
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.steps import Step, law_of
from collegium_accounting.analysis.epsilons import Bound
from collegium_accounting.game.laws import Law, VectorLaw, block_epsilon
from collegium_accounting.mechanisms import COORDINATOR, AddedBy, Mechanism, Stage, Unit

_APART = " not by groups"
"""Ends what the ledger calls sums over all records that are not by groups, where the first one is."""


@dataclass(frozen=True)
class Slot:
    """A place for releases in the ledger's terms: it is stated before anybody knows what will be asked there.

    Parameters
    ----------
    purpose : what the ledger calls it.
    stage : says how it is noised.
    laws : what one release costs, by unit; empty where the run as a whole is charged.
    step : from which everybody can compute the laws again.
    """

    purpose: str
    stage: Stage
    laws: Mapping[str, Law] = field(hash=False)
    step: Step | None = None

    @classmethod
    def once(cls, purpose: str, mechanism: Mechanism, added: AddedBy, unit: str, protected: Unit) -> "Slot":
        """The place of one release by a mechanism with a single step, for the named unit."""
        (stage,) = mechanism.summed(added)
        return cls(purpose, stage, {unit: stage.law(protected)}, Step.of(mechanism, stage, {unit: protected}))

    def added_by(self, mechanism: Mechanism, added: AddedBy) -> "Slot":
        """The same place and cost, where others are sure to add the noise: the more they are, the less each adds."""
        (stage,) = mechanism.summed(added)
        return replace(self, stage=stage)


# More than 15 methods: what was stated once decides every question about room and cost.
class Statement:
    """The blocks of one run in its ledger.

    Parameters
    ----------
    unit : what one neighbour may change; the ledger's budget is counted in it.
    added : who adds the noise of the labels' sums.
    apart : who adds the noise of sums over all records that are not by groups, where the first one is.
    others : further units that the ledger states the cost for, by their names.
    queries : of the whole run; the ledger's terms make room for so many at a time.
    bound : whether to charge by the exact accountant, or what published accountants charge.
    classes : their number where it is known; two cost less.
    beside : vectors that are fixed with this run and released once each, at any time. All count together with the
        labels, unless labels are vectors themselves: those add up in any case.
    study : which pays for itself where records near an input vote and a run is charged once.
    """

    def __init__(  # noqa: PLR0913 -- what is stated once at the start of a run, by name
        self,
        ledger: Ledger,
        mechanism: Mechanism,
        unit: Unit,
        *,
        added: AddedBy = COORDINATOR,
        apart: Iterable[AddedBy] = (),
        others: Mapping[str, Unit] = {},
        queries: int = 1,
        bound: Bound = "exact",
        classes: int | None = None,
        beside: Sequence[Slot] = (),
        study: str | None = None,
    ) -> None:
        self._ledger, self._mechanism, self._queries = ledger, mechanism, queries
        stages, by_records = mechanism.summed(added), mechanism.record_budget(added) is not None
        self._paid_at_once = by_records
        whose = f" of {study}" if study and mechanism.charged_once and by_records else ""
        units = {ledger.terms().unit: unit, **others}
        blocks = {
            stage.name + whose: Block(
                {name: law_of(stage, bound, one, classes) for name, one in units.items()},
                step=Step.of(mechanism, stage, units, bound, classes),
            )
            for stage in stages
        }
        names = list(blocks)
        vectors = all(isinstance(law, VectorLaw) for block in blocks.values() for law in block.laws.values())
        self._for_the_run: tuple[str, int] | None = None
        if mechanism.charged_once:
            # Paid once, for as many queries as one unit pays for; then every query is free.
            self._for_the_run = names[0], mechanism.charged_queries(MAX_POOL_INPUTS, added)
            names = [f"{name}, paid with the run" for name in names]
            blocks |= {name: Block({}) for name in names}
        self._blocks = blocks
        counted = {} if vectors else {one.purpose: Block(one.laws, fixed=True, step=one.step) for one in beside}
        self._blocks = self._charged_with(counted) | blocks
        self.stages = [
            Slot(name, stage, blocks[name].laws, blocks[name].step) for name, stage in zip(names, stages, strict=True)
        ]
        """One slot for each stage of the labels, in their order."""
        self.sums_apart = dict[AddedBy, Slot]()
        """The slots of sums over all records that are not by groups, where the first one is, by who adds the noise."""
        for adding in apart:
            (stage,) = mechanism.summed(adding)
            step = Step.of(mechanism, stage, units, bound, classes)
            self.sums_apart[adding] = Slot(stage.name + _APART, stage, step.laws, step)

    @property
    def sums(self) -> Slot:
        """The slot of sums over all records, which are charged one by one, or of the run as a whole."""
        assert self._for_the_run is not None  # there are such sums
        purpose = self._for_the_run[0]
        return Slot(purpose, self.stages[0].stage, self._blocks[purpose].laws, self._blocks[purpose].step)

    def pay(self, slot: Slot, names: Sequence[str], *, further: int = 0) -> int:
        """The charge of one release: one that a crash left without an outcome, or a new one.

        Parameters
        ----------
        names : what it releases: the keys of queries, or one question.
        further : of sums over all records, how many more of the run are to fit beside a new one.

        Returns
        -------
        Its entry in the ledger.

        Raises
        ------
        BudgetExceeded
            If it does not fit; nothing is charged then.
        """
        purpose, ledger = slot.purpose, self._ledger
        if (left := self.unspent(slot, names)) is not None:
            return left
        if self._labels(slot):
            if self._for_the_run is not None and not self.run_is_paid():
                # Two processes at once may both pay for the run: never too little.
                run, rounds = self._for_the_run
                ledger.charge(run, rounds, expected=self._blocks[run].laws)
        elif self._for_the_run is not None and purpose == self._for_the_run[0]:
            self._make_room(purpose, 1 + further)
        elif any(slot.purpose == one.purpose for one in self.sums_apart.values()):
            self._require_room(purpose, 1 + further, slot.laws)
            return ledger.charge(purpose, names, slot.laws, step=slot.step)
        elif not self._fits_beside(purpose):
            again = f"{purpose} once more" if ledger.used(purpose) else purpose
            return ledger.charge(again, names, slot.laws, step=slot.step)
        return ledger.charge(purpose, names, expected=slot.laws)

    def unspent(self, slot: Slot, names: Sequence[str]) -> int | None:
        """The charge for these names under which nothing was released yet; None without."""
        return self._ledger.unspent(names, slot.laws, slot.purpose if self._labels(slot) else None)

    def may_open(self, slot: Slot, names: Sequence[str], charge: int, sum_: str) -> bool:
        """Whether this charge for these names pays for the sum of this name, and for no other one by now."""
        return self._ledger.may_open(charge, sum_, names, slot.laws, slot.purpose if self._labels(slot) else None)

    def take_apart(self, purpose: str) -> None:
        """Do not charge a vector again that was charged elsewhere: it counts there, and not beside these labels."""
        if purpose in self._beside() and not self._ledger.used(purpose, self._blocks):
            self._count_apart(purpose)

    def note_sums(self, released: int) -> None:
        """So many of the sums that the mechanism charges for were released: no more are due for the labels."""
        self._for_the_run = self.sums.purpose, released

    def run_is_paid(self) -> bool:
        """Whether nothing is due for the run as a whole: the charge that names no queries is in the ledger."""
        return self._for_the_run is None or self._used(self._for_the_run[0]) >= self._for_the_run[1]

    def run_fits(self) -> bool:
        """Whether the budget takes what is due for the run as a whole."""
        if self._for_the_run is None:
            return True
        # A further sum may have been stated and not charged: labels are free where all that is stated is paid.
        if not self._stated() or (self.run_is_paid() and self._ledger.left(self._for_the_run[0])):
            self._allow(0)
        if self.run_is_paid():
            return True
        purpose, rounds = self._for_the_run
        # Sums are charged one by one, what records take part in for the whole run at once.
        paid = 0 if self._paid_at_once else self._used(purpose)
        return self._ledger.affordable(purpose, rounds - paid) == rounds - paid

    def room(self, queries: int) -> int:
        """How many of ``queries`` the terms and the budget take through every stage."""
        blocks = [slot.purpose for slot in self.stages]
        if not self._stated() or any(self._ledger.left(block) < queries for block in blocks):
            self._allow(queries)
        return min(self._ledger.affordable(block, queries) for block in blocks)

    def why_stopped(self, budget: float) -> str:
        """What stands in the way of the next query, and what to do."""
        delta, name = self._ledger.settings.delta, self._mechanism.name
        if self._for_the_run is not None:
            purpose, rounds = self._for_the_run
            whole = block_epsilon({self._blocks[purpose].laws[self._ledger.terms().unit]: rounds}, delta)
            return (
                f"{self._ledger.epsilon():.4g} of ε = {budget:g} is spent, and a run of {name} alone costs "
                f"{whole:.4g} (δ = {delta:g}) however much is asked; raise budget.epsilon, lower budget.study if the "
                "noise follows from it, add noise, or allow fewer participations"
            )
        return (
            f"{self._ledger.epsilon():.4g} of ε = {budget:g} is spent (δ = {delta:g}) and one more query of "
            f"{name} does not fit; raise budget.epsilon, add noise, or stop here"
        )

    def _used(self, purpose: str) -> int:
        """How many sums over all records were charged, whether they are by groups or not."""
        apart, laws = purpose + _APART, [self._blocks[purpose].laws]  # those of before are there without groups too
        laws += [slot.laws for slot in self.sums_apart.values() if slot.laws not in laws]
        return self._ledger.used(purpose) + sum(self._ledger.used(apart, {apart: Block(one)}) for one in laws)

    def _labels(self, slot: Slot) -> bool:
        return any(slot.purpose == one.purpose for one in self.stages)

    def _make_room(self, purpose: str, due: int) -> None:
        if not self._stated() or self._ledger.left(purpose) < due:
            self._ledger.allow(self._blocks, dict.fromkeys(self._blocks, 0) | {purpose: due})
        self._require_room(purpose, due)

    def _require_room(self, purpose: str, due: int, laws: Mapping[str, Law] | None = None) -> None:
        """Raise BudgetExceeded unless the budget takes so many more sums."""
        if self._ledger.affordable(purpose, due, laws) < due:
            raise BudgetExceeded(f"{due} more class sums do not fit the budget")

    def _fits_beside(self, purpose: str) -> bool:
        """Whether a vector is charged beside the labels: it was not before, and the budget takes all of them together.

        Where it does not, the last of them are left to count apart.
        """
        while purpose in self._beside():
            if not self._stated():
                self._allow(self._queries)
            if self._ledger.used(purpose):
                return False
            if self._ledger.affordable(purpose, 1):
                return True
            self._count_apart(self._beside()[-1])
        return False

    def _count_apart(self, purpose: str) -> None:
        """Remove this vector, and those charged with it: an earlier block counts them already."""
        charged = {name for name in self._beside() if self._ledger.used(name, self._blocks)}
        for name in charged | {purpose}:
            del self._blocks[name]
        self._allow(self._queries)

    def _beside(self) -> list[str]:
        """The vectors that count together with the labels."""
        return [purpose for purpose, block in self._blocks.items() if block.fixed]

    def _charged_with(self, beside: Mapping[str, Block]) -> dict[str, Block]:
        """Those of ``beside`` with which labels were charged before; all of them where none were.

        Another vector counts apart: with it the labels would count as others, chosen after those that are there.
        """
        for number in range(len(beside), -1, -1):
            for kept in combinations(beside, number):
                held = {name: beside[name] for name in kept}
                if any(self._ledger.used(purpose, held | self._blocks) for purpose in self._blocks):
                    return held
        return dict(beside)

    def _stated(self) -> bool:
        """Whether the terms in force are this run's own: another study may have left blocks of the same names."""
        stated = self._ledger.terms().blocks
        return all(
            name in stated and (stated[name].laws, stated[name].fixed) == (block.laws, block.fixed)
            for name, block in self._blocks.items()
        )

    def _allow(self, queries: int) -> None:
        """State the blocks in the ledger, with room for all queries of the run, and for ``queries`` more at least.

        What was charged before counts among the run's queries, also where another study stated its own blocks since.
        Answers decide which queries reach a later stage. The numbers that count are those that were fixed beforehand,
        so that all stages get the same room.
        """
        stages = [slot.purpose for slot in self.stages]
        in_all = dict.fromkeys(stages, self._queries) | dict.fromkeys(self._beside(), 1)
        if self._for_the_run is not None:
            purpose, sums = self._for_the_run
            in_all[purpose] = sums + self._ledger.used(purpose) - self._used(purpose)
        rounds = dict.fromkeys(self._blocks, 0) | dict.fromkeys(stages, queries)
        self._ledger.allow(self._blocks, rounds, in_all)
