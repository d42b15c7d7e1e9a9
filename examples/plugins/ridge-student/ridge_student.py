"""A student of one file: ridge regression on the classes of the issued labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from collegium.coordinator.students import LearningProblem, register
from collegium.data.task import ImageInputs, Task
from collegium.errors import StorageError
from collegium.models.students import STUDENT_METHOD
from collegium.settings import Frozen


@dataclass(frozen=True, eq=False)
class RidgeStudent:
    """Linear scores of the inputs.

    Parameters
    ----------
    weights : float64 array
        Shape ``[values of an input + 1, classes]``; the last row is the constant.
    task : Task
        What it was fitted for.
    """

    weights: NDArray[np.float64]
    task: Task

    def probabilities(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """The soft-max of ten times the scores, shape ``[n, classes]``."""
        scores = 10.0 * _rows(x, self.task) @ self.weights
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        return np.asarray(self.probabilities(x).argmax(axis=1), dtype=np.int64)

    def save(self, path: Path) -> None:
        metadata = {STUDENT_METHOD: Ridge.name, "task": self.task.model_dump_json()}
        try:
            save_file({"weights": self.weights}, path, metadata)
        except (OSError, SafetensorError) as error:
            raise StorageError(f"cannot write the student {path}: {error}") from error


@register
class Ridge(Frozen):
    """Least squares on indicators of the classes (Hastie, Tibshirani, Friedman 2009, section 4.2)."""

    name: ClassVar[str] = "ridge"

    penalty: float = Field(default=1e-2, gt=0)
    """Weight of the squared coefficients, per label."""

    def fit(self, problem: LearningProblem) -> RidgeStudent:
        rows = _rows(problem.pool[problem.indices], problem.task)
        wanted = np.eye(len(problem.task.classes))[problem.labels]
        gram = rows.T @ rows + self.penalty * len(rows) * np.eye(rows.shape[1])
        return RidgeStudent(np.linalg.solve(gram, rows.T @ wanted), problem.task)

    @classmethod
    def read(cls, path: Path, *, device: str) -> RidgeStudent:
        try:
            with safe_open(path, framework="numpy") as file:
                weights, task = file.get_tensor("weights"), Task.model_validate_json((file.metadata() or {})["task"])
        except (OSError, SafetensorError, KeyError, ValidationError) as error:
            raise StorageError(f"{path.name} cannot be read as a ridge student: {error}") from error
        if weights.shape != (int(np.prod(task.inputs.shape)) + 1, len(task.classes)):
            raise StorageError(f"{path.name} holds weights for another task")
        return RidgeStudent(weights, task)


def _rows(x: NDArray[Any], task: Task) -> NDArray[np.float64]:
    """Inputs ``[n, …]`` as rows in [0, 1] with a constant, shape ``[n, d + 1]``."""
    rows = x.reshape(len(x), -1) / (255.0 if isinstance(task.inputs, ImageInputs) else 1.0)
    return np.hstack([rows, np.ones((len(rows), 1))])
