"""Read one sheet of an Excel workbook (``.xlsx``) as a table of texts, as if it had been saved as CSV.

Each cell by itself: how a value is read must not depend on the other rows.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collegium.data.texts import as_written, number_rows
from collegium.errors import DataError
from collegium.extras import optional_import

if TYPE_CHECKING:
    import pandas as pd

ENDING = ".xlsx"
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, SyntaxError, zipfile.BadZipFile)
"""What openpyxl raises for a file that is none of its own."""


def read_sheet(path: Path, sheet: str | None, decimal: str) -> pd.DataFrame:
    """The rows below the first one, which names the columns; rows without any value are none.

    Only a first column that numbers the rows may have no name; it is called as pandas calls one of a CSV file.

    Parameters
    ----------
    sheet : its name; the first one where it is None.
    decimal : the mark with which numbers are written into the texts.

    Raises
    ------
    DataError
        If the file cannot be read, has no such sheet, or its first row does not name every other column once.
    MissingExtra
        If openpyxl is not installed.
    """
    import pandas as pd

    with _workbook(path) as book:
        rows = enumerate(_sheet(path, book, sheet).iter_rows(values_only=True), 1)
        held = [(number, [_text(value, decimal) for value in row]) for number, row in rows]
        sheets = ", ".join(repr(one.title) for one in book.worksheets)
    held = [(number, texts) for number, texts in held if any(texts)]
    if not held:
        raise DataError(f"{path} is empty")
    (first, names), *records = held
    width = max(place for _, texts in held for place, text in enumerate(texts, 1) if text)
    names += [""] * (width - len(names))
    if not names[0] and number_rows([texts[0] for _, texts in records]):
        names[0] = "Unnamed: 0"
    for number, name in enumerate(names[:width]):
        if not name:
            raise DataError(
                f"{path}: row {first} names no column {number + 1}: its first row must hold the names of the columns; "
                f"remove titles and notes above and beside the table, or name another sheet (there are {sheets})"
            )
        if names.index(name) != number:
            raise DataError(f"{path}: two columns are called {name!r}: name one of them otherwise")
    filled = [texts[:width] + [""] * (width - len(texts)) for _, texts in records]
    lines = pd.Index([number for number, _ in records], name="lines", dtype="int64")
    return pd.DataFrame(filled, columns=names[:width], index=lines, dtype=object)


def sheets_of(path: Path) -> list[str]:
    """The names of a workbook's sheets; DataError where it cannot be read."""
    with _workbook(path) as book:
        return [str(one.title) for one in book.worksheets]


def names_in(path: Path, sheet: str | None) -> list[str]:
    """The names of a sheet's columns, in the first row that holds anything; DataError where it cannot be read."""
    with _workbook(path) as book:
        rows = ([_text(value, ".") for value in row] for row in _sheet(path, book, sheet).iter_rows(values_only=True))
        return [name for name in next(filter(any, rows), []) if name]


@contextmanager
def _workbook(path: Path) -> Iterator[Any]:
    with optional_import(f"reading {path.name}"):
        import openpyxl

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of formats and extensions that hold no values
            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
            try:
                yield book
            finally:
                book.close()
    except _UNREADABLE as error:
        raise DataError(
            f"cannot read {path}: it is no workbook of Excel, damaged, or protected by a password: save it again as "
            ".xlsx without one, or as CSV"
        ) from error


def _sheet(path: Path, book: Any, name: str | None) -> Any:
    sheets = {str(one.title): one for one in book.worksheets}
    if not sheets or (name is not None and name not in sheets):
        there = ", ".join(map(repr, sheets)) or "none"
        raise DataError(f"{path} has no sheet {name!r}; there are {there}: correct sheet")
    chosen = next(iter(sheets.values())) if name is None else sheets[name]
    chosen.reset_dimensions()  # what a program wrote of its size may be wrong
    return chosen


def _text(value: Any, decimal: str) -> str:
    """What a cell shows: a date without its midnight, TRUE and FALSE, a number with the decimal mark."""
    match value:
        case bool():
            return str(value).upper()
        case datetime() if value.time() == time():
            return value.date().isoformat()
        case datetime():
            return value.isoformat(" ", timespec="seconds")
        case date() | time():
            return value.isoformat()
    return as_written(value, decimal)
