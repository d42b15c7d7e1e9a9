"""The teacher of a split with no records or with one class only: it always votes for the same class.

Without records that class is number 0, a public default, so that the party still casts as many votes
as it has teachers and an empty split cannot be told from one that learned to say 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.data.task import Task
from collegium.errors import StorageError
from collegium.parties.teachers.arrays import load_arrays, save_arrays

if TYPE_CHECKING:
    from collegium.data import Examples


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
        label = load_arrays(path, "constant", {"label": np.int64})["label"]
        if label.shape != (1,) or not 0 <= label[0] < self._classes:
            raise StorageError(f"{path.name} holds no class of this task")
        self._label = int(label[0])
