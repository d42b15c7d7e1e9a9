"""A teacher of one file: it votes for the class whose mean record is nearest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data import Examples
from collegium.data.task import Task
from collegium.errors import StorageError
from collegium.models.arrays import load_arrays, save_arrays


class NearestCentroid:
    """The class of the nearest mean, in squared Euclidean distance.

    Parameters
    ----------
    task : Task
        What the consortium agreed to learn.
    """

    version = "1"

    def __init__(self, task: Task) -> None:
        self._shape = (len(task.classes), int(np.prod(task.inputs.shape)))
        self._centres = np.zeros(self._shape)

    def fit(self, examples: Examples, *, seed: int, device: str) -> None:
        """The mean of each class; a class without records is infinitely far away."""
        x, y = _rows(examples.x), examples.labels()
        self._centres = np.full(self._shape, np.inf)
        for number in np.unique(y):
            self._centres[number] = x[y == number].mean(axis=0)

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        distances = np.stack([((_rows(x) - centre) ** 2).sum(axis=1) for centre in self._centres], axis=1)
        return np.asarray(distances.argmin(axis=1), dtype=np.int64)

    def save(self, path: Path) -> None:
        save_arrays(path, "nearest-centroid", {"centres": self._centres})

    def load(self, path: Path, *, device: str) -> None:
        centres = load_arrays(path, "nearest-centroid", {"centres": np.float64})[0]["centres"]
        if centres.shape != self._shape:
            raise StorageError(f"{path.name} holds a teacher of another task")
        self._centres = centres


def _rows(x: NDArray[Any]) -> NDArray[np.float64]:
    """Inputs ``[n, …]`` as rows ``[n, d]``."""
    return x.reshape(len(x), -1).astype(np.float64)
