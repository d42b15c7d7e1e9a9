"""Where records come from (a named public set or the user's own file, and which part), and records once read."""

import codecs
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from collegium.extras import installed
from collegium.settings import Frozen

if TYPE_CHECKING:
    import pandas as pd

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
    frame: "pd.DataFrame"
    inputs: Callable[[Indices], NDArray[Any]] | None = None
    label: str = "y"
    group: str | None = None
    numbered: bool = False
    sorted_by_class: bool = False

    def __len__(self) -> int:
        return len(self.frame)


DATA_ROOT_VARIABLE = "COLLEGIUM_DATA"

NAMED_SETS = ("breast-cancer", "digits", "iris", "wine")
"""The public sets that scikit-learn brings; those of the papers come with the package collegium-reproduction."""

ENTRY_POINT_GROUP = "collegium.sources"
"""Where another installed package names data sources of its own: objects as `loading.NamedSource` describes them."""


@cache
def named_sources() -> tuple[str, ...]:
    """Names of the public sets and of the sources of installed packages; nothing of theirs is imported.

    A package cannot take the name of a public set.
    """
    return tuple(dict.fromkeys((*NAMED_SETS, *(point.name for point in installed(ENTRY_POINT_GROUP)))))


class DataSource(Frozen):
    """Records ``start`` to ``stop`` of one split of a named public set, of an installed package's source or of a file.

    A file is an ``.npz`` (arrays ``x`` and ``y``, or ``x_train``, ``y_train``, ``x_test``, ``y_test``;
    further arrays of as many rows are columns), a ``.csv`` or ``.parquet``, compressed or not, an ``.xlsx``, a folder
    of images (DICOM too) with one sub-folder per class, or a folder that Hugging Face's ``save_to_disk`` wrote. A
    relative path starts at the data root. A database is named by its SQLAlchemy URL, and ``query`` by its SQL.

    ``start`` and ``stop`` count positions, so that one record less shifts another into the part: they are for
    public records and for simulations. An institution gives its own records a file of their own.
    """

    source: str = Field(min_length=1)
    split: Literal["train", "test", "all"] = "train"
    """A file without splits is all of it ``train``."""
    start: int = Field(default=0, ge=0)
    stop: int | None = Field(default=None, ge=0)
    label: str | None = None
    """The column of the class; a named set knows its own, a file has ``y``. In a multilabel task every class is a
    column of 0 and 1 instead, or ``y`` of an ``.npz`` holds them, a row a record."""
    group: str | None = None
    """A column whose equal values belong together, as all visits of one patient do."""
    shuffle_seed: int | None = Field(default=None, ge=0)
    """Order the whole split by this seed before ``start`` and ``stop`` apply; named sets alone."""
    separator: str = Field(default=",", min_length=1, max_length=1)
    """What stands between the values of a line of a CSV file."""
    encoding: str = "utf-8"
    """How a CSV file writes letters, such as ``cp1252`` for files of Excel on Windows."""
    sheet: str | None = Field(default=None, min_length=1)
    """The sheet of an Excel workbook; the first one where it is left out."""
    decimal: Literal[".", ","] = "."
    """The decimal mark of numbers that are written as text."""
    thousands: Literal["", ".", ",", " ", "'"] = ""
    """What stands between the thousands of a number that is written as text, as in ``1.234,5``."""
    dates: Literal["", "dd/mm/yyyy", "mm/dd/yyyy"] = ""
    """How dates as 17/03/2016 or 17-03-2016 are written; 2026-01-31, 31-Jan-2026 and Jan 31, 2026 are always read."""
    scale: dict[str, float] = Field(default_factory=dict)
    """By the task's name of a column of numbers: the factor from the file's unit to the task's."""
    rename: dict[str, str] = Field(default_factory=dict)
    """The task's name for a column, by the file's own name for it. ``label`` and ``group`` are the file's own names."""
    classes: dict[str, str] = Field(default_factory=dict)
    """The class that a label of the file stands for, by the file's own spelling; other labels are names of classes."""
    values: dict[str, dict[str, str]] = Field(default_factory=dict)
    """By the task's name of a column: the category that a text of the file stands for, by the file's own spelling."""
    absent: Literal["refuse", "missing"] = "refuse"
    """What a column of the task that the file lacks is: an error, or a value that is missing in every record."""
    unknown: Literal["missing", "refuse"] = "missing"
    """What a category that the task does not know is: a value that is missing, or an error."""
    unlabelled: Literal["refuse", "leave-out"] = "refuse"
    """What a record without a label is: an error, or left out. Whether one is left out follows from itself alone."""
    query: str | None = Field(default=None, min_length=1)
    """The SQL that finds the records, where ``source`` is the URL of a database."""
    password_from: str | None = Field(default=None, pattern=r"[A-Za-z_]\w*")
    """The environment variable that holds the database's password."""

    @property
    def is_database(self) -> bool:
        return "://" in self.source

    @property
    def shown(self) -> str:
        """The source without any password that its URL may hold."""
        return self.hidden(self.source) if self.is_database else self.source

    @staticmethod
    def hidden(url: str) -> str:
        """The URL of a database without any password."""
        hidden = re.sub(r"://([^:/?]*):.*@", r"://\1:***@", url)
        return re.sub(r"(?i)((?:password|passwd|pwd|secret|token)=)[^&;]*", r"\1***", hidden)

    @property
    def is_named(self) -> bool:
        return self.source in named_sources()

    @field_validator("encoding")
    @classmethod
    def _is_encoding(cls, value: str) -> str:
        try:
            codecs.lookup(value)
        except LookupError:
            raise ValueError(f"there is no encoding {value!r}: use utf-8, cp1252, latin-1 or utf-16") from None
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "DataSource":
        if self.is_database != (self.query is not None):
            raise ValueError("a database's URL (dialect://…) and a query belong together: name both, or neither")
        if self.password_from is not None and not self.is_database:
            raise ValueError("password_from is for a database")
        if self.thousands == self.decimal:
            raise ValueError(f"thousands and decimal are both {self.decimal!r}: a number could not be read")
        if not all(math.isfinite(factor) and factor > 0 for factor in self.scale.values()):
            raise ValueError("scale has a positive factor for a column")
        if self.stop is not None and self.stop <= self.start:
            raise ValueError(f"stop ({self.stop}) must be above start ({self.start})")
        if self.shuffle_seed is not None and not self.is_named:
            raise ValueError(
                "shuffle_seed is for named public sets: with a file, one record more would move all others"
            )
        return self


def data_root(option: Path | None) -> Path | None:
    """The folder that holds the data files: the option, else the environment's COLLEGIUM_DATA, else None."""
    if option is not None:
        return option
    value = os.environ.get(DATA_ROOT_VARIABLE)
    return Path(value) if value else None
