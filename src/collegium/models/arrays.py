"""Files of named arrays: safetensors with one entry of metadata, which says what the arrays are. No code is in them."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from collegium.errors import StorageError


def save_arrays(path: Path, kind: str, arrays: Mapping[str, NDArray[Any]], /, **about: Any) -> None:
    """Write arrays, their kind and what else is known about them (JSON values); StorageError if that fails.

    They are on the disk when this returns. The room of a file that is there already is used.
    """
    whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    try:
        # The library's own writing leaves a temporary file of a random name behind where the process is killed.
        with path.open("r+b" if path.exists() else "wb") as file:
            file.write(save(whole, {kind: json.dumps(about, sort_keys=True)}))
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
    except (OSError, SafetensorError) as error:
        raise StorageError(f"cannot write {path}: {error}") from error


def kinds_in(path: Path) -> dict[str, str]:
    """What a student's file says of itself, by kind; StorageError where it cannot be read."""
    try:
        with safe_open(path, framework="numpy") as file:
            return file.metadata() or {}
    except (OSError, SafetensorError, ValueError) as error:
        raise StorageError(f"{path.name} cannot be read as a student: {error}") from error


def load_arrays(
    path: Path, kind: str, dtypes: Mapping[str, type[np.generic]] | None = None
) -> tuple[dict[str, NDArray[Any]], Any]:
    """The arrays that `save_arrays` wrote as this kind, and what was said about them.

    Parameters
    ----------
    dtypes : the arrays that must be there, no others, and their types; None where the caller checks them.

    Raises
    ------
    StorageError
        If the file is missing, damaged, of another kind, or holds other arrays.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {})[kind])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except KeyError as error:
        raise StorageError(f"{path.name} holds no {kind}") from error
    except (OSError, SafetensorError, ValueError) as error:
        raise StorageError(f"{path.name} cannot be read as {kind}: {error}") from error
    types = {name: array.dtype for name, array in arrays.items()}
    if dtypes is not None and types != {name: np.dtype(dtype) for name, dtype in dtypes.items()}:
        raise StorageError(f"{path.name} holds no {kind} that this version of Collegium wrote: its arrays are others")
    return arrays, about
