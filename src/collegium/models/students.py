"""What a published student is, and its file: named arrays and a description of the task, so that it may travel.

Parties read the files that they are sent; no pickle is read, and no code is run but that of methods installed here.
"""

import importlib
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from collegium.data.task import Task
from collegium.errors import StorageError
from collegium.extras import load_plugin, optional_import
from collegium.models.devices import resolve_device
from collegium.models.forests import FOREST_FORMAT
from collegium.models.kernel_student import KERNEL_FORMAT

ENTRY_POINT_GROUP = "collegium.students"
"""Where another installed package names its methods."""

STUDENT_METHOD = "collegium-student-method"
"""The key in a file's metadata that names the method whose ``read`` understands the file."""


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


READERS: dict[str, Callable[..., Student]] = {}
"""How to read a student, by the method that its file names: ``read(path, device=…)``."""


def read_student(path: str | Path, *, device: str = "auto") -> Student:
    """The student in a file that a student's ``save`` wrote; see `published.load_student` for errors."""
    path = Path(path)
    try:
        with safe_open(path, framework="numpy") as file:
            kinds = file.metadata() or {}
    except (OSError, SafetensorError, ValueError) as error:
        raise StorageError(f"{path.name} cannot be read as a student: {error}") from error
    if STUDENT_METHOD in kinds:
        name = kinds[STUDENT_METHOD]
        if name not in READERS and name in entry_points(group=ENTRY_POINT_GROUP).names:
            method = load_plugin(entry_points(group=ENTRY_POINT_GROUP)[name], f"the student {name!r}")
            if hasattr(method, "read"):
                READERS[name] = method.read
        read = READERS.get(name)
        if read is None:
            raise StorageError(
                f"{path.name} holds a student of the method {name[:64]!r}: install the package that has it"
            )
    else:
        with optional_import("a student that is a network"):
            kind = (
                "forests"
                if FOREST_FORMAT in kinds
                else "kernel_student"
                if KERNEL_FORMAT in kinds
                else "whole_networks"
            )
            read = importlib.import_module(f"collegium.models.{kind}").read_student
    student: Student = read(path, device=resolve_device(device))
    return student
