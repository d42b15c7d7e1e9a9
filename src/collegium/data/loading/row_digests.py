"""What a record is known by for good where no group names its person: its values, not its place in an export."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.loading.respelling import between_thousands, iso_date
from collegium.data.loading.sources import DataSource
from collegium.data.numbers import day_and_rest
from collegium.data.texts import MISSING, UNNAMED, spelt_once, text_of, texts_of, written

if TYPE_CHECKING:
    import pandas as pd

_COUNTS_ROWS = re.compile(
    rf"{UNNAMED.pattern}|#|file|level_0|_*index(_level_\d+_*)?|row([ _-]?(id|index|names?|no|nr|num|number))?s?|"
    r"((lfd|laufende)[ ._-]*)?(no|nr|nummer)\.?",
    re.IGNORECASE,
)
"""Names of columns that programs write beside a record's values: another export of the same records has others."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?")
_THOUSANDS = re.compile(r"[+-]?(\d{1,3}(,\d{3})+\.\d*|\d{1,3}(,\d{3}){2,}|\d{1,3}([ '\u2019]\d{3})+(\.\d*)?)")
"""Written so that the mark of the thousands cannot be that of the decimals."""
_MOMENT = re.compile(
    r"(?:(?P<day>\d{4}-\d\d-\d\d)(?:,? |t))?(?P<hour>\d\d?)(?P<minute>:\d\d)(?P<second>:\d\d)?"
    r"(?:(?P<parts>\.\d*?)0*)?(?: ?(?P<half>[ap])\.?m\.?)?(z|[+-]00:?(00)?)?"
)
_EITHER_MARK = (",", ".")
"""Of thousands or of decimals, which a text alone does not tell: 1,234."""
_WORDS = (
    {"true": "1", "false": "0"}
    | dict.fromkeys(("inf", "+inf", "infinity"), "inf")
    | dict.fromkeys(("-inf", "-infinity"), "-inf")
)
_EXCHANGED = str.maketrans(".,", ",.")


def counts_rows(name: object) -> bool:
    """Whether a column that is no input tells, by its name alone, where a record stands in its file.

    Not by its values: one record more could then change what all others are known by.
    """
    return _COUNTS_ROWS.fullmatch(str(name)) is not None


def row_digests(frame: pd.DataFrame, inputs: NDArray[Any] | None, source: DataSource) -> tuple[NDArray[np.void], str]:
    """SHA-256 of the values of each record, and what it is made of: the names of the columns, and how they are read.

    Values that exports spell otherwise count as equal: 1,50 and 1.5, 1e-05 and 0.00001, 0.1 of 32 bits, 31.01.2026 and
    2026-01-31 and its midnight, 1:05 PM and 13:05:00, True and 1, the marks of a missing value. So do 1,234 and 1234
    where the settings name the mark of the thousands, and 31/01/2026 where they say how dates are written. A task has
    no part in it: the settings hold for every text of the file. Two records that are equal by mistake share a budget.

    Parameters
    ----------
    frame : the columns that count, without the label.
    inputs : images or a matrix, a row a record; None where the columns are the inputs.
    source : how the file writes thousands, decimals and dates.
    """
    frame = frame.rename(columns=str)
    names = sorted(frame.columns)
    values = [_spelt(frame[name], source) for name in names]

    def digest_of(number: int) -> bytes:
        digest = hashlib.sha256(json.dumps([texts[number] for texts in values]).encode())
        if inputs is not None:
            digest.update((np.asarray(inputs[number], dtype=np.float64) + 0.0).tobytes())  # -0.0 is 0.0
        return digest.digest()

    digests = np.fromiter((digest_of(number) for number in range(len(frame))), dtype="V32", count=len(frame))
    # What an image is as numbers depends on the size that a task asks for.
    shape = [] if inputs is None else [f"inputs {'×'.join(map(str, inputs.shape[1:]))}"]
    # Under another of these the same text would be another value.
    read: dict[str, str] = {"thousands": source.thousands} if source.thousands in _EITHER_MARK else {}
    read |= {"dates": source.dates} if source.dates else {}
    return digests, json.dumps([*names, *shape, *([read] if read else [])])


def _spelt(values: pd.Series[Any], source: DataSource) -> list[str]:
    """One spelling of each value. The settings are about texts: the point of a number 1.234 is none of thousands."""
    import pandas as pd

    if isinstance(values.dtype, pd.StringDtype):
        alone = str.strip if source.thousands == "." else text_of
        # Without the zeros at a text's end, as arrays of texts have it.
        spellings = spelt_once(values, lambda text: _one_spelling(_as_read(alone(text).rstrip("\0"), source)))
        listed: list[str] = spellings.tolist()
        return listed
    is_text = [False] * len(values)
    if values.dtype.kind not in "biufM":
        is_text = [isinstance(value, str) for value in values.array]
    texts = written(values) if source.thousands == "." else texts_of(values)  # 200.000 is no 200 there
    each = list(zip(texts.tolist(), is_text, strict=True))
    spelt = {one: _one_spelling(_as_read(one[0], source) if one[1] else one[0]) for one in set(each)}
    return [spelt[one] for one in each]


def _as_read(text: str, source: DataSource) -> str:
    if source.thousands in _EITHER_MARK and source.thousands in text:
        number = between_thousands(source.thousands).sub("", text)
        text = number if _NUMBER.fullmatch(number.lower().replace(source.decimal, ".")) else text
    return iso_date(text, source.dates) if source.dates else text


def _one_spelling(text: str) -> str:
    text = " ".join(unicodedata.normalize("NFKC", text).split())
    lower = text.lower()
    grouped = filter(_THOUSANDS.fullmatch, (lower, lower.translate(_EXCHANGED)))
    numbers = [lower.replace(",", ".", 1), *(re.sub("[^0-9.+-]", "", number) for number in grouped)]
    text = next(map(_number, filter(_NUMBER.fullmatch, numbers)), text)
    if date := day_and_rest(text):
        text = f"{date[0]}{date[1]}"
    lower = text.lower()
    if lower in MISSING:
        return ""
    if found := _MOMENT.fullmatch(lower):
        return _moment(found)
    return _WORDS.get(lower, text)


def _moment(found: re.Match[str]) -> str:
    """A day without its midnight, a day and the time of 24 hours, or a time alone."""
    hour = int(found["hour"])
    if found["half"]:
        hour = hour % 12 + (12 if found["half"] == "p" else 0)
    parts = "" if found["parts"] in (None, ".") else found["parts"]
    time = f"{hour:02}{found['minute']}{found['second'] or ':00'}{parts}"
    if found["day"] is None:
        return time
    return found["day"] if time == "00:00:00" else f"{found['day']} {time}"


def _number(text: str) -> str:
    """A whole number with 15 digits, any other with 10, and one of 32 bits with those that tell it from others of 32.

    Programs keep 15, 16 or 17 digits of a number of 64 bits. Rounded to 15, what kept 16 often ends otherwise than what
    kept 17; rounded to 10, hardly ever. A number of 32 bits may have been made one of 64.
    """
    value = float(text) + 0.0  # -0.0 is 0.0
    digits = 15 if value.is_integer() else 10
    shown = f"{value:.{digits}g}"
    with np.errstate(over="ignore"):
        single = np.float32(shown)
    return f"{float(str(single)):.{digits}g}" if f"{float(single):.{digits}g}" == shown else shown
