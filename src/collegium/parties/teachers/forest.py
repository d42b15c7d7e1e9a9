"""Random forests (scikit-learn) for tables, kept as plain arrays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.data.task import Task
from collegium.errors import ConfigurationError, StorageError
from collegium.models.forests import FOREST_DTYPES, Forest, flat
from collegium.parties.teachers.arrays import load_arrays, save_arrays

if TYPE_CHECKING:
    from collegium.data import Examples

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
        self._classes = len(task.classes)
        self._features = int(np.prod(task.inputs.shape))
        self._forest: Forest | None = None

    def fit(self, examples: Examples, *, seed: int, device: str) -> None:
        from sklearn.ensemble import RandomForestClassifier

        forest = RandomForestClassifier(
            n_estimators=self._trees, max_depth=self._max_depth or None, random_state=seed % 2**32, n_jobs=1
        )
        forest.fit(flat(examples.x), examples.y)
        self._forest = Forest.of_trees(forest, self._classes)

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        assert self._forest is not None
        return self._forest.predict(x)

    def save(self, path: Path) -> None:
        assert self._forest is not None
        save_arrays(path, "random-forest", self._forest.arrays())

    def load(self, path: Path, *, device: str) -> None:
        forest = Forest.checked(
            load_arrays(path, "random-forest", FOREST_DTYPES), self._features, self._classes, path.name
        )
        if len(forest.roots) != self._trees:
            raise StorageError(f"{path.name} holds a forest for other settings")
        self._forest = forest
