"""Private evaluation of a run: the parties measure the released student on their own records.

It is paid for before the first label is bought, so that the labels cannot use up its share of the budget. An attempt
that was interrupted may have released counts, so another attempt is another charge.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collegium.coordinator.rounds.masked_sum import MaskedSum
from collegium.coordinator.rounds.rounds import ClearSum, VoteRound, VoteSum, ask_each, quorum_count, round_id
from collegium.coordinator.run.evaluation_terms import evaluated_unit, evaluation_mode, evaluation_of
from collegium.coordinator.run.run_record import EvaluationRecord
from collegium.errors import BudgetExceeded, CollegiumError, QuorumNotReached
from collegium.privacy.analysis.evaluation import Measures, measures
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.mechanisms import Mechanism, SumMode, SystemNoise
from collegium.privacy.mechanisms.evaluation import ONE, Layout, noisy
from collegium.protocol.requests import Evaluate, ShowEvaluation, Terms
from collegium.protocol.secure_sum import plan_graph

if TYPE_CHECKING:
    from collegium.coordinator.run.surroundings import RunNotes, RunSetup


def _sum_of(setup: "RunSetup") -> VoteSum:
    config, keys, mode = setup.config, setup.reach.signing_keys, evaluation_mode(setup.config)
    if keys is None or mode == setup.vote_sum.mode:
        return setup.vote_sum
    if mode == SumMode.CLEAR:
        return ClearSum(setup.reach.parties)
    votes = config.votes
    plan = plan_graph(len(keys), votes.dropout, votes.collusion, quorum=votes.quorum)
    return MaskedSum(setup.reach.parties, config.name, keys, plan, mode == SumMode.MASKED_AND_NOISED)


class PrivateEvaluation:
    """The evaluation of one run.

    Parameters
    ----------
    ledger_id : names the ledger under which the counts are released.
    """

    def __init__(self, setup: "RunSetup", ledger: Ledger, notes: "RunNotes", ledger_id: str) -> None:
        self._setup, self._ledger, self._notes, self._ledger_id = setup, ledger, notes, ledger_id
        self._config = setup.config
        self._sum = _sum_of(setup)

    def pay(self) -> None:
        """Charge the evaluation, unless that was done; where the budget does not take it, note that."""
        if self._config.evaluation is not None and self._notes.record.evaluation is None:
            self._note(self._paid())

    def measure(self, student: Path, fitted_from: str) -> None:
        """Have the parties measure the student in this file; does nothing where they did, or none is configured."""
        held = self._notes.record.evaluation
        if self._config.evaluation is None or held is None or held.fitted_from == fitted_from:
            return
        if held.asked:
            held = self._paid()
        if not held.paid:
            self._note(held)
            return
        self._note(held.model_copy(update={"asked": True}))
        try:
            with self._notes.timed("evaluation"):
                found = self.released([student.read_bytes()])
        except CollegiumError as error:
            # Where too few answered, no sum was opened: the charge is good for another attempt.
            asked = not isinstance(error, QuorumNotReached)
            self._note(held.model_copy(update={"asked": asked, "why_not": str(error)}))
            return
        done = {"asked": True, "fitted_from": fitted_from, "measures": found[0], "why_not": None}
        self._note(held.model_copy(update=done))

    def released(self, students: Sequence[bytes]) -> list[Measures]:
        """Ask the parties about these classifiers and release the figures; the caller has paid.

        Raises
        ------
        QuorumNotReached
            If too few parties answer.
        ProtocolViolation
            If the classifiers are too many or too large.
        """
        mechanism, classes = self._mechanism(len(students)), self._config.task.classes
        stage, layout, votes = mechanism.stages[0], Layout(len(classes)), self._config.votes
        terms = Terms.of(mechanism, self._sum.mode, stage.name if mechanism.sum_per_stage else "")
        per_party = self._config.budget.unit == "party"
        name = round_id(
            self._ledger_id, (), (terms, [hashlib.sha256(student).hexdigest() for student in students], per_party)
        )
        request = Evaluate(terms, name, self._ledger_id, tuple(students), per_party)
        reach = self._setup.reach
        names = reach.parties.names()
        quorum = quorum_count(votes.quorum, len(reach.roster if reach.roster is not None else names))
        tell: Callable[[int, int], None] = lambda done, asked: self._notes.tell("evaluation", done, asked)  # noqa: E731
        asked = VoteRound(request, dict.fromkeys(names, 0), request.length, votes.deadline_s, quorum, tell)
        result = self._sum.sum_votes(asked)
        released, sigma, share = result.counts[0], float(mechanism.parameters()["sigma"]), stage.share
        if share is None:
            released = noisy(released, sigma, SystemNoise())
        variance = sigma**2 if share is None else len(result.answered) * (share.sigma_share / ONE) ** 2
        counts = released.reshape(len(students), layout.length) / ONE
        shown = ShowEvaluation(name, tuple(counts[0].tolist()), variance)
        ask_each(reach.parties, result.answered, shown, votes.deadline_s, None)
        return [measures(own, variance, classes) for own in counts]

    def _mechanism(self, candidates: int) -> Mechanism:
        mechanism = evaluation_of(self._config, candidates)
        assert mechanism is not None  # the configuration asks for it
        if isinstance(self._sum, MaskedSum) and self._sum.noised:
            return mechanism.noised_by_parties(self._sum.plan.honest_survivors)
        return mechanism

    def _paid(self) -> EvaluationRecord:
        mechanism, unit = self._mechanism(1), evaluated_unit(self._config)
        record = EvaluationRecord(sum_mode=self._sum.mode, sigma=float(mechanism.parameters()["sigma"]))
        try:
            stage = mechanism.stages[0]
            self._ledger.charge(stage.name, 1, {self._ledger.terms().unit: stage.law(unit)})
        except BudgetExceeded as error:
            return record.model_copy(update={"why_not": str(error)})
        return record.model_copy(update={"paid": True})

    def _note(self, record: EvaluationRecord) -> None:
        self._notes.record.evaluation = record
        self._notes.write()
