"""Reading a published student back, whichever kind it is."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open

from collegium.coordinator.students.base import STUDENT_METHOD, Student, find_method, method_names
from collegium.coordinator.students.forest import ForestStudent
from collegium.errors import StorageError
from collegium.extras import optional_import
from collegium.models.devices import resolve_device
from collegium.models.forests import FOREST_FORMAT, load_forest


def load_student(path: str | Path, *, device: str = "auto") -> Student:
    """Read a published student.

    Nothing in the file is executed: it holds named arrays and a description of the task.

    Parameters
    ----------
    path : str or Path
        A file that a student's ``save`` wrote, such as ``student.safetensors`` in a run's folder.
    device : str
        Where a network computes: ``auto``, ``cpu``, ``cuda`` or ``cuda:<number>``. Forests stay on the CPU.

    Returns
    -------
    Student
        It has ``task``, ``predict(x)`` and ``probabilities(x)``.

    Raises
    ------
    StorageError
        If the file cannot be read, holds no student, or its method is not installed here.
    DataError
        If the arrays do not fit the task.
    MissingExtra
        If the student is a network and torch is not installed.
    """
    path = Path(path)
    try:
        with safe_open(path, framework="numpy") as file:
            kinds = file.metadata() or {}
    except (OSError, SafetensorError, ValueError) as error:
        raise StorageError(f"{path.name} cannot be read as a student: {error}") from error
    if STUDENT_METHOD in kinds:
        return _of_an_installed_method(path, kinds[STUDENT_METHOD], resolve_device(device))
    if FOREST_FORMAT in kinds:
        return ForestStudent(*load_forest(path))
    with optional_import("a student that is a network"):
        from collegium.coordinator.students.networks import NetworkStudent
        from collegium.models.networks import load_network

    saved = load_network(path)
    target = resolve_device(device)
    return NetworkStudent(saved.name, saved.task, saved.network.to(target), target, saved.options)


def _of_an_installed_method(path: Path, name: str, device: str) -> Student:
    read = getattr(find_method(name), "read", None) if name in method_names() else None
    if read is None:
        raise StorageError(f"{path.name} holds a student of the method {name[:64]!r}: install the package that has it")
    student: Student = read(path, device=device)
    return student
