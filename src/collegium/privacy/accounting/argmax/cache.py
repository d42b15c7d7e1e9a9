"""Certified values are kept between runs: in memory, and in the user's cache folder when it can be written.

One small JSON file per noise, scale, adjacency and sampling rate. A file that cannot be read, or holds
anything but non-negative numbers, is ignored and replaced.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import platformdirs

from collegium.errors import StorageError
from collegium.privacy.accounting.argmax.lattice import FloatArray
from collegium.whole_files import write_whole

ALGORITHM = 2
"""Raised whenever the search returns other values, so that old files are not read."""

Key = tuple[str, float, str, float, float]
"""Noise, scale (votes), adjacency, sampling rate, tolerance."""

_known: dict[Key, dict[float, float]] = {}


def remembered(key: Key, orders: FloatArray, compute: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Values at ``orders``; ``compute`` is asked for those that are not yet known."""
    values = _known.setdefault(key, {})
    if any(order not in values for order in orders.tolist()):
        values.update(_read(_path(key)))
    missing = np.array([order for order in orders.tolist() if order not in values])
    if len(missing):
        values.update(zip(missing.tolist(), compute(missing).tolist(), strict=True))
        _write(_path(key), values)
    return np.array([values[order] for order in orders.tolist()])


def _path(key: Key) -> Path:
    digest = hashlib.sha256(json.dumps([ALGORITHM, *key]).encode()).hexdigest()
    return Path(platformdirs.user_cache_dir("collegium")) / "argmax" / f"{digest[:32]}.json"


def _read(path: Path) -> dict[float, float]:
    try:
        pairs = json.loads(path.read_text(encoding="utf-8"))
        values = {float(order): float(value) for order, value in pairs}
    except (OSError, ValueError, TypeError):
        return {}
    return values if all(math.isfinite(value) and value >= 0.0 for value in values.values()) else {}


def _write(path: Path, values: dict[float, float]) -> None:
    with suppress(OSError, StorageError):  # a result that is not kept is computed again
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(sorted(values.items())))
