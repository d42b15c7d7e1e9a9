"""What is unusual about a column of numbers or dates: their spelling, their unit, their range."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.data.loading.respelling import DATES, ROWS_LOOKED_AT, SPELLINGS, read_as_written
from collegium.data.loading.sources import DataSource
from collegium.data.numbers import like_dates, marks_of_missing, read_numbers
from collegium.data.task import Column, NumberColumn
from collegium.data.texts import counted, nearest, texts_of

SHOWN = 5
"""So many spellings of a kind are shown."""
FEWEST_FOR_UNITS = 10
"""Of fewer values nothing is said about their unit."""
FACTORS = (0.1, 10.0, 0.01, 100.0, 1e-3, 1e3, 1e-6, 1e6)
"""Between units, the likeliest first."""
CLIPPED_IF_SWAPPED = 0.1
"""Of one of two swapped columns, so much at least would be clipped; a tenth of that at most of each if swapped back."""
_WRITTEN: list[dict[str, Any]] = [
    {"decimal": ","},
    *({"thousands": one, "decimal": other} for one, other in SPELLINGS),
]
MOST_MARKS = 5
"""Of a column of numbers, so many different texts without a digit are proposed as marks of a missing value."""


def check_numbers(
    values: "pd.Series[Any]", column: NumberColumn, source: DataSource
) -> tuple[list[str], dict[str, Any]]:
    """What somebody should look at, and the settings that would help.

    Parameters
    ----------
    values : of the column, as ``source`` has them read.
    """
    dates = column.kind == "date"
    notes: list[str] = []
    numbers, unread, settings = numbers_as_written(values, column, source)
    if settings and dates:
        notes.append(f"{column.name}: dates are written as {settings['dates']}, if day and month are not swapped")
    if dates and (found := like_dates(unread)):
        notes.append(f"UNREAD DATES: {column.name} has dates such as {found!r}: write them as 2026-01-31")
    no_numbers = counted(len(unread), f"value is no {column.kind}", f"values are no {column.kind}s")
    said = [f"{no_numbers} ({some(Counter(unread))})"] if unread else []
    missing = int(np.isnan(numbers).sum()) - len(unread)
    said += [f"{missing} missing"] if missing else []
    digits = 7 if str(values.dtype).lower() == "float32" else 12
    below, above = int((numbers < column.low).sum()), int((numbers > column.high).sum())

    def shown(value: float) -> str:
        return str(np.datetime64(int(value), "D")) if dates else f"{value:.{digits}g}"

    said += [f"{below} below {shown(column.low)} (least {shown(np.nanmin(numbers))})"] if below else []
    said += [f"{above} above {shown(column.high)} (most {shown(np.nanmax(numbers))})"] if above else []
    if said:
        clipped = "; values outside the range count as its end" if below or above else ""
        notes.append(f"{column.name}: {', '.join(said)} of {len(values)}{clipped}")
    codes: list[tuple[str, int]] = []
    if not dates:
        told, factor = _unit(numbers[~np.isnan(numbers)], column)
        notes += told
        if factor is not None:
            settings["scale"] = {column.name: source.scale.get(column.name, 1.0) * factor}
        else:
            codes = _codes(values, numbers, column)
    notes += [f"CODE: {column.name} is {text} in {rows} rows, which may say that it is missing" for text, rows in codes]
    marks = marks_of_missing(unread, len(values))[:MOST_MARKS]
    if marks or codes:
        settings["values"] = dict.fromkeys([*marks, *(text for text, _ in codes)], "")
    return notes, settings


def _codes(values: "pd.Series[Any]", numbers: NDArray[np.float64], column: NumberColumn) -> list[tuple[str, int]]:
    """Numbers such as -1, 99 or -999 outside the range that several rows hold, but few of all; and how many do."""
    digits = np.char.lstrip(np.array([f"{number:g}" for number in np.abs(numbers)]), "9")
    coded = (digits == "") | (numbers == -1.0)
    outside = coded & ((numbers < column.low) | (numbers > column.high))
    found = Counter(texts_of(values[outside]).tolist())
    return [(text, count) for text, count in found.most_common() if 1 < count < len(values) / 2]


def swapped(frame: pd.DataFrame, columns: Sequence[Column], source: DataSource) -> list[tuple[str, str]]:
    """Pairs of columns of numbers of which each holds the other's values, as far as the task's ranges tell.

    Parameters
    ----------
    frame : rows with the task's names of columns, in the task's spelling of numbers.
    """
    known = {}
    for column in columns:
        if column.kind == "number" and column.name in frame.columns:
            numbers = read_numbers(frame[column.name], source.decimal)[0]
            if np.isfinite(numbers).sum() >= FEWEST_FOR_UNITS:
                known[column] = numbers[np.isfinite(numbers)]

    def within(numbers: NDArray[np.float64], column: NumberColumn) -> float:
        return float(_within(numbers, column).mean())

    pairs = [
        (one, other)
        for one, other in combinations(known, 2)
        if min(within(known[one], one), within(known[other], other)) <= 1 - CLIPPED_IF_SWAPPED
        and min(within(known[one], other), within(known[other], one)) >= 1 - CLIPPED_IF_SWAPPED / 10
    ]
    several = Counter(column for pair in pairs for column in pair)
    return [(one.name, other.name) for one, other in pairs if several[one] == several[other] == 1]


def spelling_of(frame: "pd.DataFrame", columns: Sequence[Column], source: DataSource) -> dict[str, Any]:
    """The settings with which most numbers of a file are read, where ``source`` does not read them all.

    One column tells what another does not: beside 26,5 the 9.996 is nine thousand.
    """
    rows = frame.iloc[:: max(1, len(frame) // ROWS_LOOKED_AT)]
    known = [one for one in columns if isinstance(one, NumberColumn) and one.kind == "number" and one.name in rows]

    def fits(settings: dict[str, Any]) -> tuple[int, int]:
        how, unread, within = source.model_copy(update=settings), 0, 0
        for column in known:
            numbers, left = read_as_written(rows[column.name], column, how)
            unread, within = unread + len(left), within + int(_within(numbers, column).sum())
        return -unread, within

    best = max([{}, *_WRITTEN], key=fits) if fits({})[0] else {}
    return {key: value for key, value in best.items() if value != getattr(source, key)}


def numbers_as_written(
    values: "pd.Series[Any]", column: NumberColumn, source: DataSource
) -> tuple[NDArray[np.float64], list[str], dict[str, Any]]:
    """Numbers, NaN where there is none, texts that are none, and the spelling by which most are read and lie within."""
    numbers, unread = read_numbers(values, source.decimal, dates=column.kind == "date")
    if not unread:
        return numbers, unread, {}
    tried: list[dict[str, Any]] = _WRITTEN if column.kind == "number" else [{"dates": one} for one in DATES]

    def fits(read: NDArray[np.float64], left: list[str]) -> tuple[int, int]:
        return -len(left), int(_within(read, column).sum())

    best = numbers, unread, dict[str, Any]()
    for settings in tried:
        read, left = read_as_written(values, column, source.model_copy(update=settings))
        if len(left) < len(unread) and fits(read, left) > fits(*best[:2]):
            best = read, left, {key: value for key, value in settings.items() if value != getattr(source, key)}
    return best


def _within(numbers: NDArray[np.float64], column: NumberColumn) -> NDArray[np.bool_]:
    return (numbers >= column.low) & (numbers <= column.high)


def _unit(known: NDArray[np.float64], column: NumberColumn) -> tuple[list[str], float | None]:
    """A loud note where most of a column would be clipped, and the factor that would change that."""

    def within(factor: float) -> float:
        return float(_within(known * factor, column).mean())

    if len(known) < FEWEST_FOR_UNITS or (share := within(1.0)) >= 0.5:
        return [], None
    told = f"UNITS: {1 - share:.0%} of {column.name} lie outside {column.low:g} to {column.high:g} and would be clipped"
    factor = max(FACTORS, key=within)
    if within(factor) <= 0.9:
        return [told], None
    return [f"{told}; times {factor:g}, {within(factor):.0%} would lie within"], factor


def some(counts: Mapping[str, int], known: set[str] | None = None) -> str:
    """The most frequent texts, each with the known one that it may stand for."""
    shown = []
    for text, count in Counter(counts).most_common(SHOWN):
        near = nearest(text, sorted(known)) if known else None
        shown.append(f"{count} × {text!r}" + (f": {near}?" if near else ""))
    return ", ".join(shown) + (", …" if len(counts) > SHOWN else "")
