"""How both sides know a question again: by what it is about, by all that its answer depends on, by its records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from collegium_reproduction.nearest.question import CountNearest

from collegium.data.task import TeacherSettings
from collegium.models.features import Features
from collegium.models.kernels import KernelSpec
from collegium.protocol.kinds.class_sums import SumClasses
from collegium.protocol.kinds.near_records import CastNeighbours
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium.protocol.question import Keys, PoolRange, Question, QuestionTerms, keys

POOL, OTHER_POOL = "ab" * 32, "cd" * 32
CONTENTS = (b"one input", b"another")
EXACT = QuestionTerms("gnmax", {"sigma": 40.0}, sum_mode="masked")
NOISED = QuestionTerms("gnmax", {"sigma": 40.0}, sum_mode="masked+noised", stage="release", honest_survivors=3)
VOTES = CastVotes(EXACT, "ledger", TeacherSettings(), PoolRange(POOL, (4, 7)), 3)
NEAR = CastNeighbours(EXACT, "ledger", Features("raw"), VOTES.inputs, 3, (900, 30), "flat")
SAMPLED = QuestionTerms("knn", {"k": 3.0, "sampling_rate": 0.5}, sum_mode="masked", stage="release")
NEAREST = CountNearest(SAMPLED, "ledger", Features("raw"), VOTES.inputs, 3, np.array([[1, 2], [5, 6]]))
SUMS = SumClasses(
    QuestionTerms("class-sums", {"classes": 3.0, "rounds": 2.0}),
    "ledger",
    False,
    KernelSpec(Features("raw"), (0,), 9),
    POOL,
)


def of(question: Question, *, run: str = "run", roster: bytes = b"roster", contents: Any = CONTENTS) -> Keys:
    return keys(question, () if question.whole_vector else contents, run, roster)


@pytest.mark.parametrize(
    "again",
    [
        replace(VOTES, terms=replace(EXACT, parameters={"sigma": 41.0})),
        replace(VOTES, terms=replace(EXACT, mechanism="lnmax")),
        replace(VOTES, terms=replace(EXACT, adjacency="add-remove")),
        replace(VOTES, terms=replace(EXACT, sum_mode="clear")),
        replace(VOTES, ledger_id="another"),
        replace(VOTES, teacher=TeacherSettings(per_party=7)),
    ],
    ids=["noise", "mechanism", "adjacency", "mode", "study", "teachers"],
)
def test_other_terms_and_voters_are_about_the_same_and_are_another_answer(again: Question) -> None:
    first, second = of(VOTES), of(again)
    assert first.subjects == second.subjects
    assert not set(first.rows) & set(second.rows)


def test_places_in_a_pool_and_pools_are_in_no_key() -> None:
    for inputs in (PoolRange(POOL, (0, 1)), PoolRange(OTHER_POOL, (4, 7))):
        assert of(replace(VOTES, inputs=inputs)) == of(VOTES)
        assert of(replace(NEAREST, inputs=inputs)) == of(NEAREST)


def test_a_row_has_the_same_key_in_whatever_batch_it_is_asked() -> None:
    turned = replace(NEAR, inputs=PoolRange(POOL, (7, 4)), radii_squared=(30, 900))
    alone = replace(NEAR, inputs=PoolRange(POOL, (4,)), radii_squared=(900,))
    together = of(NEAR)
    assert of(turned, contents=CONTENTS[::-1]).rows == together.rows[::-1]
    assert of(alone, contents=CONTENTS[:1]).rows == together.rows[:1]


def test_what_is_asked_of_one_row_is_in_the_key_of_that_row_alone() -> None:
    for question, other in (
        (NEAR, replace(NEAR, radii_squared=(900, 31))),
        (NEAREST, replace(NEAREST, edges_squared=np.array([[1, 2], [5, 7]]))),
    ):
        first, second = of(question), of(other)
        assert first.rows[0] == second.rows[0] and first.rows[1] != second.rows[1]
        assert first.subjects == second.subjects


@pytest.mark.parametrize("change", [{"run": "other"}, {"roster": b"others"}])
def test_an_exact_answer_is_one_of_its_run_and_its_roster(change: dict[str, Any]) -> None:
    first, second = of(VOTES), of(VOTES, **change)
    assert first.subjects == second.subjects and not set(first.rows) & set(second.rows)


def test_who_else_adds_noise_is_no_part_of_a_noised_answer() -> None:
    noised = replace(VOTES, terms=NOISED)
    fewer = replace(noised, terms=replace(NOISED, honest_survivors=2))
    louder = replace(noised, terms=replace(NOISED, parameters={"sigma": 41.0}))
    assert of(noised) == of(noised, roster=b"others") == of(fewer)
    assert not set(of(noised).rows) & set(of(louder).rows)


def test_another_stage_about_the_same_input_is_no_repetition() -> None:
    threshold = replace(NEAREST, terms=replace(SAMPLED, stage="threshold"))
    assert not set(of(NEAREST).subjects) & set(of(threshold).subjects)
    assert of(NEAREST).samples == of(threshold).samples


def test_masked_sums_about_the_same_records_have_one_name_whatever_they_ask() -> None:
    asked = of(NEAREST).samples
    assert len(set(asked)) == 2
    others: list[Callable[[CountNearest], CountNearest]] = [
        lambda one: replace(one, edges_squared=one.edges_squared + 5),
        lambda one: replace(one, ledger_id="another"),
        lambda one: replace(one, features=Features("raw", np.eye(3, dtype=np.float32))),
    ]
    for other in others:
        assert of(other(NEAREST)).samples == asked and of(other(NEAREST)).rows != of(NEAREST).rows
    assert of(VOTES).samples == of(replace(NEAREST, terms=replace(SAMPLED, sum_mode="clear"))).samples == ()


def test_a_vector_about_all_records_is_known_by_what_it_asks() -> None:
    first, second = of(SUMS), of(replace(SUMS, number=2))
    louder = of(replace(SUMS, terms=replace(SUMS.terms, parameters={**SUMS.terms.parameters, "sigma": 9.0})))
    assert len(first.subjects) == len(first.rows) == 1
    assert first.subjects != second.subjects and first.rows != second.rows
    assert first.subjects == louder.subjects and first.rows != louder.rows


def test_every_key_has_32_bytes_and_kinds_share_none() -> None:
    all_rows = [row for question in (VOTES, NEAR, NEAREST, SUMS) for row in of(question).rows]
    assert len(set(all_rows)) == len(all_rows) and {len(row) for row in all_rows} == {32}
