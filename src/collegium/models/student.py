"""What a published student is."""

from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from collegium.data.task import Task


class Student(Protocol):
    """What is published: it labels inputs of its task, and its file holds arrays alone."""

    @property
    def task(self) -> Task: ...

    def probabilities(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Class probabilities, shape ``[n, classes]``, of inputs ``[n, …]`` as the task says.

        Rows add up to 1 where an input has one class.
        """
        ...

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Label numbers of the task, shape ``[n]``."""
        ...

    def save(self, path: Path) -> None:
        """Write what `read_student` reads; StorageError if that fails."""
        ...
