"""How one file writes numbers and dates, brought to the one way in which the task's columns read them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.loading.sources import DataSource
from collegium.data.numbers import DAY_OR_MONTH_FIRST, read_numbers
from collegium.data.task import Inputs, NumberColumn, TableInputs
from collegium.data.texts import written

if TYPE_CHECKING:
    import pandas as pd

SPELLINGS = ((",", "."), (".", ","), (" ", "."), (" ", ","), ("'", "."))
"""Of numbers: what stands between thousands, and the decimal mark."""
DATES = ("dd/mm/yyyy", "mm/dd/yyyy")
"""Spellings of dates with slashes, or with dashes in their place."""

ROWS_LOOKED_AT = 1000
"""For how a file writes its numbers and dates."""


def read_as_written(
    values: pd.Series[Any], column: NumberColumn, source: DataSource
) -> tuple[NDArray[np.float64], list[str]]:
    """What `read_numbers` gives of a column's values in the spelling of ``source``."""
    frame = respelt_numbers(values.to_frame(column.name), source, TableInputs(columns=(column,)))
    return read_numbers(frame[column.name], source.decimal, dates=column.kind == "date")


def respelt_numbers(frame: pd.DataFrame, source: DataSource, inputs: Inputs) -> pd.DataFrame:
    """The frame with the thousands, dates and units of ``source`` in the task's own spelling.

    Each value by itself. What cannot be read stays as it is, for whoever says so.

    Parameters
    ----------
    frame : rows with the task's names of columns.
    """
    if not isinstance(inputs, TableInputs) or not (source.thousands or source.dates or source.scale):
        return frame
    import pandas as pd

    changed: dict[str, Any] = {}
    for column in inputs.columns:
        if not isinstance(column, NumberColumn) or column.name not in frame:
            continue
        values = frame[column.name]
        if column.kind == "date":
            if source.dates:
                changed[column.name] = _each(values, lambda text: iso_date(text, source.dates))
            continue
        if source.thousands and not pd.api.types.is_numeric_dtype(values.dtype):
            between = between_thousands(source.thousands)
            values = changed[column.name] = _each(values, partial(between.sub, ""))
        if column.name in source.scale:
            numbers, unread = read_numbers(values, source.decimal)
            if not unread:
                changed[column.name] = pd.Series(numbers * source.scale[column.name], index=values.index)
    return frame.assign(**changed)


@cache
def between_thousands(mark: str) -> re.Pattern[str]:
    """A mark that stands between the thousands of a number."""
    return re.compile(rf"(?<=\d){re.escape(mark)}(?=\d\d\d(?!\d))")


def iso_date(text: str, how: str) -> str:
    """A date with slashes or dashes as 2026-01-31; any other text as it is."""
    found = DAY_OR_MONTH_FIRST.fullmatch(text)
    if found is None:
        return text
    first, _, second, year, rest = found.groups()
    day, month = (first, second) if how.startswith("dd") else (second, first)
    return f"{year}-{month:0>2}-{day:0>2}{rest}"


def _each(values: pd.Series[Any], change: Callable[[str], str]) -> pd.Series[Any]:
    import pandas as pd

    pairs = zip(values.array, written(values).tolist(), strict=True)
    changed = [change(text) if isinstance(value, str) else text for value, text in pairs]  # numbers have no marks
    return pd.Series(changed, index=values.index, dtype=object)
