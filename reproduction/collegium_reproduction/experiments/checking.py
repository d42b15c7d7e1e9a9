"""Compute kept results again with the present code, where that takes no training, and compare."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from collegium.errors import DataError, StorageError
from collegium_reproduction.experiments.base import MADE, Experiment, Setting

_TIMES = frozenset({MADE, "cpu_s", "labels_cpu_s", "seconds", "wall_s"})
"""Keys of values that differ from run to run."""

_TOLERANCE = 1e-6
"""Relative: other versions of the numerical libraries change the last digits."""


@runtime_checkable
class Recounted(Protocol):
    """An experiment that needs training, but whose data-independent ε follow from its kept results."""

    def recount(self, results: Mapping[str, Any]) -> dict[str, Any]:
        """The figures that can be computed again, at their places in ``results``; all others are left out."""


@dataclass(frozen=True)
class Difference:
    """A figure that is no longer what was kept; ``place`` is its path in the JSON file."""

    place: str
    kept: Any
    now: Any


@dataclass(frozen=True)
class Checked:
    """What came of one experiment: how many figures were compared, and which differ.

    ``skipped`` says why nothing was compared; empty otherwise.
    """

    name: str
    compared: int = 0
    differences: tuple[Difference, ...] = ()
    skipped: str = ""


def read_results(folder: Path, name: str) -> dict[str, Any] | None:
    """The kept results of an experiment; None where there are none. StorageError if they cannot be read."""
    path = folder / f"{name}.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot read {path}: {error}") from error
    return found


def check(experiment: Experiment, kept: Mapping[str, Any], setting: Setting) -> Checked:
    """Run a quick experiment again, or count the ε of a slow one again, and compare with what was kept."""
    if isinstance(experiment, Recounted):
        now = experiment.recount(kept)
    elif experiment.slow:
        return Checked(experiment.name, skipped="needs training")
    else:
        try:
            now = experiment.run(setting)
        except DataError as error:
            return Checked(experiment.name, skipped=str(error))
    pairs = list(_pairs(kept, json.loads(json.dumps(now)), ""))
    differences = tuple(Difference(*pair) for pair in pairs if not _same(pair[1], pair[2]))
    return Checked(experiment.name, len(pairs), differences)


def _pairs(kept: Any, now: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Every figure of ``now`` with the kept one of the same place; None where there is none."""
    if isinstance(now, dict):
        for key in now.keys() - _TIMES:
            yield from _pairs(kept.get(key) if isinstance(kept, dict) else None, now[key], f"{place}.{key}".lstrip("."))
    elif isinstance(now, list):
        known = kept if isinstance(kept, list) and len(kept) == len(now) else [None] * len(now)
        for number, (before, after) in enumerate(zip(known, now, strict=True)):
            yield from _pairs(before, after, f"{place}[{number}]")
    else:
        yield place, kept, now


def _same(kept: Any, now: Any) -> bool:
    if isinstance(kept, float) or isinstance(now, float):
        return (
            isinstance(kept, int | float)
            and isinstance(now, int | float)
            and (math.isclose(kept, now, rel_tol=_TOLERANCE, abs_tol=1e-12) or (math.isnan(kept) and math.isnan(now)))
        )
    return bool(kept == now)
