"""`check_student` passes Collegium's student methods and names the promise that a planted bug breaks."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from collegium.coordinator.students import METHODS, LearningProblem, register
from collegium.data.task import Task
from collegium.models.students import STUDENT_METHOD
from collegium.settings import Frozen
from collegium_conformance import check_student

FEW: dict[str, dict[str, Any]] = {
    "supervised": {"steps": 5},
    "random-forest": {"trees": 5},
    "consistency": {"steps": 5},
}


@pytest.mark.parametrize("method", FEW)
def test_collegiums_students_keep_their_promises(method: str) -> None:
    check_student(method, options=FEW[method])


@dataclass(frozen=True, eq=False)
class Centroids:
    """Predicts the class of the nearest mean."""

    centres: NDArray[np.float64]
    task: Task
    bug: str = ""

    def probabilities(self, x: NDArray[Any]) -> NDArray[np.float64]:
        flat = x.reshape(len(x), -1).astype(np.float64)
        distance = np.stack([((flat - centre) ** 2).sum(axis=1) for centre in self.centres], axis=1)
        weights = np.exp(distance.min(axis=1, keepdims=True) - distance)
        total = 2.0 if self.bug == "halved" else 1.0
        shares: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True) / total
        return shares

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        labels = np.asarray(self.probabilities(x).argmax(axis=1), dtype=np.int64)
        return labels + 1 if self.bug == "outside" else labels

    def save(self, path: Path) -> None:
        if self.bug == "pickle":
            path.write_bytes(pickle.dumps(self.centres))
            return
        metadata = {STUDENT_METHOD: "planted", "task": json.dumps(self.task.model_dump(mode="json"))}
        if self.bug == "unnamed":
            del metadata[STUDENT_METHOD]
        save_file({"centres": self.centres}, path, metadata)


class Planted(Frozen):
    """The nearest mean, with one bug by name."""

    name: ClassVar[str] = "planted"
    bug: str = ""

    def fit(self, problem: LearningProblem) -> Centroids:
        x = problem.pool.reshape(len(problem.pool), -1).astype(np.float64)[problem.indices]
        centres = np.stack([x[problem.labels == number].mean(axis=0) for number in range(3)])
        if self.bug == "unseeded":
            centres = centres + np.random.normal(0.0, 0.5, centres.shape)
        if self.bug == "scales":
            problem.pool[:] = problem.pool * 0.5
        return Centroids(centres, problem.task, self.bug)

    @classmethod
    def read(cls, path: Path, *, device: str) -> Centroids:
        with safe_open(path, framework="numpy") as file:
            return Centroids(file.get_tensor("centres"), Task.model_validate_json(file.metadata()["task"]))


@pytest.fixture(autouse=True)
def planted() -> Iterator[None]:
    register(Planted)
    yield
    METHODS.pop("planted")


def test_a_method_with_a_file_of_its_own_passes() -> None:
    check_student("planted")


@pytest.mark.parametrize(
    ("bug", "named"),
    [
        ("pickle", "no safetensors file"),
        ("unnamed", "what it saved cannot be read"),
        ("outside", "outside the task's classes"),
        ("halved", "add up to 1"),
        ("unseeded", "another random state"),
        ("scales", "changes the pool"),
    ],
)
def test_a_planted_bug_is_caught_by_name(bug: str, named: str) -> None:
    with pytest.raises(AssertionError, match=named):
        check_student("planted", options={"bug": bug})


def test_a_method_that_nobody_registered_is_named() -> None:
    with pytest.raises(AssertionError, match="no student method is registered"):
        check_student("no-such-method")
