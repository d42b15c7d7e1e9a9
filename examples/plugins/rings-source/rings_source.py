"""A data source of one file: 1,500 points on three rings, the same at every read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from collegium.data.loading.sources import Records
from collegium.data.task import NumberColumn, TableInputs, Task
from collegium.errors import DataError

_POINTS = 1500


TASK = Task(
    classes=("inner", "middle", "outer"),
    inputs=TableInputs(
        columns=(
            NumberColumn(name="across", low=-4, high=4),
            NumberColumn(name="up", low=-4, high=4),
            NumberColumn(name="distance", low=0, high=4),
        )
    ),
)


@dataclass(frozen=True)
class Rings:
    """Points at distances of about 1, 2 and 3 from the origin; the class says on which ring a point lies."""

    task: Task = TASK

    def read(self, split: str, root: Path | None) -> Records:
        """All points, as the split ``train`` or ``all``; DataError for ``test``."""
        if split == "test":
            raise DataError("rings has no test split: choose records with shuffle_seed, start and stop")
        generator = np.random.default_rng(0)
        ring = generator.integers(0, 3, _POINTS)
        angle = generator.uniform(0, 2 * np.pi, _POINTS)
        distance = 1.0 + ring + generator.normal(0, 0.15, _POINTS)
        frame = pd.DataFrame({"across": distance * np.cos(angle), "up": distance * np.sin(angle), "distance": distance})
        frame = frame.round(4).astype(str)
        frame["y"] = np.array(TASK.classes)[ring]
        return Records("rings", frame)


RINGS = Rings()
