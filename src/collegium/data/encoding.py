"""Encode raw records by the public schema of a task, each row by itself.

Nothing here looks at more than one record: no mean, no range, no set of categories is taken from the data
(DESIGN: a record may touch one teacher only), so adding a record never changes how another is encoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collegium.data.numbers import DAY_OR_MONTH_FIRST, marks_of_missing, read_numbers
from collegium.data.several_labels import numbers_of
from collegium.data.task import CategoryColumn, ImageInputs, NumberColumn, TableInputs, Task, VectorInputs
from collegium.data.texts import MISSING as MISSING
from collegium.data.texts import counted, nearest, written
from collegium.data.texts import text_of as text_of
from collegium.data.texts import texts_of as texts_of
from collegium.errors import ColumnMissing, DataError
from collegium.settings import toml_value

if TYPE_CHECKING:
    import pandas as pd


_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}([,.' ])\d{3}(?:\1\d{3})*")


def encode_labels(values: NDArray[np.str_], task: Task, *, origin: str, numbered: bool) -> NDArray[np.int64]:
    """The number of each label's class, shape ``[n]``.

    Raises DataError for a missing label or one that the task does not know.
    """
    numbers = {text_of(name): number for number, name in enumerate(task.classes)}
    if numbered and not any(re.fullmatch(r"[+-]?\d+", name) for name in numbers):
        numbers |= {str(number): number for number in range(len(task.classes))}
    spellings, spelt = np.unique(values, return_inverse=True)
    if missing := int(_lacking(spellings, task)[spelt].sum()):
        has = "has no label: remove it or label it" if missing == 1 else "have no label: remove or label them"
        raise DataError(
            f'{origin}: {missing} of {len(values)} records {has}, or set unlabelled = "leave-out" beside source'
        )
    unknown = sorted(set(spellings.tolist()) - set(numbers))
    if unknown:
        shown = ", ".join(map(repr, unknown[:5])) + (", …" if len(unknown) > 5 else "")
        raise DataError(
            f"{origin}: the task has no class {shown}; its classes are {', '.join(task.classes[:20])}: "
            'correct the labels, set classes = { "label in the file" = "class" } beside source, or name another column '
            "by label"
        )
    return np.array([numbers[value] for value in spellings.tolist()], dtype=np.int64)[spelt]


def unlabelled(values: NDArray[np.str_], task: Task) -> NDArray[np.bool_]:
    """Which labels are missing and no name of a class: ``none`` may be the class ``None``. Shape ``[n]``."""
    spellings, spelt = np.unique(values, return_inverse=True)
    return _lacking(spellings, task)[spelt]


def _lacking(spellings: NDArray[np.str_], task: Task) -> NDArray[np.bool_]:
    named = {text_of(name).casefold() for name in task.classes}
    lacking = [text.lower() in MISSING and text.casefold() not in named for text in spellings.tolist()]
    return np.array(lacking, dtype=np.bool_)


def encode_several(columns: Mapping[str, NDArray[np.str_]], *, origin: str) -> NDArray[np.int64]:
    """The label number of each record (`numbers_of`), shape ``[n]``, from one column of 0 and 1 per class.

    Raises DataError for any other value.
    """
    for name, values in columns.items():
        others = set(values.tolist()) - {"0", "1"}
        if others:
            raise DataError(
                f"{origin}: column {name} holds {min(others)!r}: write 1 if the record has the label, else 0"
            )
    return numbers_of(np.stack([values == "1" for values in columns.values()], axis=1))


def encode_images(images: NDArray[Any], inputs: ImageInputs, *, origin: str) -> NDArray[np.uint8]:
    """Images as uint8 ``[n, height, width, channels]``; DataError when their size or type is another."""
    if images.ndim == 3:
        images = images[..., np.newaxis]
    if images.ndim != 4 or images.shape[1:] != inputs.shape:
        raise DataError(
            f"{origin}: images of size {'×'.join(map(str, images.shape[1:]))}, but the task has "
            f"{'×'.join(map(str, inputs.shape))} (height×width×channels): resize them or correct the task"
        )
    if images.dtype != np.uint8:
        raise DataError(f"{origin}: images are unsigned bytes (uint8, 0 to 255), not {images.dtype}: convert them")
    return np.ascontiguousarray(images)


def encode_table(
    frame: pd.DataFrame,
    inputs: TableInputs,
    *,
    origin: str,
    decimal: str = ".",
    absent: str = "refuse",
    unknown: str = "missing",
) -> NDArray[np.float32]:
    """Rows as float32 ``[n, d]`` in [0, 1] by the columns of ``inputs``.

    Parameters
    ----------
    origin : what to call the rows in an error; their index is what an error calls each of them.
    decimal : the decimal mark of numbers that are texts.
    absent : ``missing`` takes a column that is not there for one whose values are all missing.
    unknown : ``missing`` takes a category that the column does not have for a missing value, ``refuse`` for an error.

    Raises
    ------
    ColumnMissing
        If a column is not there, or with ``missing`` all of them are not.
    DataError
        If a number is not readable, or a category is unknown and that is refused.
    """
    lacking = [column.name for column in inputs.columns if column.name not in frame.columns]
    if lacking and (absent == "refuse" or len(lacking) == len(inputs.columns)):
        like = {near: name for name in lacking if (near := nearest(name, frame.columns)) is not None}
        pairs = [f'"{near}" = "{name}"' for near, name in like.items()]
        meant = ", ".join(pairs) or '"its name in the file" = "its name in the task"'
        raise ColumnMissing(
            f"{origin}: no column {', '.join(lacking[:10])}; there are {', '.join(map(str, frame.columns[:60]))}: "
            f'set rename = {{ {meant} }} beside source, or absent = "missing" if this source has no such values'
        )
    frame = frame.assign(**dict.fromkeys(lacking, ""))
    encoded = np.zeros((len(frame), *inputs.shape), dtype=np.float32)
    start = 0
    for column in inputs.columns:
        part = encoded[:, start : start + column.width]
        if isinstance(column, NumberColumn):
            _encode_numbers(frame[column.name], column, part, origin, decimal)
        else:
            others = _encode_categories(frame[column.name], column, part)
            if unknown == "refuse" and others.any():
                raise _unknown_categories(frame[column.name][others], column, origin)
        start += column.width
    return encoded


def encode_matrix(
    matrix: NDArray[Any], inputs: TableInputs, *, origin: str, unknown: str = "missing"
) -> NDArray[np.float32]:
    """A matrix with one column per column of the task, or one that is encoded already, as `encode_table` has it."""
    import pandas as pd

    if matrix.ndim != 2:
        raise DataError(f"{origin}: a table's x has two dimensions, not shape {list(matrix.shape)}")
    if matrix.shape[1] == len(inputs.columns):
        columns = {column.name: matrix[:, number] for number, column in enumerate(inputs.columns)}
        return encode_table(pd.DataFrame(columns), inputs, origin=origin, unknown=unknown)
    if (matrix.shape[1],) == inputs.shape and matrix.dtype == np.float32:
        if not bool(((matrix >= 0) & (matrix <= 1)).all()):
            raise DataError(f"{origin}: encoded inputs lie in [0, 1]; give the raw columns instead")
        return np.ascontiguousarray(matrix)
    raise DataError(
        f"{origin}: x has {matrix.shape[1]} columns; the task has {len(inputs.columns)} "
        f"({inputs.shape[0]} when encoded, as float32)"
    )


def encode_vectors(vectors: ArrayLike, inputs: VectorInputs, *, origin: str) -> NDArray[np.float32]:
    """Vectors as float32 ``[n, size]``; DataError for another size, or for what is no finite number."""
    try:
        numbers = np.ascontiguousarray(vectors, dtype=np.float32)
    except (TypeError, ValueError):
        raise DataError(f"{origin}: a vector holds something that is no number: correct it") from None
    if numbers.ndim != 2 or numbers.shape[1] != inputs.size:
        raise DataError(
            f"{origin}: inputs of shape {list(numbers.shape)}, but the task has vectors of {inputs.size} numbers"
        )
    at_once = 2**16  # a table of as many truth values as numbers would double the memory
    if not all(np.isfinite(numbers[start : start + at_once]).all() for start in range(0, len(numbers), at_once)):
        raise DataError(f"{origin}: a vector holds a number that is missing or not finite: leave its row out")
    return numbers


def _encode_numbers(
    values: pd.Series[Any], column: NumberColumn, part: NDArray[np.float32], origin: str, decimal: str
) -> None:
    numbers, unread = read_numbers(values, decimal, dates=column.kind == "date")
    missing = np.isnan(numbers)
    if unread:
        comma = decimal == "." and all(_DECIMAL_COMMA.fullmatch(text) for text in unread)
        advice = 'set decimal = "," beside source' if comma else "correct them"
        if between := {found[1] for text in unread if (found := _THOUSANDS.fullmatch(text))} - {decimal}:
            advice = (
                f"where thousands are set apart, set thousands = {min(between)!r} beside source; otherwise {advice}"
            )
        if column.kind == "date":
            which = any(map(DAY_OR_MONTH_FIRST.fullmatch, unread))
            advice = 'set dates = "dd/mm/yyyy" or "mm/dd/yyyy" beside source' if which else "write them as 2026-01-31"
        if len(marks_of_missing(unread, len(values))) == len({*unread}):
            advice = f"set values = {toml_value({column.name: {unread[0]: ''}})} beside source, if that is missing"
        told = counted(len(unread), f"value is no {column.kind}", f"values are no {column.kind}s")
        raise DataError(
            f"{origin}: column {column.name}: {told} and none of the marks for a missing value (empty, ?, NA, NaN, "
            f"null): {advice} ({_rows(values[np.isin(written(values), unread)])})"
        )
    clipped = np.clip(np.where(missing, column.low, numbers), column.low, column.high)
    part[:, 0] = (clipped - column.low) / (column.high - column.low)
    part[:, 1] = missing


def _encode_categories(values: pd.Series[Any], column: CategoryColumn, part: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Fill ``part``; returns which values are no category and no mark of a missing value, shape ``[n]``."""
    places = {text_of(name): place for place, name in enumerate(column.categories)}
    texts, where = np.unique(texts_of(values), return_inverse=True)
    found = np.array([places.get(text, len(column.categories)) for text in texts], dtype=np.int64)[where]
    part[np.arange(len(found)), found] = 1
    missing = np.array([text.lower() in MISSING for text in texts], dtype=np.bool_)[where]
    return np.asarray((found == len(column.categories)) & ~missing)


def _unknown_categories(values: pd.Series[Any], column: CategoryColumn, origin: str) -> DataError:
    """The error for values that are none of the column's categories; it quotes some of them."""
    names = list(dict.fromkeys(texts_of(values).tolist()))
    shown = ", ".join(map(repr, names[:5])) + (", …" if len(names) > 5 else "")
    unknown = counted(len(values), "value is an unknown category", "values are unknown categories")
    return DataError(
        f"{origin}: column {column.name}: {unknown}: {shown} ({_rows(values)}); the "
        f"task knows {', '.join(column.categories[:20])}: set values = "
        f"{toml_value({column.name: {names[0]: '…'}})} beside source, or let them count as missing values "
        '(--unknown-as-missing; in Python unknown="missing")'
    )


def _rows(values: pd.Series[Any]) -> str:
    """Where these values are, by the index of their frame, such as "lines 3, 8, …" of a CSV file."""
    shown = ", ".join(map(str, values.index[:5])) + (", …" if len(values) > 5 else "")
    of_one = str(values.index.name or "rows").removesuffix("s")
    return f"{of_one}{'' if len(values) == 1 else 's'} {shown}"
