"""Records as they were read, before a task encodes them: what every reader of a file or named set returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Records:
    """``n`` raw records: the rows of ``frame``, and for images or matrices also what ``inputs`` returns.

    Attributes
    ----------
    origin : what to call them in an error.
    frame : one row per record, one column per label, group or table column.
    inputs : rows of the images ``[m, h, w]`` or ``[m, h, w, c]`` or of the matrix ``[m, d]`` at the given
        indices, read when asked for; None when the columns of ``frame`` are the inputs.
    label : the column of the class when the user names none.
    group : the column of those who belong together when the user names none.
    numbered : whether labels are the numbers of the task's classes where the classes are no numbers themselves.
    sorted_by_class : whether a part of the records must be chosen by a shuffle to hold all classes.
    """

    origin: str
    frame: pd.DataFrame
    inputs: Callable[[Indices], NDArray[Any]] | None = None
    label: str = "y"
    group: str | None = None
    numbered: bool = False
    sorted_by_class: bool = False

    def __len__(self) -> int:
        return len(self.frame)
