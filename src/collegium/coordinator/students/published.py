"""Reading a published student back, whichever kind it is."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open

from collegium.coordinator.students.base import NetworkStudent, Student
from collegium.coordinator.students.forest import ForestStudent
from collegium.errors import StorageError
from collegium.models.devices import resolve_device
from collegium.models.forests import FOREST_FORMAT, load_forest
from collegium.models.networks import load_network


def load_student(path: Path, *, device: str = "auto") -> Student:
    """Read what a student's ``save`` wrote; StorageError or DataError when the file is something else.

    ``device`` is where a network computes; forests stay on the CPU.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            kinds = file.metadata() or {}
    except (OSError, SafetensorError, ValueError) as error:
        raise StorageError(f"{path.name} cannot be read as a student: {error}") from error
    if FOREST_FORMAT in kinds:
        return ForestStudent(*load_forest(path))
    saved = load_network(path)
    target = resolve_device(device)
    return NetworkStudent(saved.name, saved.task, saved.network.to(target), target, saved.options)
