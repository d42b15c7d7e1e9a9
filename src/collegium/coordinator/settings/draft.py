"""A first consortium.toml from a public file: the inputs as they are in it, and as few settings as possible.

Ranges and categories are taken from the file, which must therefore hold no private record.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.data.encoding import MISSING, texts_of
from collegium.data.loading.files import find, found_settings, image_files, open_npz, read_table
from collegium.data.loading.respelling import DATES, ROWS_LOOKED_AT, SPELLINGS, read_as_written
from collegium.data.loading.sources import DataSource
from collegium.data.numbers import EPOCH, READABLE, like_dates, read_numbers
from collegium.data.task import NumberColumn
from collegium.data.texts import row_numbers, written
from collegium.errors import ConfigurationError, DataError
from collegium.extras import optional_import
from collegium.settings import nearest, toml_value

KINDS = ("number", "category", "date", "out")
"""What a column may be told to be; ``out`` is no input."""
FEW_CODES = 12
"""Whole numbers with at most so many different values are codes, and so categories."""
ROWS_PER_CODE = 3
"""Provided that so many rows share a value on average."""
UNNAMED = 32
"""So many columns whose names differ by their numbers alone, all of them numbers, are one vector."""
_POINT: list[dict[str, str]] = [{"thousands": one} for one, decimal in SPELLINGS if decimal == "."]
_COMMA = [{"decimal": ","}, *({"decimal": ",", "thousands": one} for one, decimal in SPELLINGS if decimal == ",")]
BY_COMMAS, BY_OTHERS = [{}, *_POINT, *_COMMA], [{}, *_COMMA, *_POINT]
"""How the numbers of a file may be written, the likeliest first: with commas between its values, and otherwise."""
BY_SLASHES: list[dict[str, str]] = [{}, *({"dates": one} for one in DATES)]
ROWS_THAT_TELL = 20
"""With fewer rows, values that all differ say nothing about whether a column identifies its row."""


@dataclass
class Draft:
    """What was found in a public file.

    Parameters
    ----------
    source : the settings beside ``source`` in the section of the pool.
    inputs : the lines below ``[task.inputs]``.
    left_out : columns that are no inputs, and why.
    categories : the values of each column of categories.
    none : of columns of categories, in how many rows "none" stands, which may be a value.
    """

    source: dict[str, object]
    inputs: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    categories: dict[str, set[str]] = field(default_factory=dict)
    none: dict[str, int] = field(default_factory=dict)


def draft_of(
    name: str, root: Path, kinds: Mapping[str, str], out: Sequence[str], categories: int, sheet: str | None = None
) -> Draft:
    """What a configuration says of the pool ``name``.

    Parameters
    ----------
    name : a CSV, Parquet or npz file, or a folder of images; a relative path starts at ``root``.
    kinds : one of `KINDS` for columns whose kind the user knows better.
    out : columns that are no inputs where the file has them, such as the class.
    categories : of a column of texts, the most values that are told apart.
    sheet : of a workbook; the first one where it is None.

    Raises
    ------
    DataError
        If the file cannot be read, or holds nothing to learn from.
    ConfigurationError
        If ``kinds`` names a column that the file lacks, or an unknown kind.
    """
    path = find(name, root, settled=True)
    if path.is_dir():
        return Draft({"source": name}, _image_lines(path))
    if path.suffix.lower() == ".npz":
        arrays = open_npz(path)
        x = arrays.get("x", arrays.get("x_train"))
        if x is None:
            raise DataError(f"{path} has no array x, which holds the inputs; there are {', '.join(arrays) or 'none'}")
        if x.ndim in (3, 4):
            return Draft({"source": name}, _shape_lines(*x.shape[1:]))
        if x.ndim != 2:
            raise DataError(f"{path}: x is neither a table [n, columns] nor images [n, height, width]")
        frame = pd.DataFrame(x, columns=[f"column-{number}" for number in range(x.shape[1])])
        return _table(frame, Draft({"source": name}), kinds, out, categories)
    beside = {} if sheet is None else {"sheet": sheet}
    settings, frame = found_settings(path, DataSource.model_validate({"source": name, **beside}), read_table)
    return _table(frame, Draft({"source": name, **beside, **settings}), kinds, out, categories)


def _table(frame: pd.DataFrame, draft: Draft, kinds: Mapping[str, str], out: Sequence[str], categories: int) -> Draft:
    unnamed = [name for name in row_numbers(frame) if name not in kinds]
    draft.left_out |= {"a column without a name": "it numbers the rows"} if unnamed else {}
    frame = frame.drop(columns=unnamed)
    names = [str(name) for name in frame.columns]
    for name in kinds:
        if name not in names:
            raise ConfigurationError(f"the pool has no column {name!r}{nearest(name, names)}")
    for kind in kinds.values():
        if kind not in KINDS:
            raise ConfigurationError(f"no kind of column is called {kind!r}{nearest(kind, KINDS)}")
    values = frame[[column for column in frame.columns if str(column) not in out]]
    if not kinds and (size := _vector_size(values)):
        draft.inputs = ['kind = "vector"', f"size = {size}"]
        return draft
    columns = {name: _Column(name, frame[column]) for name, column in zip(names, frame.columns, strict=True)}
    how = DataSource.model_validate(draft.source)
    marks = BY_COMMAS if how.separator == "," else BY_OTHERS
    for kind, spellings in (("number", marks), ("date", BY_SLASHES)):
        read = [sum(column.reads(kind, how, one) for column in columns.values()) for one in spellings]
        draft.source |= spellings[int(np.argmax(read))]
    how = DataSource.model_validate(draft.source)
    for column in columns.values():
        column.read(how)
    lines = []
    for name, column in columns.items():
        kind, why = ("out", "") if name in out else (kinds[name], "as told") if name in kinds else column.kind()
        if kind == "out":
            draft.left_out |= {name: why} if why else {}
            lines += [f"    # {name}: {why}"] if why else []
        else:
            lines.append(f"    {column.line(kind, categories)}")
            if kind == "category":
                draft.categories[name] = column.different
                draft.none |= {name: column.none} if column.none else {}
    if not any(line.strip().startswith("{") for line in lines):
        raise DataError("no column of the pool can be an input: say what one is with --column NAME=KIND")
    draft.inputs = ['kind = "table"', "columns = [", *lines, "]"]
    return draft


def _vector_size(frame: pd.DataFrame) -> int:
    """How many numbers without names of their own a row holds; 0 where it is no vector of such numbers."""
    names = [str(name) for name in frame.columns]
    first: Any = frame.iloc[0, 0] if len(names) == 1 and len(frame) else None
    if np.ndim(first) == 1:
        return len(first)
    if len(names) < UNNAMED or len({name.rstrip("0123456789") for name in names}) > 1:
        return 0
    return 0 if any(read_numbers(frame[name])[1] for name in frame.columns) else len(names)


class _Column:
    """One column of a public table: what it may be, and its line in the configuration."""

    def __init__(self, name: str, values: "pd.Series[Any]") -> None:
        self._name = name
        self._rows = len(values)
        texts = texts_of(values)
        self.none = sum(text.lower() == "none" for text in texts.tolist())
        known = np.array([text.lower() not in MISSING for text in texts.tolist()], dtype=bool)
        self._texts, self._written = texts[known].tolist(), pd.Series(written(values)[known], dtype=object)
        self._numbers = self._days = np.empty(0)
        self._no_number, self._no_date = list[str](), list[str]()
        self.different = set(self._texts)
        """Its values, missing ones aside."""

    def reads(self, kind: str, how: DataSource, spelling: Mapping[str, str]) -> int:
        """How many of some values are numbers, or dates, under a spelling; 0 where they are too few for that."""
        some = self._written.iloc[:: max(1, len(self._written) // ROWS_LOOKED_AT)]
        if not any(map(str.isdigit, "".join(some))):
            return 0
        _, unread = _read(some, kind, how.model_copy(update=dict(spelling)))
        return len(some) - len(unread) if len(unread) <= (1 - READABLE) * len(some) else 0

    def read(self, how: DataSource) -> None:
        """Take the values for what they are under a spelling."""
        self._numbers, self._no_number = _read(self._written, "number", how)
        self._days, self._no_date = _read(self._written, "date", how)

    def kind(self) -> tuple[str, str]:
        """One of `KINDS`, and why where it is ``out``."""
        different, number, date = len(self.different), not self._no_number, not self._no_date
        one_each = different == self._rows >= ROWS_THAT_TELL
        if different < 2:
            one = "one value beside 'none', which counts as missing" if self.none else "the same value in every row"
            return "out", one if self._texts else "no values"
        if number and not date:  # 20260131 is both
            whole = bool((self._numbers == np.rint(self._numbers)).all())
            if whole and one_each:
                return "out", "a whole number of its own in every row; a number that names a row is no input"
            few = different <= FEW_CODES and len(self._texts) >= ROWS_PER_CODE * different
            return "category" if whole and few else "number", ""  # few whole numbers are probably codes
        if date:
            return "date", ""
        for unread, what in ((self._no_number, "numbers"), (self._no_date, "dates")):
            if len(unread) <= (1 - READABLE) * len(self._texts):
                return "out", f"{len(unread)} values are no {what}, such as {unread[0]!r}; correct them in the pool"
        if found := like_dates(self._no_date):
            return "out", f"UNREAD DATES such as {found!r}: write them as 2026-01-31 in the pool"
        if one_each or 2 * different > self._rows >= ROWS_THAT_TELL:
            return "out", f"{different} different texts in {self._rows} rows; a name or an identity is no input"
        return "category", ""

    def line(self, kind: str, categories: int) -> str:
        """The table of TOML that describes the column; ConfigurationError where its values are of another kind."""
        name = toml_value(self._name)
        if kind == "category":
            counts = Counter(self._texts).most_common(categories)
            more = len(self.different) - len(counts)
            note = "  # codes? For an amount, write --column NAME=number" if not self._no_number else ""
            note = f"  # {more} rarer values count as any other" if more else note
            return f'{{ kind = "category", name = {name}, categories = {toml_value(_in_order(counts))} }},{note}'
        if not self._texts or (self._no_number if kind == "number" else self._no_date):
            raise ConfigurationError(f"the values of the column {self._name!r} are no {kind}s")
        if kind == "date":
            low, high = (EPOCH + timedelta(days=int(day)) for day in (self._days.min(), self._days.max()))
            high = high if low < high else low + timedelta(days=1)
            return f'{{ kind = "date", name = {name}, low = {low}, high = {high} }},'
        least = _rounded(float(self._numbers.min()), math.floor)
        most = _rounded(float(self._numbers.max()), math.ceil)
        most = most if least < most else least + 1
        return f'{{ kind = "number", name = {name}, low = {least:.12g}, high = {most:.12g} }},'


def _read(texts: "pd.Series[Any]", kind: str, how: DataSource) -> tuple[NDArray[np.float64], list[str]]:
    return read_as_written(texts, NumberColumn(kind=kind, name="x", low=0, high=1), how)  # type: ignore[arg-type]


def _in_order(counts: Sequence[tuple[str, int]]) -> list[str]:
    """The values in order: numbers by their size, texts by the alphabet."""
    values = [value for value, _ in counts]
    numbers, others = read_numbers(pd.Series(values, dtype=object))
    return sorted(values) if others else [values[place] for place in np.argsort(numbers, kind="stable")]


def _rounded(value: float, to_whole: Callable[[float], int]) -> float:
    """The value at two significant digits, down or up by ``to_whole``: room for inputs to come."""
    if value == 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    return to_whole(value / step) * step


def _image_lines(path: Path) -> list[str]:
    files = image_files(path)
    if not files:
        raise DataError(f"{path} holds no images")
    with optional_import("reading images"):
        from PIL import Image
    try:
        with Image.open(files[0]) as image:
            return _shape_lines(image.height, image.width, len(image.getbands()))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {files[0]}: it is damaged, or no image") from error


def _shape_lines(height: int, width: int, channels: int = 1) -> list[str]:
    return ['kind = "image"', f"height = {height}", f"width = {width}", f"channels = {channels}"]
