"""Vote counts from files: `.npy`, `.npz` and `.csv`, integers of shape ``[queries, classes]``. No pickles."""

from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from collegium_accounting.errors import DataError
from collegium_accounting.units import IntArray, checked_counts

_NAMES = ("votes", "counts")


def read_votes(path: Path) -> IntArray:
    """The vote counts in ``path``; raises DataError when there are none that make sense.

    An ``.npz`` holds them as ``votes`` or ``counts``, or as its only array. A ``.csv`` has one query per
    row and may start with one line of column names.
    """
    if not path.is_file():
        raise DataError(f"no vote file at {path}")
    read = {".npy": _binary, ".npz": _binary, ".csv": _csv}.get(path.suffix.lower())
    if read is None:
        raise DataError(f"{path}: votes are read from .csv, .npy, .npz files")
    try:
        array = read(path)
    except (ValueError, OSError, EOFError, BadZipFile) as error:
        raise DataError(f"{path} cannot be read as vote counts: {error}") from None
    try:
        return checked_counts(array)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _binary(path: Path) -> NDArray[np.generic]:
    with path.open("rb") as file:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        names = [name for name in _NAMES if name in loaded.files] or loaded.files
        if len(loaded.files) > 1 and names == loaded.files:
            raise DataError(f"{path} holds {', '.join(loaded.files)}; name the vote counts 'votes'")
        if not names:
            raise DataError(f"{path} holds no array")
        found: NDArray[np.generic] = loaded[names[0]]
        return found


def _csv(path: Path) -> NDArray[np.generic]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if lines and not _numeric(lines[0]):
        lines = lines[1:]
    if not lines:
        raise DataError(f"{path} holds no row of counts")
    return np.loadtxt(lines, delimiter=",", ndmin=2)


def _numeric(line: str) -> bool:
    try:
        [float(cell) for cell in line.split(",")]
    except ValueError:
        return False
    return True
