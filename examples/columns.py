"""The columns of a public table, ready for [task.inputs] in consortium.toml.

    python columns.py pool.csv [COLUMN TO LEAVE OUT ...]

Give it the pool, which is public. Given records, it would publish their smallest and largest values.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from collegium.data.encoding import MISSING, text_of
from collegium.data.loading.files import find, read_csv
from collegium.errors import CollegiumError

MOST_CATEGORIES = 60


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit("which file? python columns.py pool.csv [COLUMN TO LEAVE OUT ...]")
    try:
        frame = read_csv(find(sys.argv[1], Path.cwd()))
    except CollegiumError as error:
        raise SystemExit(str(error)) from None
    lines = [line_of(str(name), frame[name]) for name in frame.columns if name not in sys.argv[2:]]
    print("\n".join(['[task.inputs]\nkind = "table"\ncolumns = [', *lines, "]"]))


def line_of(name: str, values: pd.Series[str]) -> str:
    """The TOML line of one column: a number with its range, a category with its values, or why it is left out."""
    known = sorted({text_of(value) for value in values if text_of(value).lower() not in MISSING})
    if not known:
        return f"    # {name}: no values"
    try:
        numbers = [float(value) for value in known]
    except ValueError:
        if len(known) > MOST_CATEGORIES:
            return f"    # {name}: {len(known)} different texts; a name or an identity is no input"
        categories = json.dumps(known, ensure_ascii=False)
        return f'    {{ kind = "category", name = {json.dumps(name, ensure_ascii=False)}, categories = {categories} }},'
    low, high = rounded(min(numbers), math.floor), rounded(max(numbers), math.ceil)
    high = high if low < high else low + 1
    name = json.dumps(name, ensure_ascii=False)
    return f'    {{ kind = "number", name = {name}, low = {low:.12g}, high = {high:.12g} }},'


def rounded(value: float, to_whole: Callable[[float], int]) -> float:
    """The value at two significant digits, down or up by ``to_whole``: room for inputs to come."""
    if value == 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    return to_whole(value / step) * step


if __name__ == "__main__":
    main()
