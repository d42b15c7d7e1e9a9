"""Records as teachers and students take them, and the same from arrays that a program holds already."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collegium.data.encoding import encode_images, encode_labels, encode_matrix, encode_table, encode_vectors, text_of
from collegium.data.task import ImageInputs, TableInputs, Task, VectorInputs
from collegium.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Examples:
    """``n`` records of one task.

    Attributes
    ----------
    x : uint8 ``[n, height, width, channels]`` for images, float32 ``[n, d]`` in [0, 1] for tables.
    y : int64 ``[n]``, numbers of the task's classes; None where there is no label.
    groups : str ``[n]``, equal for records that belong together; None when every record stands alone.
    columns : the raw columns that are no inputs, as text ``[n]`` each, to partition by.
    rows : SHA-256 of each record's values without its label (`loading.row_digests`), bytes ``[n]``; None where records
        were given as arrays.
    rows_of : what the rows are made of: the names of the columns, and how the file's texts were read.
    group_of : the column of the groups; empty where there are none, or arrays alone.
    """

    x: NDArray[Any] = field(repr=False)
    y: NDArray[np.int64] | None = field(default=None, repr=False)
    groups: NDArray[np.str_] | None = field(default=None, repr=False)
    columns: Mapping[str, NDArray[np.str_]] = field(default_factory=dict, repr=False)
    rows: NDArray[np.void] | None = field(default=None, repr=False)
    rows_of: str = ""
    group_of: str = ""

    def __len__(self) -> int:
        return len(self.x)

    def take(self, indices: NDArray[np.int64]) -> Examples:
        """The records at ``indices``, in that order."""
        return replace(
            self,
            x=self.x[indices],
            y=None if self.y is None else self.y[indices],
            groups=None if self.groups is None else self.groups[indices],
            columns={name: values[indices] for name, values in self.columns.items()},
            rows=None if self.rows is None else self.rows[indices],
        )

    def labels(self) -> NDArray[np.int64]:
        """The class numbers ``[n]``; DataError where the records have none."""
        if self.y is None:
            there = ", ".join(self.columns) or "none"
            raise DataError(
                f"the records have no label: name its column with label; columns beside the inputs: {there}"
            )
        return self.y

    def identities(self) -> Iterator[bytes]:
        """32 bytes for each record in turn that say who it is: its group, or its own content where it has none.

        They depend on nothing but the record itself, neither on its position nor on the other records:
        a teacher assigned by a keyed hash of them is the only one that a record touches.
        """
        if self.groups is not None:
            return (hashlib.sha256(b"group\0" + str(group).encode()).digest() for group in self.groups)
        labels = np.full(len(self), -1, dtype=np.int64) if self.y is None else self.y
        return (
            hashlib.sha256(b"record\0" + int(label).to_bytes(8, "little", signed=True) + row.tobytes()).digest()
            for row, label in zip(np.ascontiguousarray(self.x), labels, strict=True)
        )

    def lasting_identities(self, task_json: str) -> tuple[Iterator[bytes], str]:
        """32 bytes for each record in turn that stay the same for good, and the scheme that they follow.

        A record is its group, or the file's values without its label, so that neither another task nor a corrected
        label nor an export in another order makes it somebody new. Where there are arrays alone, it is its encoded
        row, and the scheme names the task. Two schemes give the same record two identities, so a count by identities
        is valid within one scheme only.
        """
        if self.groups is not None:
            return self.identities(), f"group {self.group_of}"
        if self.rows is not None:
            return (bytes(row) for row in self.rows), f"values as read of {self.rows_of}"
        unlabelled = Examples(self.x)
        return unlabelled.identities(), f"encoded row of {hashlib.sha256(task_json.encode()).hexdigest()}"


_ORIGIN = "the array"
_SETTING = re.compile(
    r"set (\w+) = (.+?) beside source(, or absent = \"missing\" if this source has no such values|, or name another "
    r"column by label)?"
)
"""Advice that is for whoever has a file of settings."""
_IN_PYTHON = {
    "separator": "read it with pandas.read_csv(…, sep={}) and give the frame",
    "encoding": "read it with pandas.read_csv(…, encoding={}) and give the frame",
    "decimal": "give a frame that pandas.read_csv(…, decimal={}) read",
    "thousands": "give a frame that pandas.read_csv(…, thousands={}) read",
    "dates": "make dates of them with pandas.to_datetime(…, dayfirst=…)",
    "values": "give frame.replace({})",
    "rename": "give frame.rename(columns={}), or add the column without values",
    "classes": "or replace each by the name of its class",
    "unlabelled": "drop such rows with frame.dropna(subset=…)",
}
"""What a program does in place of a setting."""


@contextmanager
def advice_in_python() -> Iterator[None]:
    """Advice of errors about records names what a program can do: it has no ``source``, nor settings beside it."""

    def call(found: re.Match[str]) -> str:
        name, value = found[1], found[2]
        if name not in _IN_PYTHON:
            return found[0]
        with suppress(tomllib.TOMLDecodeError):
            value = repr(tomllib.loads(f"value = {value}")["value"])
        return _IN_PYTHON[name].format(value)

    try:
        yield
    except DataError as error:
        raise type(error)(_SETTING.sub(call, str(error)).replace("--unknown-as-missing; in Python ", "")) from error


def encode(inputs: ArrayLike | pd.DataFrame, task: Task, *, unknown: str = "missing") -> NDArray[np.uint8 | np.float32]:
    """Inputs as parties, coordinator and student take them; each row is encoded by itself.

    Parameters
    ----------
    inputs : array_like or pandas.DataFrame
        A table ``[n, columns]``, a frame with the task's columns among its own, or images as uint8
        ``[n, height, width]`` or ``[n, height, width, channels]``. Encoded inputs stay as they are.
    task : Task
        What was agreed; numbers outside a column's range are clipped, NaN counts as missing.
    unknown : str
        What a category that the task does not know is: ``missing``, a missing value, or ``refuse``, an error.

    Returns
    -------
    array
        float32 ``[n, values]`` in [0, 1] for tables, float32 ``[n, size]`` for vectors, uint8
        ``[n, height, width, channels]`` for images.

    Raises
    ------
    DataError
        If the inputs do not fit the task.

    Examples
    --------
    >>> import collegium as cg
    >>> task = cg.Task.from_array([[0.0, 20.0], [1.0, 60.0]], classes=["no", "yes"])
    >>> cg.encode([[0.5, 40.0], [0.5, float("nan")]], task)  # a value, and whether it is missing
    array([[0.5, 0. , 0.5, 0. ],
           [0.5, 0. , 0. , 1. ]], dtype=float32)
    """
    import pandas as pd

    with advice_in_python():
        if isinstance(inputs, pd.DataFrame) and isinstance(task.inputs, TableInputs):
            return encode_table(inputs, task.inputs, origin="the frame", unknown=unknown)
        raw = np.asarray(inputs)
        if isinstance(task.inputs, ImageInputs):
            return encode_images(raw, task.inputs, origin=_ORIGIN)
        if isinstance(task.inputs, VectorInputs):
            return encode_vectors(raw, task.inputs, origin=_ORIGIN)
        return encode_matrix(raw, task.inputs, origin=_ORIGIN, unknown=unknown)


def examples_of(inputs: ArrayLike, labels: ArrayLike, task: Task, groups: ArrayLike | None = None) -> Examples:
    """Labelled records, encoded for the task.

    Parameters
    ----------
    inputs : array_like
        See `encode`.
    labels : array_like
        Shape ``[n]``: class numbers as integers, or the names of classes.
    task : Task
        What was agreed.
    groups : array_like, optional
        Shape ``[n]``, equal for records of one person: they stay with one teacher, and ε is about the person.

    Raises
    ------
    DataError
        If there are not as many labels or groups as inputs, or a label is no class of the task.
    """
    x, given = encode(inputs, task), np.asarray(labels)
    members = None if groups is None else np.asarray(groups).astype(np.str_)
    if given.shape != (len(x),) or (members is not None and members.shape != (len(x),)):
        raise DataError(f"{len(x)} inputs need as many labels (and groups, where there are any)")
    if given.dtype.kind in "iu":
        if len(given) and not 0 <= given.min() <= given.max() < len(task.classes):
            raise DataError(f"class numbers are 0 to {len(task.classes) - 1}: {', '.join(task.classes[:20])}")
        return Examples(x, given.astype(np.int64), members)
    texts = np.array([text_of(label) for label in given.tolist()], dtype=np.str_)
    with advice_in_python():
        return Examples(x, encode_labels(texts, task, origin="the labels", numbered=False), members)
