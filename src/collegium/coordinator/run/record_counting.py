"""Counts of the parties' records in a run: their charge, their round, their noise, and what run.json says of them."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from collegium.coordinator.rounds.masked_sum import MaskedSum
from collegium.coordinator.rounds.round_requests import paid_from
from collegium.coordinator.rounds.rounds import VoteRound, VoteSum, ask_each, quorum_count, round_id
from collegium.coordinator.run.counts_terms import counted_unit, counts_mechanism, counts_mode, counts_variance
from collegium.coordinator.run.factories import sum_in
from collegium.coordinator.run.labeller import Labeller
from collegium.coordinator.run.query_runner import QueryRunner
from collegium.coordinator.run.run_record import CountsRecord
from collegium.coordinator.run.surroundings import RunNotes, RunSetup
from collegium.coordinator.selection.kernel_choice import MOST_CELLS, pool_cover
from collegium.coordinator.settings.run_config import CountsConfig
from collegium.errors import BudgetExceeded, CollegiumError, QuorumNotReached
from collegium.privacy.analysis.evaluation import Measures, measures
from collegium.privacy.analysis.pool_fit import pool_fit
from collegium.privacy.evaluation_cells import Layout
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.requests import CountCoverage, CountRecords, Evaluate, ShowEvaluation, Terms
from collegium_accounting.game.laws import Law
from collegium_accounting.mechanisms import Mechanism, SumMode, SystemNoise
from collegium_accounting.mechanisms.record_counts import ONE, noisy
from collegium_accounting.renyi import FloatArray


class RecordCounting(ABC):
    """One kind of counts in one run; derive a class for each kind.

    Counts are paid for before the first label is bought, so that the labels cannot use up their share of the budget.

    Parameters
    ----------
    ledger_id : names the ledger under which the counts are released.
    settings : None where the run does not take these counts.
    runner : returns what has the parties follow the ledger.
    """

    part: ClassVar[str]
    """The part of run.json that says what came of the counts; charges and progress are called so as well."""

    def __init__(
        self,
        setup: RunSetup,
        ledger: Ledger,
        notes: RunNotes,
        ledger_id: str,
        settings: CountsConfig | None,
        runner: Callable[[], QueryRunner],
    ) -> None:
        self._setup, self._ledger, self._notes, self._ledger_id = setup, ledger, notes, ledger_id
        self._runner = runner
        self._config, self._settings = setup.config, settings
        self.sum = setup.vote_sum if settings is None else self._sum_of(counts_mode(setup.config, settings))

    @abstractmethod
    def _parts_and_cells(self) -> tuple[int, int]:
        """The cells that a record adds to, and all cells, of counts as they are paid for."""

    def beside(self) -> dict[str, Law]:
        """What these counts release once beside the labels, by purpose; empty where nothing is to be paid for them."""
        held = getattr(self._notes.record, self.part)
        if self._settings is None or (held is not None and not held.paid):
            return {}
        return {self.part: self.mechanism(*self._parts_and_cells()).stages[0].law(counted_unit(self._config))}

    def pay(self, labeller: Labeller) -> None:
        """Charge the counts, unless that was done; where the budget does not take them, note that.

        The terms of ``labeller`` state them with the labels, before the first answer to either. What a record of the
        run says was paid is paid again unless the ledger holds a charge for it that is not spent.
        """
        held: CountsRecord | None = getattr(self._notes.record, self.part)
        if self._settings is None or (held is not None and not held.paid):
            return
        if held is not None and held.asked:
            labeller.leave_paid(self.part)
            return
        parts, cells = self._parts_and_cells()
        mechanism = self.mechanism(parts, cells)
        noted: dict[str, Any] = {"sum_mode": self.sum.mode, "sigma": mechanism.parameters()["sigma"], "parts": parts}
        try:
            self._charge(mechanism, labeller)
            noted["paid"] = True
        except BudgetExceeded as error:
            noted["why_not"] = str(error)
        self._note(noted)

    def mechanism(self, parts: int, cells: int) -> Mechanism:
        """Counts in which a record adds to ``parts`` of ``cells``, as they are summed, with the noise that was paid."""
        assert self._settings is not None  # the configuration asks for them
        settings, held = self._settings, getattr(self._notes.record, self.part)
        if held is not None and held.paid and held.parts == parts:
            # The charge was made for this noise. The configuration, or the budget, may have changed since.
            settings = settings.model_copy(update={"sigma": held.sigma})
        mechanism = counts_mechanism(self._config, settings, parts, cells)
        if isinstance(self.sum, MaskedSum) and self.sum.noised:
            return mechanism.noised_by_parties(self.sum.plan.honest_survivors)
        return mechanism

    def _sum_of(self, mode: SumMode) -> VoteSum:
        """The votes' own may be no sum of such counts, or have a sparse graph, on which parties open no exact one."""
        reach = self._setup.reach
        return sum_in(mode, self._config, reach.parties, reach.signing_keys, self._setup.begun)

    def _charge(self, mechanism: Mechanism, labeller: Labeller | None = None) -> int:
        """The entry that pays for one release by ``mechanism``: one that is not spent yet, or a new one.

        Raises BudgetExceeded where a new one does not fit.
        """
        name, laws = self._named(mechanism)
        charge = self._ledger.unspent(name, laws)
        if labeller is not None:
            if charge is None:
                charge = labeller.pay_beside(self.part, name)
            else:
                labeller.leave_paid(self.part)
        if charge is None:
            purpose = f"{self.part} once more" if self._ledger.used(self.part) else self.part
            charge = self._ledger.charge(purpose, [name], laws)
        return charge

    def _named(self, mechanism: Mechanism) -> tuple[str, dict[str, Law]]:
        """What a charge for one release by ``mechanism`` is called in the ledger, and its law."""
        held, unit, study = mechanism.parameters(), self._ledger.terms().unit, self._setup.storage.study
        name = f"{self.part}|{study}|{unit}|{self.sum.mode}|{held['parts']}|{held['sigma']!r}"
        return name, {unit: mechanism.stages[0].law(counted_unit(self._config))}

    @property
    def _unspent(self) -> int | None:
        """The charge that is left for these counts, None where there is none or they may have been seen."""
        return self._ledger.unspent(*self._named(self.mechanism(*self._parts_and_cells())))

    def _attempt(self, held: CountsRecord, find: Callable[[], Mapping[str, Any]]) -> None:
        """Have ``find`` ask the parties, and note what it returns or why it failed."""
        known = held.model_dump(include=set(CountsRecord.model_fields)) | {"asked": True, "why_not": None}
        self._note(known)
        try:
            with self._notes.timed(self.part):
                found = find()
        except CollegiumError as error:
            # Where too few answered before a sum was opened, the charge is good for another attempt.
            again = isinstance(error, QuorumNotReached) and self._unspent is not None
            self._note(known | {"asked": not again, "why_not": str(error)})
            return
        self._note({**known, **found})

    def _released(
        self, mechanism: Mechanism, about: object, ask: Callable[[Terms, str, str, bool], CountRecords]
    ) -> tuple[str, FloatArray, float, Sequence[str]]:
        """Pay, unless a charge is left, ask the parties and release the counts.

        The charge is spent in the ledger before anybody sees a noisy count.

        Parameters
        ----------
        about : what the round is about: another value gives it another name.
        ask : makes the request from its terms, the round's name, the ledger with the charge, and whether parties send
            shares of their records.

        Raises BudgetExceeded where they are to be paid and do not fit; QuorumNotReached.

        Returns
        -------
        The round's name, the counts in records, the variance of the noise on each, and the parties that answered.
        """
        stage, votes, reach = mechanism.stages[0], self._config.votes, self._setup.reach
        charge, share = self._charge(mechanism), stage.share

        def spend(answered: Sequence[str]) -> None:
            self._runner().spend(charge, answered)

        self._runner().follow()
        terms = Terms.of(mechanism, self.sum.mode, stage.name if mechanism.sum_per_stage else "")
        per_party = self._config.budget.unit == "party"
        name = round_id(self._ledger_id, (), (terms, about, per_party))
        asked_under = paid_from(self._ledger_id, charge, self.sum.mode)
        request, here = ask(terms, name, asked_under, per_party), reach.parties.names()
        names = here if reach.roster is None else [party for party in here if party in reach.roster]
        quorum = quorum_count(votes.quorum, len(reach.roster if reach.roster is not None else names))
        tell, opening = partial(self._notes.tell, self.part), None if share is None else spend
        asked = VoteRound(request, dict.fromkeys(names, 0), request.length, votes.deadline_s, quorum, tell, opening)
        result = self.sum.sum_votes(asked)
        counts, sigma = result.counts[0], float(mechanism.parameters()["sigma"])
        if share is None:
            spend(result.answered)
            counts = noisy(counts, sigma, SystemNoise())
        variance = counts_variance(mechanism, share, len(result.answered))
        return name, counts / ONE, variance, result.answered

    def _note(self, noted: Mapping[str, Any]) -> None:
        setattr(self._notes.record, self.part, noted)  # pydantic makes the part's own kind of record of it
        self._notes.write()


class PrivateEvaluation(RecordCounting):
    """The parties measure the released student of a run on their own records.

    Another student is another charge, and so is another attempt once the counts of one may have been seen.
    """

    part = "evaluation"

    def _parts_and_cells(self, students: int = 1) -> tuple[int, int]:
        layout = Layout(len(self._config.task.classes))
        return students * layout.parts, students * layout.length

    def measure(self, student: Path, fitted_from: str) -> None:
        """Have the parties measure the student in this file; does nothing where they did, or none is configured."""
        held = self._notes.record.evaluation
        if self._settings is None or held is None or not held.paid or held.fitted_from == fitted_from:
            return
        found = lambda: {"fitted_from": fitted_from, "measures": self.released([student.read_bytes()])[0]}  # noqa: E731
        self._attempt(held, found)

    def released(self, students: Sequence[bytes]) -> list[Measures]:
        """Ask the parties about these classifiers and release the figures; paid unless a charge is left for them.

        Raises
        ------
        BudgetExceeded
            If they do not fit the budget.
        QuorumNotReached
            If too few parties answer.
        ProtocolViolation
            If the classifiers are too many or too large.
        """
        classes, deadline_s = self._config.task.classes, self._config.votes.deadline_s
        name, counts, variance, answered = self._released(
            self.mechanism(*self._parts_and_cells(len(students))),
            [hashlib.sha256(student).hexdigest() for student in students],
            lambda terms, name, paid, per_party: Evaluate(terms, name, paid, per_party, tuple(students), len(classes)),
        )
        by_student = counts.reshape(len(students), -1)
        shown = ShowEvaluation(name, tuple(by_student[0].tolist()), variance)
        ask_each(self._setup.reach.parties, answered, shown, deadline_s, None)
        return [measures(own, variance, classes) for own in by_student]


class PoolCheck(RecordCounting):
    """Whether the pool fits: before labels are bought, the parties count how well it covers their records.

    The check is made once in a run. After an error it is not repeated. Where too few parties answered, or the process
    died, the next start makes it, if the ledger has its charge as not spent.
    """

    part = "pool_check"

    def _parts_and_cells(self) -> tuple[int, int]:
        return 1, MOST_CELLS

    @property
    def due(self) -> bool:
        """Whether the check is configured and paid for, and was not made yet: a process may have died before it was."""
        held = self._notes.record.pool_check
        if self._settings is None or held is None or not held.paid or held.found is not None:
            return False
        return (not held.asked or held.why_not is None) and self._unspent is not None

    def check(self, pool: NDArray[Any], pool_sha256: str) -> None:
        """Ask the parties, which hold the pool ``[inputs, …]``, and note what was found; the check must be `due`."""
        held, config = self._notes.record.pool_check, self._config
        assert held is not None
        spec, reference = pool_cover(config.sums, pool, config.task.inputs, config.seed or 0)

        def found() -> dict[str, Any]:
            _, counts, variance, _ = self._released(
                self.mechanism(1, spec.cells),
                spec.digest(),
                lambda terms, name, paid, per_party: CountCoverage(terms, name, paid, per_party, spec, pool_sha256),
            )
            return {"found": pool_fit(reference, counts, variance, spec.intervals_from)}

        self._attempt(held, found)
