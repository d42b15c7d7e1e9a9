"""Each kind of teacher: it learns, it is kept without pickle, and it never crashes on a poor split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from collegium.data import Examples
from collegium.data.task import NumberColumn, TableInputs, Task
from collegium.data.teacher_kinds import BUILT_IN
from collegium.errors import ConfigurationError, StorageError
from collegium.parties.teachers.array_teachers import RandomForestTeacher
from collegium.parties.teachers.base import Teacher, build_teacher
from collegium.parties.teachers.kinds import find_kind

QUICK: dict[str, dict[str, Any]] = {
    "constant": {},
    "linear": {"steps": 100},
    "mlp": {"steps": 150},
    "paper-cnn": {"steps": 120, "width": 16},
    "paper-cnn-svhn": {"steps": 150, "width": 16, "hidden": 64, "batch": 32, "learning_rate": 0.003},
    "private-knn-cnn": {"steps": 100, "width": 8, "hidden": 32, "batch": 32, "learning_rate": 0.003},
    "small-cnn": {"steps": 80},
    "random-forest": {"trees": 20},
}


OF_THE_PAPERS = {"paper-cnn", "paper-cnn-svhn", "private-knn-cnn"}
"""Kinds of the package collegium-reproduction."""


@pytest.fixture
def table_task() -> Task:
    columns = tuple(NumberColumn(name=name, low=0, high=1) for name in "abc")
    return Task(classes=("no", "yes"), inputs=TableInputs(columns=columns))


@pytest.fixture
def table() -> Examples:
    x = np.random.default_rng(3).random((400, 6), dtype=np.float32)
    return Examples(x, (x[:, 0] + x[:, 2] > 1).astype(np.int64))


def quick(kind: str, task: Task) -> Teacher:
    return build_teacher(find_kind(kind, allowed_imports=(kind,)), task, QUICK[kind])


def test_every_built_in_kind_is_tried_here() -> None:
    assert QUICK.keys() == BUILT_IN.keys() | OF_THE_PAPERS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "at_least"),
    [
        ("paper-cnn", 0.5),  # four seeds: .70 to .88
        ("paper-cnn-svhn", 0.5),
        ("private-knn-cnn", 0.5),
        ("small-cnn", 0.8),
        ("random-forest", 0.75),
    ],
)
def test_a_teacher_of_images_learns(kind: str, at_least: float, digits: Examples, task: Task) -> None:
    teacher = quick(kind, task)
    teacher.fit(digits.take(np.arange(400)), seed=1, device="cpu")
    assert digits.y is not None
    assert (teacher.predict(digits.x[1000:]) == digits.y[1000:]).mean() > at_least


@pytest.mark.parametrize("kind", ["linear", "mlp", "random-forest"])
def test_a_teacher_of_tables_learns(kind: str, table: Examples, table_task: Task) -> None:
    teacher = quick(kind, table_task)
    teacher.fit(table.take(np.arange(300)), seed=1, device="cpu")
    assert table.y is not None
    assert (teacher.predict(table.x[300:]) == table.y[300:]).mean() > 0.85


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * kind.startswith("paper-cnn")) for kind in sorted(QUICK)]
)
def test_a_kept_teacher_predicts_as_before(kind: str, digits: Examples, task: Task, tmp_path: Path) -> None:
    teacher, again = quick(kind, task), quick(kind, task)
    teacher.fit(digits.take(np.arange(60)), seed=1, device="cpu")
    path = tmp_path / "teacher.safetensors"
    teacher.save(path)
    assert path.read_bytes()[8:9] == b"{"  # a safetensors header, no pickle
    again.load(path, device="cpu")
    labels = again.predict(digits.x[:200])
    assert labels.dtype == np.int64
    assert np.array_equal(labels, teacher.predict(digits.x[:200]))
    assert again.predict(digits.x[:0]).shape == (0,)


@pytest.mark.parametrize("kind", sorted(QUICK))
def test_a_file_of_another_kind_or_no_file_is_a_storage_error(kind: str, task: Task, tmp_path: Path) -> None:
    path = tmp_path / "teacher.safetensors"
    for content in (b"", b"not a file of arrays", None):
        if content is None:
            save_file({"x": np.zeros(3, np.float32)}, path)
        else:
            path.write_bytes(content)
        with pytest.raises(StorageError):
            quick(kind, task).load(path, device="cpu")
    with pytest.raises(StorageError):
        quick(kind, task).load(tmp_path / "absent", device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["linear", "small-cnn", pytest.param("paper-cnn", marks=pytest.mark.slow), "random-forest"]
)
def test_two_records_are_enough_to_fit(kind: str, digits: Examples, task: Task) -> None:
    teacher = quick(kind, task)
    teacher.fit(digits.take(np.array([3, 4])), seed=0, device="cpu")
    assert set(teacher.predict(digits.x[:50])) <= {3, 4}


def test_the_constant_teacher_of_an_empty_split_votes_for_a_public_default(digits: Examples, task: Task) -> None:
    empty, threes = quick("constant", task), quick("constant", task)
    empty.fit(digits.take(np.arange(0)), seed=0, device="cpu")
    threes.fit(digits.take(np.array([3, 13])), seed=0, device="cpu")
    assert set(empty.predict(digits.x[:5])) == {0}
    assert set(threes.predict(digits.x[:5])) == {3}


def test_our_walk_through_the_trees_is_scikit_learns(digits: Examples, task: Task) -> None:
    from sklearn.ensemble import RandomForestClassifier

    own = digits.take(np.arange(250))
    teacher = RandomForestTeacher(task, trees=30, max_depth=6)
    teacher.fit(own, seed=5, device="cpu")
    theirs = RandomForestClassifier(30, max_depth=6, random_state=5).fit(own.x.reshape(250, -1), own.y)
    flat = digits.x[250:].reshape(-1, 64)
    assert np.array_equal(teacher.predict(digits.x[250:]), theirs.predict(flat))


def test_a_forest_whose_nodes_run_in_circles_is_not_walked(task: Task, digits: Examples, tmp_path: Path) -> None:
    path = tmp_path / "forest.safetensors"
    teacher = RandomForestTeacher(task, trees=3)
    teacher.fit(digits.take(np.arange(50)), seed=0, device="cpu")
    teacher.save(path)
    nodes = load_file(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    for name, value in (("children", 0), ("feature", 64), ("roots", 10**9)):
        broken = nodes | {name: np.full_like(nodes[name], value)}
        save_file(broken, path, metadata=metadata)
        with pytest.raises(StorageError, match="a damaged forest"):
            RandomForestTeacher(task, trees=3).load(path, device="cpu")
    save_file(nodes, path, metadata=metadata)
    with pytest.raises(StorageError, match="other settings"):
        RandomForestTeacher(task, trees=4).load(path, device="cpu")


def test_fitting_leaves_the_process_wide_generator_alone(task: Task, digits: Examples) -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    quick("linear", task).fit(digits.take(np.arange(30)), seed=9, device="cpu")
    assert torch.equal(torch.rand(3), expected)


def test_tables_cannot_be_taught_by_image_networks(table_task: Task) -> None:
    with pytest.raises(ConfigurationError, match="needs images"):
        build_teacher(find_kind("small-cnn"), table_task, {})
