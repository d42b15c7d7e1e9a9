"""Distillation learns whole distributions, and runs nowhere but where somebody can give them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from collegium_reproduction.students.distillation import Distillation, tempered
from numpy.typing import NDArray

from collegium.coordinator.students import fit_student
from collegium.data.task import NumberColumn, TableInputs, Task
from collegium.errors import ConfigurationError, DataError
from collegium.models.students import Student

TASK = Task(classes=("no", "yes"), inputs=TableInputs(columns=(NumberColumn(name="age", low=0, high=9),)))


def problem() -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float64]]:
    """Inputs whose class is certain at both ends and open in the middle; plurality labels hide the middle."""
    age = np.linspace(0, 1, 101)
    pool = np.stack([age, np.zeros(101)], axis=1).astype(np.float32)
    return pool, (age > 0.3).astype(np.int64), np.stack([1 - age, age], axis=1)


def distilled(targets: NDArray[np.float64], temperature: float = 1.0) -> Student:
    method = Distillation(steps=300, temperature=temperature)
    return method.fit(problem()[0], np.arange(101), targets, TASK, seed=0, device="cpu")


def test_no_configuration_may_name_it() -> None:
    pool, labels, _ = problem()
    with pytest.raises(ConfigurationError, match="unknown student method 'distillation'"):
        fit_student("distillation", pool, np.arange(101), labels, TASK, seed=0, device="cpu")


@pytest.mark.slow
def test_the_student_learns_the_probabilities_and_not_only_the_larger_one() -> None:
    pool, labels, targets = problem()
    plain = fit_student(
        "supervised", pool, np.arange(101), labels, TASK, seed=0, device="cpu", options={"steps": 300}
    )  # fmt: skip
    apart = [np.abs(student.probabilities(pool) - targets).mean() for student in (distilled(targets), plain)]
    assert apart[0] < 0.05 < 0.15 < apart[1]


@pytest.mark.slow
def test_a_temperature_levels_the_targets_and_is_undone_by_the_student() -> None:
    pool, _, targets = problem()
    assert np.abs(distilled(targets, temperature=5.0).probabilities(pool) - targets).mean() < 0.08


def test_temperature_is_the_papers() -> None:
    logits = np.random.default_rng(0).normal(size=(4, 6))
    plain, hot = (np.exp(logits / t) / np.exp(logits / t).sum(axis=1, keepdims=True) for t in (1.0, 5.0))
    np.testing.assert_allclose(tempered(plain, 5.0), hot)
    np.testing.assert_allclose(tempered(plain, 1.0), plain)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda t: t[:-1], "101 rows of 2"),
        (lambda t: t * 2, "sum to 1"),
        (lambda t: t - 0.5, "101 rows of 2 probabilities"),
        (lambda t: t * np.nan, "101 rows of 2 probabilities"),
    ],
)
def test_soft_targets_that_are_no_distributions_are_refused(spoil: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        distilled(spoil(problem()[2]))
