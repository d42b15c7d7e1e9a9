"""How a published student is read: from named arrays and a description of the task, so that it may travel.

Parties read the files that they are sent; no pickle is read, and no code is run but that of methods installed here.
"""

import importlib
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from collegium.errors import StorageError
from collegium.extras import installed, load_plugin, optional_import
from collegium.models.arrays import kinds_in
from collegium.models.calibrated import CALIBRATED_FORMAT
from collegium.models.calibrated import read_student as read_calibrated
from collegium.models.devices import resolve_device
from collegium.models.forests import FOREST_FORMAT
from collegium.models.kernel_student import KERNEL_FORMAT
from collegium.models.student import Student as Student
from collegium.whole_files import write_whole

ENTRY_POINT_GROUP = "collegium.students"
"""Where another installed package names its methods."""

STUDENT_METHOD = "collegium-student-method"
"""The key in a file's metadata that names the method whose ``read`` understands the file."""


METHODS: dict[str, Any] = {}
"""The methods that have been imported, by name. One that writes files of its own has ``read(path, device=…)``."""


REHEARSED = "collegium-rehearsal"
"""The key in the metadata of a student that learned from invented records."""


def mark_rehearsed(path: Path) -> None:
    """Have a student's file say that it came of a rehearsal; StorageError if that fails."""
    try:
        with safe_open(path, framework="numpy") as file:
            held, arrays = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as error:
        raise StorageError(f"{path.name} cannot be read as a student: {error}") from error
    write_whole(path, save(arrays, {**held, REHEARSED: "invented records"}))


def is_rehearsed(path: Path) -> bool:
    """Whether a student's file says that it came of a rehearsal; False for one that cannot be read."""
    try:
        return REHEARSED in kinds_in(path)
    except StorageError:
        return False


def read_student(path: str | Path, *, device: str = "auto") -> Student:
    """The student in a file that a student's ``save`` wrote; see `published.load_student` for errors."""
    path = Path(path)
    kinds = kinds_in(path)
    if CALIBRATED_FORMAT in kinds:
        return read_calibrated(path, device=device, read=read_student)
    if STUDENT_METHOD in kinds:
        name = kinds[STUDENT_METHOD]
        method = METHODS.get(name)
        if method is None and name in installed(ENTRY_POINT_GROUP).names:
            method = load_plugin(installed(ENTRY_POINT_GROUP)[name], f"the student {name!r}")
        read = getattr(method, "read", None)
        if read is None:
            raise StorageError(
                f"{path.name} holds a student of the method {name[:64]!r}: install the package that has it"
            )
    else:
        with optional_import("a student that is a network"):
            modules = {FOREST_FORMAT: "forests", KERNEL_FORMAT: "kernel_student"}
            kind = next((module for key, module in modules.items() if key in kinds), "whole_networks")
            read = importlib.import_module(f"collegium.models.{kind}").read_student
    student: Student = read(path, device=resolve_device(device))
    return student
