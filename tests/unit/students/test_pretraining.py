"""What a network learns from the pool without labels, made once and found again by its content."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from collegium.coordinator.students import LearningProblem, fit_student, pretraining
from collegium.coordinator.students.pretraining import Pretraining, contrast_loss, pretrained
from collegium.data import Examples, default_task
from collegium.data.task import NumberColumn, TableInputs, Task
from collegium.errors import ConfigurationError, StorageError

TASK = default_task("digits")
FEW = Pretraining(steps=40, batch=64)
NONE = np.empty(0, dtype=np.int64)


@pytest.fixture(scope="module")
def digits(digits: Examples) -> Examples:
    return digits.take(np.arange(300))


def problem(
    digits: Examples, cache: Path | None = None, seed: int = 0, steps: list[int] | None = None
) -> LearningProblem:
    told = [] if steps is None else steps
    return LearningProblem(TASK, digits.x, NONE, NONE, seed, "cpu", lambda done, total: told.append(done), cache)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_contrast_is_the_papers_and_falls_when_views_agree() -> None:
    views = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    unit = views / views.norm(dim=1, keepdim=True)
    alike = torch.exp(unit @ unit.T / 0.5)
    expected = 0.0
    for row in range(8):
        partner = (row + 4) % 8
        others = sum(alike[row, k] for k in range(8) if k != row)
        expected -= torch.log(alike[row, partner] / others) / 8
    assert contrast_loss(views, 0.5).item() == pytest.approx(float(expected), rel=1e-5)
    agreeing = torch.cat([views[:4], views[:4]])
    assert contrast_loss(agreeing, 0.5) < contrast_loss(views, 0.5)


@pytest.mark.slow
def test_features_without_a_label_bring_equal_digits_together(digits: Examples) -> None:
    """Of the nearest neighbours by chance 10 % are of the same class; 150 of 300 have a probability below 1e-60."""
    features = pretrained(problem(digits), FEW).features(digits.x)
    lengths = np.linalg.norm(features, axis=1)  # of means of unit vectors
    assert features.dtype == np.float32 and (lengths > 0.5).all() and (lengths < 1 + 1e-5).all()
    alike = features @ features.T
    np.fill_diagonal(alike, -1.0)
    assert (digits.labels()[alike.argmax(axis=1)] == digits.labels()).sum() > 150


@pytest.mark.slow
def test_what_was_made_once_is_found_again_and_is_the_same(digits: Examples, tmp_path: Path) -> None:
    steps: list[int] = []
    first = pretrained(problem(digits, tmp_path, steps=steps), FEW)
    assert steps == list(range(1, 41))
    again = pretrained(problem(digits, tmp_path, steps=steps), FEW)
    assert steps[40:] == [40], "told as done, not repeated"
    afresh = pretrained(problem(digits), FEW)
    for other in (again, afresh):
        np.testing.assert_array_equal(first.features(digits.x), other.features(digits.x))
    assert again.network is not first.network


@pytest.mark.parametrize("change", ["pool", "seed", "settings", "procedure"])
def test_another_origin_is_another_network(
    change: str, digits: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = Pretraining(steps=2, batch=8)
    pretrained(problem(digits, tmp_path), quick)
    if change == "procedure":
        monkeypatch.setattr(pretraining, "_PROCEDURE", "another")
    pool = digits.take(np.arange(299)) if change == "pool" else digits
    settings = Pretraining(steps=3, batch=8) if change == "settings" else quick
    pretrained(problem(pool, tmp_path, seed=1 if change == "seed" else 0), settings)
    assert len(files(tmp_path)) == 2


def test_a_damaged_file_is_made_again(digits: Examples, tmp_path: Path) -> None:
    quick = Pretraining(steps=2, batch=8)
    first = pretrained(problem(digits, tmp_path), quick).features(digits.x)
    [name] = files(tmp_path)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[:1000])
    np.testing.assert_array_equal(pretrained(problem(digits, tmp_path), quick).features(digits.x), first)
    assert (tmp_path / name).read_bytes() == whole


def test_a_student_shares_the_pretraining_of_its_settings(digits: Examples, tmp_path: Path) -> None:
    options = {"contrast_steps": 2, "contrast_batch": 8, "learn_steps": 2}
    pretrained(problem(digits, tmp_path), Pretraining(steps=2, batch=8))
    before = files(tmp_path)
    fit_student(
        "contrastive", digits.x, [0, 1], [0, 1], TASK, seed=0, device="cpu", options=options, cache=tmp_path
    )  # fmt: skip
    assert files(tmp_path) == before


def test_tables_a_single_image_and_a_folder_that_cannot_be_written_are_refused(
    digits: Examples, tmp_path: Path
) -> None:
    table = Task(classes=("no", "yes"), inputs=TableInputs(columns=(NumberColumn(name="age", low=0, high=9),)))
    rows = np.zeros((20, 2), dtype=np.float32)
    with pytest.raises(ConfigurationError, match="for images"):
        pretrained(LearningProblem(table, rows, NONE, NONE, 0, "cpu", lambda done, total: None), FEW)
    with pytest.raises(ConfigurationError, match="at least two images"):
        pretrained(problem(digits.take(np.arange(1))), FEW)
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(StorageError, match="cannot keep"):
        pretrained(problem(digits, tmp_path / "taken"), Pretraining(steps=1, batch=8))
