"""Numbers and dates as files write them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.texts import MISSING, written

if TYPE_CHECKING:
    import pandas as pd

READABLE = 0.8
"""A column of which so much is read as numbers, or as dates, is meant to be one of these."""
EPOCH = date(1970, 1, 1)
"""A date counts as the number of days since this one."""
_TIME = r"(?P<rest>(?:(?:,? |T)\d\d?:\d\d\S*(?: ?[AaPp]\.?[Mm]\.?)?)?)"
_DATES = [
    re.compile(written + _TIME)
    for written in (
        r"(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d\d?)(?P=mark)(?P<day>\d\d?)",
        r"(?P<day>\d\d?)(?:\.(?P<month>\d\d?)\.|[-. ]{0,2}(?P<name>[A-Za-z]{3,9})[-. ]{0,2})(?P<year>\d{4})",
        r"(?P<year>(?:19|20)\d\d)(?P<month>\d\d)(?P<day>\d\d)",
        r"(?P<name>[A-Za-z]{3,9})\.? (?P<day>\d\d?)(?:st|nd|rd|th)?,? (?P<year>\d{4})",
    )
]
"""2026-01-31, 20260131, 31.01.2026, 31-Jan-2026 or Jan 31, 2026; the time of the day that may follow is not read."""
_LIKE_A_DATE = re.compile(
    r"(?:[^\W\d_]{2,10}[.,]{0,2} )?"
    r"(?:\d\d?(?:st|nd|rd|th)?[-/. ]{1,2}(?:\d\d?|[^\W\d_]{3,10})[-/., ]{1,2}(?:\d\d){1,2}"
    r"|\d{4}[-/. ]{1,2}(?:\d\d?|[^\W\d_]{3,10})[-/. ]{1,2}\d\d?"
    r"|[^\W\d_]{3,10}\.? \d\d?(?:st|nd|rd|th)?,? (?:19|20)\d\d)" + _TIME
)
"""Of any language, with or without a day of the week, and with a year of two digits too."""
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
DAY_OR_MONTH_FIRST = re.compile(r"(\d\d?)([/-])(\d\d?)\2(\d{4})(.*)")
"""A date that only a setting can read: 17/03/2016, or 3/17/2016, and the time that may follow."""


def read_numbers(
    values: pd.Series[Any], decimal: str = ".", *, dates: bool = False
) -> tuple[NDArray[np.float64], list[str]]:
    """The numbers that ``values`` write, or the days of the dates, and the texts that are neither.

    Returns
    -------
    The numbers, shape ``[n]``, NaN where a value is missing or cannot be read; and each text that cannot be read, once
    for every row that holds it.
    """
    import pandas as pd

    if pd.api.types.is_numeric_dtype(values.dtype) and not dates:
        return values.to_numpy(dtype=np.float64, na_value=np.nan), []
    texts, where = np.unique(written(values), return_inverse=True)
    read = [_days(text) if dates else number_of(text, decimal) for text in texts]
    numbers = np.array([math.nan if number is None else number for number in read])[where]
    return numbers, [str(texts[row]) for row in where if read[row] is None]


def marks_of_missing(unread: Sequence[str], rows: int) -> list[str]:
    """Different texts of a column of numbers that may say that there is none: without a digit, in few of its rows."""
    few = 2 * len(unread) < rows
    return [text for text in dict.fromkeys(unread) if few and not re.search(r"\d", text)]


def like_dates(texts: Sequence[str]) -> str | None:
    """The first of some texts that looks like a date, where most do; they may be written as nothing here reads them."""
    alike = [text for text in texts if _LIKE_A_DATE.fullmatch(text)]
    return alike[0] if alike and len(alike) >= READABLE * len(texts) else None


def number_of(text: str, decimal: str = ".") -> float | None:
    """The number, NaN for a mark of a missing value, None for text that is neither."""
    if text.lower() in MISSING:
        return math.nan
    if decimal == ",":
        text = "no number" if "." in text else text.replace(",", ".")
    try:
        return float(text)
    except ValueError:
        return None


def _days(text: str) -> float | None:
    """The days since 1970-01-01 of a date, NaN for a mark of a missing value, None for text that is neither."""
    if text.lower() in MISSING:
        return math.nan
    found = day_and_rest(text)
    return None if found is None else float((found[0] - EPOCH).days)


def day_and_rest(text: str) -> tuple[date, str] | None:
    """The day of a date as 2026-01-31, 20260131, 31.01.2026, 31-Jan-2026 or Jan 31, 2026, and the text after it.

    None for any other text.
    """
    found = next(filter(None, (written.fullmatch(text) for written in _DATES)), None)
    if found is None:
        return None
    parts = found.groupdict()
    try:
        month = int(parts.get("month") or _month_called(parts["name"].lower()))
        return date(int(parts["year"]), month, int(parts["day"])), found["rest"]
    except ValueError:
        return None


def _month_called(name: str) -> int:
    """The number of the month whose English name begins so; 0 for none."""
    return next((number for number, month in enumerate(_MONTHS, 1) if month.startswith(name)), 0)
