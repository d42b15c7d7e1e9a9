"""Which inputs a student answers although its pool never held their like: clipped values, and inputs far from the pool.

The landmarks of a kernel student are inputs of its pool, drawn at random. How far one of them is from the nearest of
the others is, by symmetry, what the distance of one more input of the pool would be. So of inputs like the pool's about
one in a hundred is called outside of it. Landmarks that were drawn from the public schema tell nothing of that.
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.data.numbers import read_numbers
from collegium.data.task import NumberColumn, TableInputs, Task
from collegium.models.calibrated import CalibratedStudent
from collegium.models.features import distances_squared, extract
from collegium.models.kernel_student import KernelStudent
from collegium.models.kernels import KernelMap
from collegium.models.student import Student

WITHIN = 0.99
"""Of the pool's own inputs, this share lies within the distance that is called usual."""
_AT_ONCE = 2048


def unusual(student: Student, x: NDArray[Any], raw: Any, decimal: str = ".") -> pd.DataFrame:
    """A row for each input: ``clipped`` for a table's raw columns, ``outside_pool`` where the student holds landmarks.

    Parameters
    ----------
    x : the encoded inputs, ``[n, …]``.
    raw : the same before they were encoded: a frame, or an array ``[n, columns]``.
    decimal : the decimal mark of numbers that are texts.
    """
    found: dict[str, Any] = {}
    clipped = clipped_columns(raw, student.task, decimal)
    if clipped is not None:
        found["clipped"] = clipped
    inner = student.student if isinstance(student, CalibratedStudent) else student
    if isinstance(inner, KernelStudent) and not inner.drawn:
        found["outside_pool"] = outside_pool(inner.kernel, x)
    return pd.DataFrame(found, index=pd.RangeIndex(len(x)))


def clipped_columns(raw: Any, task: Task, decimal: str = ".") -> list[str] | None:
    """For each row the columns whose number lies outside the task's range, between semicolons; None without columns."""
    if not isinstance(task.inputs, TableInputs):
        return None
    columns = task.inputs.columns
    if not isinstance(raw, pd.DataFrame):
        raw = np.asarray(raw)
        if raw.ndim != 2 or raw.shape[1] != len(columns):
            return None  # encoded already
        raw = pd.DataFrame(raw, columns=[column.name for column in columns])
    named: list[list[str]] = [[] for _ in range(len(raw))]
    for column in columns:
        if isinstance(column, NumberColumn) and column.name in raw:
            numbers, _ = read_numbers(raw[column.name], decimal, dates=column.kind == "date")
            for row in np.flatnonzero((numbers < column.low) | (numbers > column.high)).tolist():
                named[row].append(column.name)
    return ["; ".join(names) for names in named]


def outside_pool(kernel: KernelMap, x: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each of ``x`` ``[n, …]`` is further from all landmarks than `WITHIN` of them are from the others."""
    between = distances_squared(kernel.landmarks, kernel.landmarks)
    np.fill_diagonal(between, np.iinfo(between.dtype).max)
    limit = np.quantile(between.min(axis=1), WITHIN, method="higher")
    outside = np.empty(len(x), dtype=np.bool_)
    for start in range(0, len(x), _AT_ONCE):
        features = extract(kernel.features, x[start : start + _AT_ONCE], kernel.inputs, kernel.device)
        outside[start : start + _AT_ONCE] = distances_squared(features, kernel.landmarks).min(axis=1) > limit
    return outside
