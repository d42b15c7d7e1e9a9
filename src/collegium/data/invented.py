"""Records that nobody has: drawn from a task's public schema alone, for a rehearsal."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.examples import Examples, encode
from collegium.data.task import EPOCH, CategoryColumn, ImageInputs, TableInputs, Task

_MISSING = 0.02
"""The share of the values of a table that are missing."""


def invented(task: Task, count: int, random: np.random.Generator) -> Examples:
    """So many records of the task: inputs drawn evenly from their ranges, with labels that follow from them.

    The labels follow one rule, made of the task alone, so that institutions that invent records apart agree.

    Parameters
    ----------
    random : draws the inputs.
    """
    x = _inputs(task, count, random)
    flat = x.reshape(count, -1).astype(np.float32)
    flat = (flat - flat.mean(axis=0)) / np.maximum(flat.std(axis=0), 1e-6)
    rule = np.random.default_rng(len(task.classes) * flat.shape[1])
    scores = flat @ rule.normal(size=(flat.shape[1], len(task.classes))).astype(np.float32)
    if task.multilabel:
        return Examples(x, ((scores > 0.0) * 2 ** np.arange(len(task.classes))).sum(axis=1).astype(np.int64))
    return Examples(x, scores.argmax(axis=1).astype(np.int64))


def _inputs(task: Task, count: int, random: np.random.Generator) -> NDArray[np.uint8 | np.float32]:
    inputs = task.inputs
    if isinstance(inputs, ImageInputs):
        return random.integers(0, 256, (count, *inputs.shape), dtype=np.uint8)
    if not isinstance(inputs, TableInputs):
        return random.normal(size=(count, *inputs.shape)).astype(np.float32)
    import pandas as pd

    columns: dict[str, Any] = {}
    for column in inputs.columns:
        if isinstance(column, CategoryColumn):
            drawn = random.choice(np.array(column.categories, dtype=object), count)
        elif column.kind == "date":
            days = random.integers(int(np.ceil(column.low)), int(column.high) + 1, count)
            drawn = np.array([str(np.datetime64(EPOCH) + np.timedelta64(int(one), "D")) for one in days], dtype=object)
        else:
            drawn = random.uniform(column.low, column.high, count).astype(object)
        drawn[random.random(count) < _MISSING] = None
        columns[column.name] = drawn
    return encode(pd.DataFrame(columns), task)
