"""What a public frame or array says of a task: classes, and columns with their ranges or categories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from collegium.data.numbers import like_dates, number_of, read_numbers
from collegium.data.texts import MISSING, row_numbers, text_of, texts_of
from collegium.errors import DataError

MOST_CATEGORIES = 50
"""Of a column of texts; rarer values count as missing."""
_ROWS_THAT_TELL = 20


def classes_of(frame: pd.DataFrame | None, label: str | None, classes: Sequence[object] | None) -> list[str]:
    """The names of the classes; DataError unless there are two that differ."""
    if frame is not None and label is not None and label not in frame:
        raise DataError(f"the frame has no column {label!r}; there are {', '.join(map(str, frame.columns[:60]))}")
    if classes is None:
        if frame is None or label is None:
            raise DataError("which classes? Name them by classes, or their column by label")
        known = [text for text in sorted(set(texts_of(frame[label]).tolist())) if text.lower() not in MISSING]
        classes = sorted(known, key=lambda text: (float(text), text)) if None not in map(number_of, known) else known
    names = [text_of(name) for name in classes]
    if len(names) < 2 or len(set(names)) != len(names):
        raise DataError(f"a task has at least two classes with different names, not {names[:20]}")
    return names


def columns_of(frame: pd.DataFrame, out: Sequence[str]) -> list[dict[str, Any]]:
    """The settings of each column that is not left out; DataError for one of which nothing can be made."""
    unknown = [name for name in out if name not in frame]
    if unknown:
        raise DataError(f"the frame has no column {unknown[0]!r}; there are {', '.join(map(str, frame.columns[:60]))}")
    left_out = {*out, *row_numbers(frame)}
    return [_column(str(name), frame[name]) for name in frame.columns if name not in left_out]


def _column(name: str, values: pd.Series[Any]) -> dict[str, Any]:
    texts = not pd.api.types.is_numeric_dtype(values.dtype)
    if texts and not (days := read_numbers(values, dates=True))[1] and np.isfinite(days[0]).any():
        values = pd.Series(pd.to_datetime(days[0], unit="D"))
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        known = values.dropna()
        if known.empty:
            raise DataError(f"the column {name} holds no date: name it in out")
        low, high = known.min().date(), known.max().date()
        return {"kind": "date", "name": name, "low": low, "high": high if low < high else low + pd.Timedelta(days=1)}
    if pd.api.types.is_numeric_dtype(values.dtype) and not pd.api.types.is_bool_dtype(values.dtype):
        return {"kind": "number", "name": name, **_range(name, values.to_numpy(dtype=np.float64, na_value=np.nan))}
    counts = Counter(text for text in texts_of(values).tolist() if text.lower() not in MISSING)
    if not counts:
        raise DataError(f"the column {name} holds no value: name it in out")
    told = isinstance(values.dtype, pd.CategoricalDtype)
    if not told and (found := like_dates(list(counts.elements()))):
        raise DataError(
            f"the column {name} has dates such as {found!r}: make dates of them (pandas.to_datetime has dayfirst), "
            "name it in out, or give it the dtype category"
        )
    if 2 * len(counts) > len(values) >= _ROWS_THAT_TELL:
        raise DataError(
            f"the column {name} has {len(counts)} different texts in {len(values)} rows: name it in out, or make "
            "numbers of it (pandas.read_csv has decimal and thousands) or dates (pandas.to_datetime has dayfirst)"
        )
    return {
        "kind": "category",
        "name": name,
        "categories": sorted(text for text, _ in counts.most_common(MOST_CATEGORIES)),
    }


def _range(name: str, values: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float]:
    finite = values[np.isfinite(values)]
    if not len(finite):
        raise DataError(f"the column {name} of the public inputs holds no number: leave it out")
    low, high = float(finite.min()), float(finite.max())
    return {"low": low, "high": high if high > low else low + 1.0}


def inputs_of(public: ArrayLike) -> dict[str, Any]:
    """The settings of the inputs of an array: images, or a table of numbers; DataError for anything else."""
    inputs = np.asarray(public)
    if inputs.ndim in (3, 4):
        if inputs.dtype != np.uint8:
            raise DataError(f"images are unsigned bytes (uint8, 0 to 255), not {inputs.dtype}: convert them")
        height, width, channels = (*inputs.shape[1:], 1)[:3]
        return {"kind": "image", "height": height, "width": width, "channels": channels}
    if inputs.ndim != 2 or inputs.dtype.kind not in "iufb" or len(inputs) == 0:
        raise DataError(
            f"inputs are a table of numbers [n, columns] or images [n, height, width]; got {inputs.dtype} of shape "
            f"{list(inputs.shape)}: with columns of texts, make a task of a frame (Task.from_frame)"
        )
    named = [f"column-{number}" for number in range(inputs.shape[1])]
    columns = [
        {"kind": "number", "name": name, **_range(name, inputs[:, number].astype(np.float64))}
        for number, name in enumerate(named)
    ]
    return {"kind": "table", "columns": columns}
