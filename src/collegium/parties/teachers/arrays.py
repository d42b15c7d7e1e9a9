"""Teachers as files of named arrays (safetensors): nothing in them is executed when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from collegium.errors import StorageError


def save_arrays(path: Path, kind: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays and the kind of teacher that they belong to; StorageError if that fails."""
    try:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path, metadata={"kind": kind})
    except (OSError, SafetensorError) as error:
        raise StorageError(f"cannot write the teacher {path}: {error}") from error


def load_arrays(path: Path, kind: str, dtypes: Mapping[str, type[np.generic]]) -> dict[str, NDArray[Any]]:
    """Read exactly the arrays named in ``dtypes``; StorageError if the file is damaged or of another kind."""
    try:
        with safe_open(path, framework="numpy") as file:
            if (file.metadata() or {}).get("kind") != kind or set(file.keys()) != set(dtypes):
                raise StorageError(f"{path.name} holds no teacher of the kind {kind}")
            arrays = {name: file.get_tensor(name) for name in dtypes}
    except (OSError, SafetensorError, ValueError) as error:
        raise StorageError(f"{path.name} cannot be read as a teacher: {error}") from error
    if any(arrays[name].dtype != dtype for name, dtype in dtypes.items()):
        raise StorageError(f"{path.name} holds arrays of other types than the kind {kind} writes")
    return arrays
