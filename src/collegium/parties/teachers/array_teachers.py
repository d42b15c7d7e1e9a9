"""Teachers that are kept as plain arrays: random forests for tables, and the teacher that always votes for one class.

Files are safetensors: nothing in them is executed when they are read.
"""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.data import Examples
from collegium.data.task import Task
from collegium.errors import ConfigurationError, StorageError
from collegium.models.arrays import load_arrays, save_arrays
from collegium.models.forests import Forest, read_student


class ConstantTeacher:
    """Votes for the most frequent class of its split; for class 0 if the split is empty."""

    version: ClassVar[str] = "1"

    def __init__(self, task: Task) -> None:
        self._classes = len(task.classes)
        self._label = 0

    def fit(self, examples: Examples, *, seed: int, device: str) -> None:
        assert examples.y is not None
        counts = np.bincount(examples.y, minlength=self._classes)
        self._label = int(counts.argmax())

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        return np.full(len(x), self._label, dtype=np.int64)

    def save(self, path: Path) -> None:
        save_arrays(path, "constant", {"label": np.array([self._label], dtype=np.int64)})

    def load(self, path: Path, *, device: str) -> None:
        label = load_arrays(path, "constant", {"label": np.int64})[0]["label"]
        if label.shape != (1,) or not 0 <= label[0] < self._classes:
            raise StorageError(f"{path.name} holds no class of this task")
        self._label = int(label[0])


_MAX_TREES = 10_000


class RandomForestTeacher:
    """``trees`` trees (100) of at most ``max_depth`` levels (0: as deep as they grow), on flattened inputs."""

    version: ClassVar[str] = "1"
    uses_device: ClassVar[bool] = False

    def __init__(self, task: Task, *, trees: int = 100, max_depth: int = 0) -> None:
        if type(trees) is not int or type(max_depth) is not int:
            raise ConfigurationError("random-forest: trees and max_depth are whole numbers")
        if not 1 <= trees <= _MAX_TREES or not 0 <= max_depth <= 1000:
            raise ConfigurationError(f"random-forest: trees from 1 to {_MAX_TREES}, max_depth from 0 to 1,000")
        self._trees = trees
        self._max_depth = max_depth
        self._task = task
        self._forest: Forest | None = None

    def fit(self, examples: Examples, *, seed: int, device: str) -> None:
        settings = {"trees": self._trees, "max_depth": self._max_depth, "seed": seed}
        self._forest = Forest.grown(examples.x, examples.labels(), self._task, **settings)

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        assert self._forest is not None
        return self._forest.predict(x)

    def save(self, path: Path) -> None:
        assert self._forest is not None
        self._forest.save(path)

    def load(self, path: Path, *, device: str) -> None:
        forest = read_student(path, device=device)
        if (forest.task, len(forest.roots)) != (self._task, self._trees):
            raise StorageError(f"{path.name} holds a forest for other settings")
        self._forest = forest
