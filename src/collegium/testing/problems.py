"""Small tasks and records that every suite can make: three clusters in a table or in images of 8×8 pixels."""

from __future__ import annotations

import numpy as np

from collegium.data import Examples
from collegium.data.task import ImageInputs, NumberColumn, TableInputs, Task

CLASSES = ("low", "middle", "high")

TABLE = Task(
    classes=CLASSES,
    inputs=TableInputs(columns=tuple(NumberColumn(name=f"value-{n}", low=0.0, high=1.0) for n in range(6))),
)
IMAGES = Task(classes=CLASSES, inputs=ImageInputs(height=8, width=8))


def easy_examples(task: Task, records: int, *, seed: int, spread: float = 0.12) -> Examples:
    """Records in one cluster per class of ``task``; the clusters are the same for every seed.

    Parameters
    ----------
    records : how many; the classes come in turn.
    seed : of the records.
    spread : standard deviation around a cluster's centre, as a share of an input's range.
    """
    classes = task.label_numbers
    centres = np.random.default_rng(0).uniform(0.15, 0.85, (classes, *task.inputs.shape))
    y = np.arange(records, dtype=np.int64) % classes
    x = centres[y] + np.random.default_rng(seed).normal(0.0, spread, (records, *task.inputs.shape))
    x = np.clip(x, 0.0, 1.0)
    if isinstance(task.inputs, ImageInputs):
        return Examples(np.rint(255 * x).astype(np.uint8), y)
    return Examples(x.astype(np.float32), y)
