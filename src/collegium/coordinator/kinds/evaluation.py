"""Private evaluation: the parties measure the released student on their own records."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collegium.coordinator.kinds.record_counts import RecordCounting
from collegium.coordinator.release import Releases
from collegium.coordinator.rounds.rounds import ask_each
from collegium.privacy.analysis.evaluation import Measures, measures
from collegium.privacy.evaluation_cells import Layout
from collegium.protocol.kinds.evaluation import Evaluate
from collegium.protocol.requests import ShowReleased
from collegium_accounting.mechanisms.record_counts import ONE


class PrivateEvaluation(RecordCounting):
    """The evaluation of one run. Another student is another release, and another charge."""

    part = "evaluation"

    def _parts_and_cells(self, students: int = 1) -> tuple[int, int]:
        layout = Layout(len(self._config.task.classes))
        return students * layout.parts, students * layout.length

    def measure(self, releases: Releases, student: Path, fitted_from: str) -> None:
        """Have the parties measure the student in this file; does nothing where they did, or none is configured."""
        noted = self._notes.record.evaluation
        if self._settings is None or noted is None or not noted.paid or noted.fitted_from == fitted_from:
            return

        def found() -> dict[str, Any]:
            return {"fitted_from": fitted_from, "measures": self.released(releases, [student.read_bytes()])[0]}

        self._attempt(releases, found)

    def released(self, releases: Releases, students: Sequence[bytes]) -> list[Measures]:
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
        classes, mechanism = self._config.task.classes, self.mechanism(*self._parts_and_cells(len(students)))
        question = Evaluate(*self._terms(mechanism), tuple(students), len(classes))
        released, answered = self._released(releases, mechanism, question)
        counts, variance = released.values.reshape(len(students), -1) / ONE, (released.noise / ONE) ** 2
        shown = ShowReleased(question.name, question.kind, tuple(counts[0].tolist()), variance)
        ask_each(self._setup.reach.parties, answered, shown, releases.asking.deadline_s, None)
        return [measures(own, variance, classes) for own in counts]
