"""Curves of fits: written for TensorBoard where that was asked for, and nowhere else."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collegium.coordinator.students import fit_student
from collegium.data import Examples
from collegium.data.task import NumberColumn, TableInputs, Task
from collegium.errors import ConfigurationError, StorageError
from collegium.models.training_curves import EVERY_STEPS, curve, recording
from collegium.parties.teachers.networks import LinearTeacher

TASK = Task(
    classes=("low", "high"),
    inputs=TableInputs(columns=tuple(NumberColumn(name=name, low=0, high=1) for name in "ab")),
)


def examples() -> Examples:
    x = np.random.default_rng(3).random((60, math.prod(TASK.inputs.shape))).astype(np.float32)
    return Examples(x, (x[:, 0] > 0.5).astype(np.int64))


def fit(method: str, steps: int = 40) -> None:
    known = examples()
    fit_student(method, known.x, np.arange(40), known.labels()[:40], TASK, seed=1, options={"steps": steps})


def written(folder: Path) -> dict[str, Any]:
    """Each curve's values by its tag, as TensorBoard itself reads them."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="no TensorBoard here")
    found = {}
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        events = reader.EventAccumulator(str(place)).Reload()
        found[place.name] = {
            tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]
        }
    return found


@pytest.mark.parametrize(
    ("method", "tags"), [("supervised", {"loss"}), ("consistency", {"loss", "accuracy", "agreement"})]
)
def test_a_students_fit_is_drawn_step_by_step(method: str, tags: set[str], tmp_path: Path) -> None:
    with recording(tmp_path):
        fit(method)
    (curve,) = written(tmp_path).values()
    assert curve.keys() == tags
    steps, losses = zip(*curve["loss"], strict=True)
    assert list(steps) == [1, *range(EVERY_STEPS, 41, EVERY_STEPS)] and losses[-1] < losses[0]


def test_each_teacher_has_a_curve_of_its_own_and_a_second_process_overwrites_none(tmp_path: Path) -> None:
    for names in (["teacher-001", "teacher-002"], ["teacher-001", "teacher-002", "teacher-003", "teacher-004"]):
        with recording(tmp_path):
            for seed in (1, 2):
                LinearTeacher(TASK, steps=20).fit(examples(), seed=seed, device="cpu")
        assert list(written(tmp_path)) == names
    assert set(written(tmp_path)["teacher-004"]) == {"loss", "accuracy"}


def test_nothing_is_written_where_nobody_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with recording(None):
        fit("supervised", steps=1)
        curve("x")(1, loss=0.5, accuracy=lambda: pytest.fail("a value that nobody reads was computed"))
    assert list(tmp_path.iterdir()) == []


def test_without_tensorboard_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'collegium\[tensorboard\]'"), recording(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="name another folder for --tensorboard"), recording(tmp_path / "file" / "x"):
        pass
