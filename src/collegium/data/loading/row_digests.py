"""What a record is known by for good where no group names its person: its values, not its place in an export."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.texts import MISSING, UNNAMED, texts_of

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
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[ t](\d\d:\d\d)(:\d\d)?(?:(\.\d*?)0*)?(z|[+-]00:?(00)?)?")
_TRUTHS = {"true": "1", "false": "0"}
_EXCHANGED = str.maketrans(".,", ",.")


def counts_rows(name: object) -> bool:
    """Whether a column that is no input tells, by its name alone, where a record stands in its file.

    Not by its values: one record more could then change what all others are known by.
    """
    return _COUNTS_ROWS.fullmatch(str(name)) is not None


def row_digests(frame: pd.DataFrame, inputs: NDArray[Any] | None) -> tuple[NDArray[np.void], str]:
    """SHA-256 of the values of each record, and what it is made of: the names of the columns, sorted.

    Values that exports spell otherwise count as equal, whatever the settings: 1,50 and 1.5, 1e-05 and 0.00001, 0.1 of
    32 bits, a date and its midnight, True and 1, the marks of a missing value. Two records that are equal by mistake
    share a budget. Only 1,234 for 1234 is another number, and 31.01.2026 another text than 2026-01-31.

    Parameters
    ----------
    frame : the columns that count, without the label.
    inputs : images or a matrix, a row a record; None where the columns are the inputs.
    """
    frame = frame.rename(columns=str)
    names = sorted(frame.columns)
    values = [_spelt(_shortest(frame[name])) for name in names]

    def digest_of(number: int) -> bytes:
        digest = hashlib.sha256(json.dumps([texts[number] for texts in values]).encode())
        if inputs is not None:
            digest.update((np.asarray(inputs[number], dtype=np.float64) + 0.0).tobytes())  # -0.0 is 0.0
        return digest.digest()

    digests = np.fromiter((digest_of(number) for number in range(len(frame))), dtype="V32", count=len(frame))
    # What an image is as numbers depends on the size that a task asks for.
    shape = [] if inputs is None else [f"inputs {'×'.join(map(str, inputs.shape[1:]))}"]
    return digests, json.dumps([*names, *shape])


def _spelt(texts: NDArray[np.str_]) -> list[str]:
    each = texts.tolist()
    spelt = {text: _one_spelling(text) for text in set(each)}
    return [spelt[text] for text in each]


def _shortest(values: pd.Series[Any]) -> NDArray[np.str_]:
    """The texts of values; of numbers of 32 bits those that other programs write, without the digits beyond these."""
    if str(values.dtype).lower() == "float32":
        values = values.astype(object).map(lambda value: str(np.float32(value)), na_action="ignore")
    return texts_of(values)


def _one_spelling(text: str) -> str:
    text = " ".join(unicodedata.normalize("NFKC", text).split())
    lower = text.lower()
    if _NUMBER.fullmatch(number := lower.replace(",", ".", 1)):
        return _number(number)
    for number in (lower, lower.translate(_EXCHANGED)):
        if _THOUSANDS.fullmatch(number):
            return _number(re.sub("[^0-9.+-]", "", number))
    if lower in MISSING:
        return ""
    if found := _MOMENT.fullmatch(lower):
        time = f"{found[2]}{found[3] or ':00'}{'' if found[4] in (None, '.') else found[4]}"
        return found[1] if time == "00:00:00" else f"{found[1]} {time}"
    return _TRUTHS.get(lower, text)


def _number(text: str) -> str:
    """As programs write it that keep 15 of the 17 digits that tell numbers of 64 bits apart."""
    return f"{float(text) + 0.0:.15g}"  # -0.0 is 0.0
