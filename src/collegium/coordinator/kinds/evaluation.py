"""Private evaluation: the parties measure the released student on their own records.

Where they are summed by groups, a lie moves the figure of one group. A group whose counts are not those of its class
sums is set aside, as is one that was left out of the student. Where one of three or more groups is far from the others,
the figures are those of the group in the middle.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from collegium.coordinator.contradictions import Counted, check_counts, check_shares, counted_by_evaluation
from collegium.coordinator.groups import contradicted
from collegium.coordinator.journal import Part
from collegium.coordinator.kinds.record_counts import RecordCounting
from collegium.coordinator.release import Releases
from collegium.coordinator.rounds.rounds import ask_each
from collegium.privacy.analysis.evaluation import Measures, measures
from collegium.privacy.evaluation_cells import Layout
from collegium.protocol.kinds.evaluation import Evaluate
from collegium.protocol.requests import ShowReleased
from collegium.protocol.secure_sum.groups import FEWEST_GROUPS
from collegium_accounting.mechanisms.record_counts import ONE
from collegium_accounting.renyi import FloatArray

_FAR, _ERRORS = 0.1, 3.3
"""A group's accuracy is far from another's where it is so far, and by so many standard errors: once in 1,000 cases."""


@dataclass(frozen=True)
class Figures:
    """What an evaluation says of one classifier.

    Parameters
    ----------
    cells : the counts that the figures are of, in records; ``variance`` is that of the noise on each.
    set_aside : why they are not of all groups; None where they are.
    """

    measures: Measures
    cells: FloatArray
    variance: float
    set_aside: str | None = None


class PrivateEvaluation(RecordCounting):
    """The evaluation of one run. Another student is another release, and another charge."""

    part = "evaluation"

    def _parts_and_cells(self) -> tuple[int, int]:
        layout = Layout(len(self._config.task.classes))
        return layout.parts, layout.length

    def measure(
        self,
        releases: Releases,
        student: Path,
        fitted_from: str,
        counted: Sequence[Counted] = (),
        spoilt: Collection[str] = (),
    ) -> None:
        """Have the parties measure the student in this file; does nothing where they did, or it is not paid for.

        Parameters
        ----------
        counted : the records that other releases counted.
        spoilt : the parties of the group that is left out of the student.

        Raises
        ------
        Contradiction
            Where the evaluation counts other records than they, in all groups or without groups.
        """
        noted = self._notes.record.evaluation
        if noted is None or not noted.paid or noted.fitted_from == fitted_from:
            return

        def found() -> dict[str, Any]:
            classes, mechanism = self._config.task.classes, self.mechanism()
            question = Evaluate(*self._terms(mechanism), student.read_bytes(), len(classes))
            released, answered, asked = self._released(releases, mechanism, question)
            own = figures(released.groups, classes, counted, spoilt, per_party=question.per_party)
            shown = ShowReleased(asked, question.kind, tuple(own.cells.tolist()), own.variance)
            ask_each(self._setup.reach.parties, answered, shown, releases.asking.deadline_s, None)
            return {"fitted_from": fitted_from, "measures": own.measures, "set_aside": own.set_aside}

        self._attempt(releases, found)


def figures(
    groups: Sequence[Part],
    classes: tuple[str, ...],
    counted: Sequence[Counted] = (),
    spoilt: Collection[str] = (),
    *,
    per_party: bool = False,
) -> Figures:
    """The figures of one classifier from its cells, as released of each group.

    Raises
    ------
    Contradiction
        Where the counts of several groups are not those of their class sums, or there are no groups.
    """
    kept, why = [group for group in groups if not set(spoilt) & set(group.parties)] or list(groups), list[str]()
    if len(kept) < len(groups):
        why.append("a group is left out of the student, and its records are not counted")

    def check(group: Part) -> None:
        here = counted_by_evaluation(group.values / ONE, group.noise / ONE, group.parties, len(classes))
        if per_party:
            check_shares(here)
        else:
            check_counts([here, *(other for other in counted if other.parties == here.parties)])

    if (false := contradicted(kept, check)) is not None:
        number, lie = false
        why.append(f"{', '.join(kept[number].parties)} are not counted: {lie.why}")
        del kept[number]
    together = _measured(kept, classes)
    apart = [_measured([group], classes) for group in kept]
    if len(apart) >= FEWEST_GROUPS and (far := _far(apart)) is not None:
        known = sorted(apart, key=lambda own: -1.0 if own.measures.accuracy is None else own.measures.accuracy.value)
        why.append(
            f"the figure of {', '.join(kept[far].parties)} is far from the others', so that of the group in the middle "
            "counts"
        )
        together = known[len(known) // 2]
    return replace(together, set_aside="; ".join(why) or None)


def _measured(groups: Sequence[Part], classes: tuple[str, ...]) -> Figures:
    cells = np.sum([group.values for group in groups], axis=0) / ONE
    variance = sum((group.noise / ONE) ** 2 for group in groups)
    return Figures(measures(cells, variance, classes), cells, variance)


def _far(apart: Sequence[Figures]) -> int | None:
    """The group whose accuracy is furthest from the median of all, where that is further than noise explains."""
    known = [own.measures.accuracy for own in apart]
    if any(one is None for one in known):
        return None
    values, errors = (np.array([getattr(one, name) for one in known]) for name in ("value", "error"))
    middle = int(np.argsort(values)[len(values) // 2])
    beyond = np.abs(values - values[middle]) - np.maximum(_FAR, _ERRORS * np.hypot(errors, errors[middle]))
    furthest = int(beyond.argmax())
    return furthest if beyond[furthest] > 0.0 else None
