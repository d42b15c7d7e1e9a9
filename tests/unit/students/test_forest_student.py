"""A student made of trees is scikit-learn's, and its file is arrays that are checked before they are walked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from sklearn.ensemble import RandomForestClassifier

from collegium.coordinator.students import fit_student
from collegium.data import DataSource, Examples, default_task, load
from collegium.errors import StorageError
from collegium.models.forests import Forest
from collegium.models.students import Student, read_student

TASK = default_task("iris")


@pytest.fixture(scope="module")
def iris() -> Examples:
    return load(DataSource(source="iris", split="all", shuffle_seed=0), TASK, data_root=None)


def fit(iris: Examples, labelled: np.ndarray, **options: Any) -> Student:
    return fit_student(
        "random-forest", iris.x, labelled, iris.labels()[labelled], TASK, seed=3, device="cpu", options=options
    )


def test_the_trees_are_scikit_learns_with_100_of_them_by_default(iris: Examples) -> None:
    labelled = np.arange(60)
    theirs = RandomForestClassifier(random_state=3).fit(iris.x[:60], iris.labels()[:60])
    assert len(theirs.estimators_) == 100
    np.testing.assert_allclose(fit(iris, labelled).probabilities(iris.x), theirs.predict_proba(iris.x), atol=1e-12)


def test_a_class_without_labels_has_its_place_and_no_share(iris: Examples) -> None:
    labelled = np.flatnonzero(iris.labels() != 1)
    shares = fit(iris, labelled, trees=5).probabilities(iris.x)
    assert shares.shape == (150, 3) and (shares[:, 1] == 0).all()


@pytest.mark.parametrize(
    ("name", "value"), [("children", 0), ("children", 10**9), ("feature", 99), ("roots", -1), ("share", np.nan)]
)
def test_a_file_whose_trees_would_be_walked_astray_is_refused(
    name: str, value: float, iris: Examples, tmp_path: Path
) -> None:
    path = tmp_path / "student.safetensors"
    fit(iris, np.arange(60), trees=3).save(path)
    nodes = load_file(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    save_file(nodes | {name: np.full_like(nodes[name], value)}, path, metadata)
    with pytest.raises(StorageError, match="a damaged forest"):
        read_student(path)
    save_file({other: array for other, array in nodes.items() if other != name}, path, metadata)
    with pytest.raises(StorageError, match="holds no collegium-forest"):
        read_student(path)


def test_equal_students_give_equal_files(iris: Examples, tmp_path: Path) -> None:
    for name in ("one", "two"):
        fit(iris, np.arange(60), trees=3).save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


class Counted(np.ndarray[Any, np.dtype[Any]]):
    """An array that counts how often it is looked into."""

    looks = 0

    def __getitem__(self, key: Any) -> Any:
        Counted.looks += 1
        return super().__getitem__(key)


def chain(length: int) -> Forest:
    """One tree: an input above 5 walks along ``length`` nodes, every other ends at once."""
    nodes = np.arange(length + 2)
    children = np.stack([np.full(length + 2, length + 1), nodes + 1], axis=1)
    children[length:] = nodes[length:, None]
    share = np.tile([1.0, 0.0, 0.0], (length + 2, 1))
    return Forest(TASK, nodes[:1], children, np.zeros_like(nodes), np.full(length + 2, 5.0), share)


def test_how_long_a_forest_is_walked_does_not_depend_on_the_inputs(iris: Examples) -> None:
    forest, steps = chain(50), []
    watched = replace(forest, children=forest.children.view(Counted))
    for first_value in (0.0, 9.0):
        rows = np.full((3, *iris.x.shape[1:]), first_value, dtype=iris.x.dtype)
        assert watched.depth == 50
        Counted.looks = 0
        watched.predict(rows)
        steps.append(Counted.looks)
    assert steps[0] == steps[1] > 50


def test_a_forest_that_would_be_walked_for_long_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "student.safetensors"
    chain(1000).save(path)
    assert read_student(path)
    chain(1001).save(path)
    with pytest.raises(StorageError, match="a tree deeper than 1000 nodes"):
        read_student(path)
