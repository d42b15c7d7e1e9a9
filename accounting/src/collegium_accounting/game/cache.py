"""Profiles are kept between runs: in memory, and in the user's cache folder when it can be written.

One ``.npz`` file (arrays only, no pickle) per noise, scale, adjacency, two classes or more, sampling rate and
number of rounds; others hold ε after each round, per δ and per release beside the rounds. A file that cannot be read,
or whose numbers no computation gives, is ignored and replaced. Whoever changes a file on purpose can still lower ε for
this user; others compute with their own files.
"""

import hashlib
import io
import json
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import platformdirs
from numpy.typing import NDArray

from collegium_accounting.elementary import FloatArray
from collegium_accounting.errors import StorageError
from collegium_accounting.game.recursion import Values, multiples
from collegium_accounting.whole_files import write_whole

KEPT = Path(__file__).parent / "kept"
"""Files of the same kind that come with the package: the examples of the first pages, which nobody waits for."""

ALGORITHM = 8
"""Raised whenever the recursion returns other values, so that old files are not read."""

Key = tuple[str, float, str, bool, float, int]
"""Noise, scale (votes), adjacency, exactly two classes, sampling rate, rounds."""

_known: dict[Key, tuple[Values, ...]] = {}
_known_epsilons: dict[tuple[Key, float, str], FloatArray] = {}


def remembered(key: Key, compute: Callable[[], tuple[Values, ...]]) -> tuple[Values, ...]:
    """The value functions for ``key``, computed where they are not known yet."""
    if not is_remembered(key):
        found = compute()
        arrays = {f"values{k}": np.stack([v.upper, v.alpha, v.beta]) for k, v in enumerate(found)}
        _write(_path(key), grids=np.array([[v.start, v.step] for v in found]), **arrays)
        _known[key] = found
    return _known[key]


def is_remembered(key: Key) -> bool:
    """Whether `remembered` returns the value functions for ``key`` at once."""
    if key not in _known:
        path = _path(key)
        found = _read(path, key) or _read(KEPT / path.name, key)
        if found is not None:
            _known[key] = found
    return key in _known


def remembered_epsilons(key: Key, delta: float, compute: Callable[[], FloatArray], beside: str = "") -> FloatArray:
    """ε at ``delta`` after 0, 1, … rounds for ``key``, shape ``[rounds + 1]``; computed where it is not known yet.

    ``beside`` tells apart what is released beside the rounds.
    """
    if (key, delta, beside) not in _known_epsilons:
        path = _path((*key, delta, beside) if beside else (*key, delta))
        found = _read_epsilons(path, key, delta)
        if found is None:
            found = compute()
            _write(path, epsilons=found)
        _known_epsilons[key, delta, beside] = found
    return _known_epsilons[key, delta, beside]


def forget() -> None:
    """Empty the memory of this process; files stay."""
    _known.clear()
    _known_epsilons.clear()


def _read_epsilons(path: Path, key: Key, delta: float) -> FloatArray | None:
    found = _arrays(path).get("epsilons", np.zeros(0))
    if found.shape != (key[-1] + 1,):
        return None
    # Of two counts that were level, one wins less often without one vote: by 0.9/(4·scale) at least, for every noise.
    least = math.log1p(max(0.0, 2.0 * (0.225 * key[4] / key[1] - delta)))
    return found if found[0] >= 0.0 and (found[1:] >= np.maximum(found[:-1], least)).all() else None


def _path(key: tuple[str | float | bool, ...]) -> Path:
    digest = hashlib.sha256(json.dumps([ALGORITHM, *key]).encode()).hexdigest()
    return Path(platformdirs.user_cache_dir("collegium")) / "game" / f"{digest[:32]}.npz"


def _arrays(path: Path) -> dict[str, NDArray[np.float64]]:
    """What the file holds; nothing where it is missing or damaged, in whichever way numpy says so."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            return {name: array for name, array in file.items() if array.dtype == np.float64}
    except Exception:
        return {}


def _read(path: Path, key: Key) -> tuple[Values, ...] | None:
    held = _arrays(path)
    grids = held.get("grids", np.zeros(0))
    arrays = [held.get(f"values{k}", np.zeros(0)) for k in range(1 if key[4] == 1.0 else 2)]
    if grids.shape != (len(arrays), 2) or any(array.ndim != 2 or len(array) != 3 or not array.size for array in arrays):
        return None
    found = tuple(Values(float(g[0]), float(g[1]), *array) for g, array in zip(grids, arrays, strict=True))
    return found if all(map(_possible, found)) else None


def _possible(values: Values) -> bool:
    """Whether the bound lies above the value before the first round and above what its own policy attains."""
    s = values.start + multiples(0, len(values.upper) - 1, values.step)
    with np.errstate(all="ignore"):
        floor = np.maximum(np.maximum(0.0, -np.expm1(-s)), values.alpha - np.exp(-s) * values.beta)
        held = np.stack([values.upper, values.alpha, values.beta])
        inside = (held >= 0.0) & (held <= 1.0 + 1e-9) & (values.upper >= floor - 1e-9)
        return values.step > 0.0 and bool(inside.all() and (np.diff(values.upper) >= -1e-12).all())


def _write(path: Path, **arrays: NDArray[np.float64]) -> None:
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    with suppress(OSError, StorageError):  # a result that is not kept is computed again
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, packed.getvalue())
