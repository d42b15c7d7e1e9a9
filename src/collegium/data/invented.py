"""Records and inputs that nobody has: drawn from a task's public schema alone, for a rehearsal or a comparison."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.examples import Examples, encode
from collegium.data.numbers import EPOCH
from collegium.data.task import CategoryColumn, ImageInputs, Inputs, TableInputs, Task

if TYPE_CHECKING:
    import pandas as pd

_MISSING = 0.02
"""The share of the values of a table that are missing."""
_BEYOND = 0.1
"""By how much of its range a column's values pass the ends of it, where they are to."""


def invented(task: Task, count: int, random: np.random.Generator) -> Examples:
    """So many records of the task: inputs drawn evenly from their ranges, with labels that follow from them.

    The labels follow one rule, made of the task alone, so that institutions that invent records apart agree.

    Parameters
    ----------
    random : draws the inputs.
    """
    x = encode(drawn_inputs(task.inputs, count, random), task)
    flat = x.reshape(count, -1).astype(np.float32)
    flat = (flat - flat.mean(axis=0)) / np.maximum(flat.std(axis=0), 1e-6)
    rule = np.random.default_rng(len(task.classes) * flat.shape[1])
    scores = flat @ rule.normal(size=(flat.shape[1], len(task.classes))).astype(np.float32)
    if task.multilabel:
        return Examples(x, ((scores > 0.0) * 2 ** np.arange(len(task.classes))).sum(axis=1).astype(np.int64))
    return Examples(x, scores.argmax(axis=1).astype(np.int64))


def drawn_inputs(
    inputs: Inputs, count: int, random: np.random.Generator, *, strange: bool = False
) -> "pd.DataFrame | NDArray[Any]":
    """So many raw inputs, drawn evenly from their ranges; some values of a table are missing.

    Parameters
    ----------
    strange : whether there are numbers and dates beyond their ranges too, and categories that the task does not know.
    """
    if isinstance(inputs, ImageInputs):
        return random.integers(0, 256, (count, *inputs.shape), dtype=np.uint8)
    if not isinstance(inputs, TableInputs):
        return random.normal(size=(count, *inputs.shape)).astype(np.float32)
    import pandas as pd

    columns: dict[str, Any] = {}
    for column in inputs.columns:
        if isinstance(column, CategoryColumn):
            known = [*column.categories, *(["another category"] if strange else [])]
            drawn = random.choice(np.array(known, dtype=object), count)
        else:
            beyond = _BEYOND * (column.high - column.low) if strange else 0.0
            low, high = column.low - beyond, column.high + beyond
            if column.kind == "date":
                days = random.integers(int(np.ceil(low)), int(high) + 1, count)
                texts = [str(np.datetime64(EPOCH) + np.timedelta64(int(one), "D")) for one in days]
                drawn = np.array(texts, dtype=object)
            else:
                drawn = random.uniform(low, high, count).astype(object)
        drawn[random.random(count) < _MISSING] = None
        columns[column.name] = drawn
    return pd.DataFrame(columns)
