"""One spelling for equal values, whichever way a file or a program holds them, and what a misspelt one stands for."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

MISSING = frozenset({"", "?", "na", "n/a", "nan", "<na>", "nat", "null", "none"})
"""How files write that a value is missing, in lower case."""

UNNAMED = re.compile(r"Unnamed: \d+(\.\d+)?")
"""What a column without a name is called, as pandas does it."""
_WHOLE_NUMBER = re.compile(r"([+-]?\d+)\.0*")


def counted(number: int, one: str, several: str) -> str:
    """The number with what it counts: ``1 row is``, ``2 rows are``."""
    return f"{number} {one if number == 1 else several}"


def text_of(value: object) -> str:
    """One spelling for equal values: no blanks around it, whole numbers without a decimal point, missing as ``""``.

    Files differ in how they write one value (``3`` or ``3.0``), and whether a reader takes a column for
    integers may depend on another row. After this function neither matters.
    """
    import pandas as pd

    if value is None or value is pd.NA or value is pd.NaT:
        return ""
    if isinstance(value, float | np.floating):
        if np.isnan(value):
            return ""
        value = float(value)
    if isinstance(value, bytes):
        value = value.decode("utf-8", errors="replace")
    text = str(value).strip()
    whole = _WHOLE_NUMBER.fullmatch(text)
    text = whole.group(1) if whole else text
    return "0" if text == "-0" else text


def as_written(value: object, decimal: str) -> str:
    """A text as it is written, and a number with the decimal mark, as settings read texts; else `text_of`."""
    match value:
        case str():
            return value.strip()  # 200.000 may be two hundred thousand
        case float() | Decimal():
            return text_of(value).replace(".", decimal)
    return text_of(value)


def texts_of(values: pd.Series[Any]) -> NDArray[np.str_]:
    """`text_of` of every value."""
    if values.dtype == object:  # mixed types, among which True equals 1
        return np.array([text_of(value) for value in values.array], dtype=np.str_)
    return spelt_once(values, text_of)


def spelt_once(values: pd.Series[Any], spell: Callable[[Any], str]) -> NDArray[np.str_]:
    """``spell`` of every value, asked once for each that differs; "" where there is none."""
    import pandas as pd

    codes, distinct = pd.factorize(values)
    return np.array([*map(spell, distinct), ""], dtype=np.str_)[codes]


def number_rows(texts: Sequence[str]) -> bool:
    """Whether these are whole numbers, no two of them alike, as programs write them to number the rows of a table."""
    return len(set(texts)) == len(texts) and all(text.isdecimal() for text in texts)


def row_numbers(frame: pd.DataFrame) -> list[str]:
    """The columns that have no name and number the rows: what pandas writes of a frame's index."""
    unnamed = [name for name in frame.columns if UNNAMED.fullmatch(str(name))]
    return [name for name in unnamed if number_rows(texts_of(frame[name]).tolist())]


def written(values: pd.Series[Any]) -> NDArray[np.str_]:
    """`texts_of` of every value, but a text as it is written: ``200.000`` may be two hundred thousand."""
    import pandas as pd

    if isinstance(values.dtype, pd.StringDtype):
        return spelt_once(values, str.strip)
    texts = texts_of(values)
    if values.dtype.kind in "biufM":
        return texts
    pairs = zip(values.array, texts, strict=True)
    return np.array([value.strip() if isinstance(value, str) else text for value, text in pairs], dtype=np.str_)


def nearest(text: str, known: Iterable[object]) -> str | None:
    """The known text that is most like ``text``, whatever the letters' case; None where none is like it."""
    folded = {str(one).casefold(): str(one) for one in known}
    close = difflib.get_close_matches(text.casefold(), list(folded), 1, 0.7)
    return folded[close[0]] if close else None
