"""What a record is known by for good where no group names its person: its values, not its place in an export."""

from __future__ import annotations

import hashlib
import json
import re
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
_DECIMALS = re.compile(r"([+-]?\d+)[.,](\d*?)0*")
_MIDNIGHT = re.compile(r"(\d{4}-\d\d-\d\d)[ T]00:00(:00(\.0+)?)?")


def counts_rows(name: object) -> bool:
    """Whether a column that is no input tells, by its name alone, where a record stands in its file.

    Not by its values: one record more could then change what all others are known by.
    """
    return _COUNTS_ROWS.fullmatch(str(name)) is not None


def row_digests(frame: pd.DataFrame, inputs: NDArray[Any] | None) -> tuple[NDArray[np.void], str]:
    """SHA-256 of the values of each record, and what it is made of: the names of the columns, sorted.

    Values that exports spell otherwise count as equal, whatever the settings: 1,50 and 1.5, a date and its midnight,
    the marks of a missing value. Two records that are equal by mistake share a budget.

    Parameters
    ----------
    frame : the columns that count, without the label.
    inputs : images or a matrix, a row a record; None where the columns are the inputs.
    """
    names = sorted(map(str, frame.columns))
    values = [_spelt(texts_of(frame[name])) for name in names]

    def digest_of(number: int) -> bytes:
        digest = hashlib.sha256(json.dumps([texts[number] for texts in values]).encode())
        if inputs is not None:
            digest.update(np.ascontiguousarray(inputs[number]).tobytes())
        return digest.digest()

    digests = np.fromiter((digest_of(number) for number in range(len(frame))), dtype="V32", count=len(frame))
    # What an image is as numbers depends on the size that a task asks for.
    shape = [] if inputs is None else [f"inputs {'×'.join(map(str, inputs.shape[1:]))}"]
    return digests, json.dumps([*names, *shape])


def _spelt(texts: NDArray[np.str_]) -> list[str]:
    each = texts.tolist()
    spelt = {text: _one_spelling(text) for text in set(each)}
    return [spelt[text] for text in each]


def _one_spelling(text: str) -> str:
    if text.lower() in MISSING:
        return ""
    if found := _DECIMALS.fullmatch(text):
        return f"{found[1]}.{found[2]}" if found[2] else found[1]
    found = _MIDNIGHT.fullmatch(text)
    return found[1] if found else text
