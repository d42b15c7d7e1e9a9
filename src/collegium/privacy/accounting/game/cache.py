"""Profiles are kept between runs: in memory, and in the user's cache folder when it can be written.

One ``.npz`` file (arrays only, no pickle) per noise, scale, adjacency, two classes or more, sampling rate and
number of rounds; others hold ε after each round, per δ and per release beside the rounds. A file that cannot be read,
or whose arrays cannot be a profile, is ignored and replaced.
"""

import hashlib
import json
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import platformdirs

from collegium.errors import StorageError
from collegium.privacy.accounting.game.recursion import Values
from collegium.privacy.renyi import FloatArray
from collegium.whole_files import replacing

ALGORITHM = 4
"""Raised whenever the recursion returns other values, so that old files are not read."""

Key = tuple[str, float, str, bool, float, int]
"""Noise, scale (votes), adjacency, exactly two classes, sampling rate, rounds."""

_known: dict[Key, tuple[Values, ...]] = {}
_known_epsilons: dict[tuple[Key, float, str], FloatArray] = {}


def remembered(key: Key, compute: Callable[[], tuple[Values, ...]]) -> tuple[Values, ...]:
    """The value functions for ``key``, computed where they are not known yet."""
    if key not in _known:
        path = _path(key)
        found = _read(path)
        if found is None:
            found = compute()
            _write(path, found)
        _known[key] = found
    return _known[key]


def remembered_epsilons(key: Key, delta: float, compute: Callable[[], FloatArray], beside: str = "") -> FloatArray:
    """ε at ``delta`` after 0, 1, … rounds for ``key``, shape ``[rounds + 1]``; computed where it is not known yet.

    ``beside`` tells apart what is released beside the rounds.
    """
    if (key, delta, beside) not in _known_epsilons:
        path = _path((*key, delta, beside) if beside else (*key, delta))
        found = _read_epsilons(path, key[-1] + 1)
        if found is None:
            found = compute()
            with suppress(OSError, StorageError):  # a result that is not kept is computed again
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path, "write") as temporary, temporary.open("wb") as file:
                    np.savez(file, allow_pickle=False, epsilons=found)
        _known_epsilons[key, delta, beside] = found
    return _known_epsilons[key, delta, beside]


def forget() -> None:
    """Empty the memory of this process; files stay."""
    _known.clear()
    _known_epsilons.clear()


def _read_epsilons(path: Path, length: int) -> FloatArray | None:
    try:
        with np.load(path, allow_pickle=False) as file:
            found = np.asarray(file["epsilons"], dtype=np.float64)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None
    return found if found.shape == (length,) and (np.diff(found[np.isfinite(found)]) >= 0.0).all() else None


def _path(key: tuple[str | float | bool, ...]) -> Path:
    digest = hashlib.sha256(json.dumps([ALGORITHM, *key]).encode()).hexdigest()
    return Path(platformdirs.user_cache_dir("collegium")) / "game" / f"{digest[:32]}.npz"


def _read(path: Path) -> tuple[Values, ...] | None:
    try:
        with np.load(path, allow_pickle=False) as file:
            grids, arrays = file["grids"], [file[f"values{k}"] for k in range(len(file["grids"]))]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None
    if grids.ndim != 2 or grids.shape[1:] != (2,) or not (grids[:, 1] > 0.0).all():
        return None
    for array in arrays:
        if array.ndim != 2 or array.shape[0] != 3 or not ((array >= 0.0) & (array <= 1.0 + 1e-9)).all():
            return None
        if (np.diff(array[0]) < -1e-12).any():
            return None
    return tuple(Values(float(g[0]), float(g[1]), *array) for g, array in zip(grids, arrays, strict=True)) or None


def _write(path: Path, found: tuple[Values, ...]) -> None:
    with suppress(OSError, StorageError):  # a result that is not kept is computed again
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays = {f"values{k}": np.stack([v.upper, v.alpha, v.beta]) for k, v in enumerate(found)}
        with replacing(path, "write") as beside, beside.open("wb") as file:
            np.savez(file, allow_pickle=False, grids=np.array([[v.start, v.step] for v in found]), **arrays)
