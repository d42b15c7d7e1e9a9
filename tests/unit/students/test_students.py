"""Students learn from few labels on public inputs, are the same for the same seed, and travel as safetensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collegium.coordinator.students import METHODS, chosen_method, fit_student, load_student
from collegium.protocol.errors import CollegiumError, ConfigurationError, DataError, StorageError
from collegium.protocol.inputs import DataSource, Examples, default_task, load

TASK = default_task("digits")
FEW = {"supervised": {"steps": 60}, "consistency": {"steps": 60}}
"""Enough steps to be far above chance on 100 labels."""


@pytest.fixture(scope="module")
def digits() -> Examples:
    return load(DataSource(source="digits", split="all", shuffle_seed=0, stop=500), TASK, data_root=None)


def learn(digits: Examples, method: str, seed: int = 0, **options: float):  # type: ignore[no-untyped-def]
    return fit_student(
        method,
        digits.x[:300],
        np.arange(100),
        digits.labels()[:100],
        TASK,
        seed=seed,
        options=FEW[method] | options,
    )


def test_both_methods_are_known() -> None:
    assert set(METHODS) >= set(FEW)


@pytest.mark.parametrize("method", sorted(FEW))
def test_a_student_learns_more_than_chance(method: str, digits: Examples) -> None:
    """Chance is 10 %: of 200 unseen digits, 70 right by chance has probability below 1e-15."""
    predicted = learn(digits, method).predict(digits.x[300:])
    assert (predicted == digits.labels()[300:]).sum() > 70


@pytest.mark.parametrize("method", sorted(FEW))
def test_the_seed_alone_decides(method: str, digits: Examples) -> None:
    first, again, other = (learn(digits, method, seed, steps=5).probabilities(digits.x[:20]) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_published_student_predicts_as_the_fitted_one(digits: Examples, tmp_path: Path) -> None:
    student = learn(digits, "supervised", steps=5)
    student.save(tmp_path / "student.safetensors")
    published = load_student(tmp_path / "student.safetensors", device="cpu")
    assert published.task == TASK
    np.testing.assert_allclose(published.probabilities(digits.x[:20]), student.probabilities(digits.x[:20]), atol=1e-6)


def test_probabilities_are_a_distribution(digits: Examples) -> None:
    rows = learn(digits, "supervised", steps=2).probabilities(digits.x[:7])
    assert rows.shape == (7, 10) and (rows >= 0).all()
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, atol=1e-6)


def test_progress_ends_with_all_steps(digits: Examples) -> None:
    seen: list[tuple[int, int]] = []
    fit_student(
        "supervised",
        digits.x[:50],
        np.arange(20),
        digits.labels()[:20],
        TASK,
        seed=0,
        options={"steps": 4},
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (4, 4) and seen == sorted(seen)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([], "no query got a label"),
        ([3, 3, 3], "two classes"),
        ([0, 10, 1], "outside the task's 10 classes"),
    ],
)
def test_labels_that_teach_nothing_are_refused(labels: list[int], words: str, digits: Examples) -> None:
    with pytest.raises(DataError, match=words):
        fit_student("supervised", digits.x, np.arange(len(labels)), labels, TASK, seed=0)


def test_labels_beyond_the_pool_are_refused(digits: Examples) -> None:
    with pytest.raises(DataError, match="pool of 500 inputs"):
        fit_student("supervised", digits.x, [0, 500], [0, 1], TASK, seed=0)


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("telepathy", {}, "consistency, contrastive, supervised"),
        ("supervised", {"stpes": 3}, "student.options.stpes"),
        ("consistency", {"steps": 0}, "student.options.steps"),
        ("supervised", {"steps": "many"}, "student.options.steps"),
    ],
)
def test_unknown_methods_and_options_are_named(
    method: str, options: dict[str, float | int | str | bool], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        chosen_method(method, options)


@pytest.mark.parametrize("content", [None, b"", b"no tensors", b"\x08\x00\x00\x00\x00\x00\x00\x00{}      "])
def test_what_is_no_student_is_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "student.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CollegiumError) as refused:
        load_student(path)
    assert isinstance(refused.value, DataError | StorageError)
