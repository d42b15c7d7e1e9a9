"""Which column of a file a column of the task probably is, by its values, where the names tell nothing."""

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from collegium.data.encoding import MISSING, text_of, texts_of
from collegium.data.loading.sources import DataSource
from collegium.data.task import CategoryColumn, Column
from collegium.data.texts import nearest
from collegium.parties.checking_numbers import FACTORS, numbers_as_written

if TYPE_CHECKING:
    import pandas as pd

ROWS_LOOKED_AT = 300
_KIND = 0.4
"""Of the likeness, which is at most 1, for values of the column's kind; the rest is for values in its range."""
_CLEARLY = 0.15
"""By so much a likeness is above all others of either column."""
_IN_RANGE = 0.25
"""So much of the task's range and the values' together must be common to both."""
_DIGIT = re.compile(r"\d")
_OTHER_UNIT = 0.5
"""What that counts if the values would first have to be brought to another unit."""


def matched_by_values(
    frame: "pd.DataFrame", lacking: Sequence[Column], spare: Collection[str], source: DataSource
) -> dict[str, str]:
    """The column of the file that each lacking column of the task probably is, where one alone is likely.

    Parameters
    ----------
    frame : the rows of the file.
    lacking : columns of the task that the file has under no name like theirs.
    spare : columns of the file that nothing uses.
    """
    some = frame.iloc[:: max(1, len(frame) // ROWS_LOOKED_AT)]
    likeness = {(one.name, name): _likeness(some[name], one, source) for one in lacking for name in spare}
    found: dict[str, str] = {}
    while likeness:
        (column, name), best = max(likeness.items(), key=lambda pair: pair[1] - _rival(likeness, *pair[0]))
        if best < _KIND or best - _rival(likeness, column, name) < _CLEARLY:
            break
        found[column] = name
        likeness = {pair: one for pair, one in likeness.items() if pair[0] != column and pair[1] != name}
    return found


def _rival(likeness: dict[tuple[str, str], float], column: str, name: str) -> float:
    """The largest likeness of another pair that has one of these two."""
    others = [one for pair, one in likeness.items() if (pair[0] == column) != (pair[1] == name)]
    return max(others, default=0.0)


def _likeness(values: "pd.Series[Any]", column: Column, source: DataSource) -> float:
    """How well the values fit the column, from 0 to 1."""
    texts = [text for text in texts_of(values).tolist() if text.lower() not in MISSING]
    if not texts:
        return 0.0
    if isinstance(column, CategoryColumn):
        known = {text_of(one) for one in column.categories}
        spelt = set(texts)
        if len(spelt) > 2 * len(known):
            return 0.0
        meant = {text for text in spelt if nearest(text, known) is not None}
        if meant:
            return _KIND + (1 - _KIND) * sum(text in meant for text in texts) / len(texts)
        return _KIND if len(spelt) == len(known) else 0.0
    if sum(map(bool, map(_DIGIT.search, texts))) < 0.9 * len(texts):
        return 0.0
    numbers, unread = numbers_as_written(values, column, source)
    if len(unread) > 0.1 * len(texts) or (len(numbers) > 2 and np.ptp(np.diff(numbers)) == 0):  # it counts the rows
        return 0.0
    if column.kind == "date":
        return 1.0
    low, high = np.nanquantile(numbers, [0.05, 0.95])

    def shared(factor: float) -> float:
        within = min(factor * high, column.high) - max(factor * low, column.low)
        return float(max(0.0, within) / (max(factor * high, column.high) - min(factor * low, column.low)))

    in_range = max(shared(1.0), *(_OTHER_UNIT * shared(factor) for factor in FACTORS))
    return 0.0 if in_range < _IN_RANGE else _KIND + (1 - _KIND) * in_range
