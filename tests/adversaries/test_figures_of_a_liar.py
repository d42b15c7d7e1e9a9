"""An institution that lies in an evaluation moves the figure of its own group, and not what is published."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from collegium.coordinator.contradictions import Counted
from collegium.coordinator.journal import Part
from collegium.coordinator.kinds import evaluation
from collegium.coordinator.kinds.evaluation import Figures, figures
from collegium.errors import Contradiction
from collegium.privacy.evaluation_cells import Layout
from collegium_accounting.mechanisms.record_counts import ONE

CLASSES = ("well", "ill")
MEMBERS = (("ash", "birch", "cedar"), ("oak", "pine", "rowan"), ("teak", "willow", "yew"))
RECORDS, RIGHT, NOISE = 600, 0.7, 3.0
"""Of each group, and the standard deviation on each cell: that of an accuracy is 0.03, in the worst case."""


def part(members: tuple[str, ...], right: float, *, records: int = RECORDS, seed: int = 0) -> Part:
    """The cells of a classifier that is right for this share of a group's records of either class, with noise."""
    labels = np.arange(records) % 2
    correct = np.arange(records) < round(right * records)
    ill = np.where(correct == (labels == 1), 0.8, 0.2)
    cells = Layout(2).cells(labels, np.column_stack([1.0 - ill, ill]), 1 - labels)
    values = np.bincount(cells.ravel(), minlength=Layout(2).length) + np.random.default_rng(seed).normal(0, NOISE, 20)
    return Part(np.rint(values * ONE).astype(np.int64), NOISE * ONE, members)


def honest(*, but: Part | None = None) -> list[Part]:
    """Three groups, of which the last may be another one's."""
    groups = [part(members, RIGHT, seed=seed) for seed, members in enumerate(MEMBERS)]
    return groups if but is None else [*groups[:2], but]


def told(groups: Sequence[Part], **known: object) -> tuple[float, Figures]:
    found = figures(groups, CLASSES, **known)  # type: ignore[arg-type]
    assert found.measures.accuracy is not None
    return found.measures.accuracy.value, found


def by_sums(members: tuple[str, ...], total: float = RECORDS) -> Counted:
    return Counted("the class sums", members, total, 10.0)


def test_of_honest_groups_all_count() -> None:
    accuracy, found = told(honest(), counted=[by_sums(members) for members in MEMBERS])
    assert accuracy == pytest.approx(RIGHT, abs=0.06) and found.set_aside is None
    assert found.variance == pytest.approx(3 * NOISE**2)


@pytest.mark.parametrize(("records", "right"), [(RECORDS, 1.0), (RECORDS, 0.0), (100 * RECORDS, 1.0)])
def test_a_figure_that_is_far_from_the_others_does_not_count(records: int, right: float) -> None:
    """With a hundred times its records it would be nearly all of the total."""
    accuracy, found = told(honest(but=part(MEMBERS[2], right, records=records)))
    assert accuracy == pytest.approx(RIGHT, abs=0.1)
    assert found.set_aside is not None and re.match("the figure of teak, willow, yew is far", found.set_aside)


def test_planted_a_total_of_all_groups_is_the_liars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_far", lambda apart: None)
    accuracy, _ = told(honest(but=part(MEMBERS[2], 1.0, records=100 * RECORDS)))
    assert accuracy > 0.95


def test_a_group_that_counts_other_records_than_in_its_class_sums_is_not_counted() -> None:
    counted = [by_sums(members) for members in MEMBERS]
    groups = honest(but=part(MEMBERS[2], RIGHT + 0.09, records=3 * RECORDS))  # too near to be far
    accuracy, found = told(groups, counted=counted)
    assert accuracy == pytest.approx(RIGHT, abs=0.06) and found.variance == pytest.approx(2 * NOISE**2)
    assert found.set_aside is not None and found.set_aside.startswith("teak, willow, yew are not counted: ")
    unknown, alone = told(groups)
    assert unknown > accuracy + 0.02 and alone.set_aside is None, "nothing to hold it against"


def test_where_all_are_one_group_a_contradiction_ends_the_evaluation() -> None:
    with pytest.raises(Contradiction, match="and the class sums 600 of the same"):
        figures([part(MEMBERS[0], RIGHT, records=3 * RECORDS)], CLASSES, [by_sums(MEMBERS[0])])


def test_a_group_that_was_left_out_of_the_student_is_left_out_of_its_figure() -> None:
    accuracy, found = told(honest(but=part(MEMBERS[2], RIGHT + 0.09, records=100 * RECORDS)), spoilt=MEMBERS[2])
    assert accuracy == pytest.approx(RIGHT, abs=0.06)
    assert found.set_aside == "a group is left out of the student, and its records are not counted"


def test_shares_of_whole_institutions_add_up_to_as_many() -> None:
    """Under the unit party each institution's cells add up to 1; three that count for six are refused."""
    fair, twice = (
        Part(np.rint(np.full(20, weight / 20) * ONE).astype(np.int64), 0.01 * ONE, MEMBERS[0]) for weight in (3.0, 6.0)
    )
    assert figures([fair], CLASSES, per_party=True).set_aside is None
    with pytest.raises(Contradiction, match="institutions"):
        figures([twice], CLASSES, per_party=True)
