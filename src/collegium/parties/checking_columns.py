"""Which column of a file a column of the task probably is, by its values, where the names tell nothing."""

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from collegium.data.encoding import MISSING, text_of, texts_of
from collegium.data.loading.sources import DataSource
from collegium.data.numbers import READABLE
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
_WORD = re.compile(r"[^\W\d_]{2,}")
_SAME_WORD = 0.3
"""What it adds to a likeness if the two names have a word in common, such as a unit."""
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
    likeness |= {
        (one, own): best + _SAME_WORD for (one, own), best in likeness.items() if best and _share_a_word(one, own)
    }
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


def _share_a_word(one: str, another: str) -> bool:
    return not {*_WORD.findall(one.casefold())}.isdisjoint(_WORD.findall(another.casefold()))


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
    if sum(map(bool, map(_DIGIT.search, texts))) < READABLE * len(texts):
        return 0.0
    numbers, unread, _ = numbers_as_written(values, column, source)
    counts_rows = len(numbers) > 2 and np.ptp(np.diff(numbers)) == 0
    if len(unread) > (1 - READABLE) * len(texts) or counts_rows:
        return 0.0
    if column.kind == "date":
        return 1.0
    # A pool's range ends at its rarest values; those of the file may be mistakes: each counts for half.
    ranges = np.nanquantile(numbers, [0.05, 0.95]), np.nanquantile(numbers, [0.0, 1.0])

    def shared(factor: float) -> float:
        within = [min(factor * high, column.high) - max(factor * low, column.low) for low, high in ranges]
        either = [max(factor * high, column.high) - min(factor * low, column.low) for low, high in ranges]
        return float(np.mean([max(0.0, both) / all_ for both, all_ in zip(within, either, strict=True)]))

    in_range = max(shared(1.0), *(_OTHER_UNIT * shared(factor) for factor in FACTORS))
    return 0.0 if in_range < _IN_RANGE else _KIND + (1 - _KIND) * in_range
