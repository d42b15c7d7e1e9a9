"""Private evaluation of a run: the parties measure the released student on their own records.

Another student is another charge, and so is another attempt once the counts of one may have been seen.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from collegium.coordinator.rounds.rounds import ask_each
from collegium.coordinator.run.record_counting import RecordCounting
from collegium.privacy.analysis.evaluation import Measures, measures
from collegium.privacy.evaluation_cells import Layout
from collegium.protocol.requests import Evaluate, ShowEvaluation


class PrivateEvaluation(RecordCounting):
    """The evaluation of one run."""

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
