"""A random forest for tables, as in PATE (Papernot et al. 2017, Appendix C): fitted to the issued labels alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from collegium.coordinator.students import LearningProblem, register
from collegium.data.task import Task
from collegium.models.forests import Forest, flat, load_forest, save_forest
from collegium.settings import Frozen


@dataclass(frozen=True, eq=False)
class ForestStudent:
    """Trees that label inputs of their task."""

    forest: Forest
    task: Task

    def probabilities(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Mean class frequencies of the leaves reached, shape ``[n, classes]``."""
        return self.forest.probabilities(x)

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Class numbers, shape ``[n]``."""
        return self.forest.predict(x)

    def save(self, path: Path) -> None:
        """Write the trees' arrays as safetensors, with the task."""
        save_forest(path, self.forest, self.task)


def read_student(path: Path, *, device: str) -> ForestStudent:
    """What `ForestStudent.save` wrote; forests stay on the CPU. Raises StorageError or DataError."""
    return ForestStudent(*load_forest(path))


@register
class RandomForest(Frozen):
    """scikit-learn's random forest with its defaults; inputs are flattened, the pool is not looked at."""

    name: ClassVar[str] = "random-forest"

    trees: int = Field(default=100, ge=1, le=10_000)
    max_depth: int = Field(default=0, ge=0, le=1000)
    """Levels of a tree; 0 lets them grow."""

    def fit(self, problem: LearningProblem) -> ForestStudent:
        from sklearn.ensemble import RandomForestClassifier

        trees = RandomForestClassifier(
            n_estimators=self.trees, max_depth=self.max_depth or None, random_state=problem.seed % 2**32, n_jobs=1
        )
        trees.fit(flat(problem.pool[problem.indices]), problem.labels)
        problem.progress(1, 1)
        return ForestStudent(Forest.of_trees(trees, len(problem.task.classes)), problem.task)
