"""Load the records that a `DataSource` names and encode them for a task."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from collegium.data.encoding import (
    MISSING,
    encode_images,
    encode_labels,
    encode_matrix,
    encode_several,
    encode_table,
    encode_vectors,
    text_of,
    texts_of,
)
from collegium.data.examples import Examples
from collegium.data.loading.files import find, read_file
from collegium.data.loading.named import source_named
from collegium.data.loading.sources import DataSource, Indices, Records
from collegium.data.task import ImageInputs, TableInputs, Task, VectorInputs
from collegium.errors import ColumnMissing, DataError


def load(source: DataSource, task: Task, *, data_root: Path | None) -> Examples:
    """The records that ``source`` names, encoded for ``task``.

    Parameters
    ----------
    data_root : where named sets and relative paths are looked for; see `data_root`.

    Raises
    ------
    DataError
        When the file, a column, a label or the size of an input is not what the task needs. The text is
        for the owner of the data: it may quote a label, a column or a file's name.
    """
    if source.is_named:
        records = source_named(source.source).read(source.split, data_root)
    else:
        records = read_file(find(source.source, data_root), source, task)
    return encoded(records, source, task)


def load_inputs(source: DataSource, task: Task) -> tuple[NDArray[np.uint8 | np.float32], pd.DataFrame]:
    """The inputs that ``source`` names, labelled or not: what a finished student predicts.

    Returns
    -------
    The encoded inputs ``[n, …]``, and a frame of ``n`` rows with the columns of the file under the task's names.

    Raises
    ------
    DataError
        If the file cannot be read or has no rows, or an input does not fit the task; the message names rows.
    """
    records, frame, inputs = _whole(source, task)
    return _encoded(records, frame, inputs, source, task), frame


def raw_inputs(source: DataSource, task: Task) -> pd.DataFrame | NDArray[Any]:
    """The inputs of `load_inputs` before they are encoded: a table's frame, images, or a matrix."""
    _, frame, inputs = _whole(source, task)
    return frame if inputs is None else inputs


def _whole(source: DataSource, task: Task) -> tuple[Records, pd.DataFrame, NDArray[Any] | None]:
    records = read_file(find(source.source, None), source, task)
    chosen = _chosen(source, records)
    inputs = None if records.inputs is None else records.inputs(chosen)
    return records, _renamed(records, records.frame.iloc[chosen], source), inputs


def encoded(records: Records, source: DataSource, task: Task) -> Examples:
    """The part of ``records`` that ``source`` takes, encoded for ``task``; see `load` for errors."""
    chosen = _chosen(source, records)
    frame = records.frame.iloc[chosen]
    inputs = None if records.inputs is None else records.inputs(chosen)
    labels = set(task.classes) if task.multilabel else {source.label or records.label}
    return Examples(
        _encoded(records, _renamed(records, frame, source), inputs, source, task),
        _labels(records, frame, source, task),
        _groups(records, frame, source),
        _other_columns(records, frame, source, task),
        *_rows(frame, inputs, labels),
        source.group or records.group or "",
    )


def _rows(frame: pd.DataFrame, inputs: NDArray[Any] | None, labels: set[str]) -> tuple[NDArray[np.void], str]:
    """SHA-256 of every raw record without its label, and the columns that it is made of."""
    names = sorted(str(name) for name in frame.columns if name not in labels)
    texts = [texts_of(frame[name]) for name in names]
    rows = zip(*texts, strict=True) if texts else [()] * len(frame)
    digests = []
    for number, values in enumerate(rows):
        digest = hashlib.sha256(json.dumps(values).encode())
        if inputs is not None:
            digest.update(np.ascontiguousarray(inputs[number]).tobytes())
        digests.append(digest.digest())
    whole = [*names, *(["inputs"] if inputs is not None else [])]
    return np.frombuffer(b"".join(digests), dtype="V32"), json.dumps(whole)


def _chosen(source: DataSource, records: Records) -> Indices:
    order = np.arange(len(records), dtype=np.int64)
    if len(order) == 0:
        raise DataError(f"{records.origin} holds no records")
    if records.sorted_by_class and source.shuffle_seed is None and (source.start or source.stop is not None):
        raise DataError(f"{records.origin} is sorted by class: give shuffle_seed to choose a part of it")
    if source.shuffle_seed is not None:
        np.random.default_rng(source.shuffle_seed).shuffle(order)
    if source.stop is not None and source.stop > len(order):
        raise DataError(f"{records.origin} has {len(order)} records: stop = {source.stop} is beyond them")
    chosen = order[source.start : source.stop]
    if len(chosen) == 0:
        raise DataError(f"{records.origin}: no record between start = {source.start} and the end ({len(order)} in all)")
    return chosen


def _renamed(records: Records, frame: pd.DataFrame, source: DataSource) -> pd.DataFrame:
    """The columns under the task's names."""
    unknown = [name for name in source.rename if name not in frame.columns]
    if unknown:
        raise ColumnMissing(f"{records.origin}: rename names {unknown[0]!r}, but there are {_listed(frame)}")
    renamed = frame.rename(columns=source.rename)
    twice = renamed.columns[renamed.columns.duplicated()]
    if len(twice):
        raise DataError(f"{records.origin}: after rename two columns are called {twice[0]!r}: correct rename")
    return renamed


def _encoded(
    records: Records, frame: pd.DataFrame, inputs: NDArray[Any] | None, source: DataSource, task: Task
) -> NDArray[np.uint8 | np.float32]:
    if isinstance(task.inputs, ImageInputs):
        if inputs is None:
            raise DataError(f"{records.origin} is a table, but the task has images")
        return encode_images(inputs, task.inputs, origin=records.origin)
    if isinstance(task.inputs, VectorInputs):
        vectors = _vectors(records, frame, source) if inputs is None else inputs
        return encode_vectors(vectors, task.inputs, origin=records.origin)
    if inputs is None:
        encoding = {"decimal": source.decimal, "absent": source.absent, "unknown": source.unknown}
        return encode_table(frame, task.inputs, origin=records.origin, **encoding)
    return encode_matrix(inputs, task.inputs, origin=records.origin, unknown=source.unknown)


def _vector_columns(records: Records, frame: pd.DataFrame, source: DataSource) -> list[str]:
    others = {source.label or records.label, source.group or records.group}
    return [name for name in frame.columns if name not in others]


def _vectors(records: Records, frame: pd.DataFrame, source: DataSource) -> ArrayLike:
    """All columns but the label's and the group's, in their order; or the lists that the only such column holds."""
    names = _vector_columns(records, frame, source)
    if len(names) == 1 and len(frame) and np.ndim(frame[names[0]].iloc[0]) == 1:
        return np.array(frame[names[0]].tolist())
    values = frame[names].to_numpy()
    return np.char.replace(values.astype(np.str_), ",", ".") if source.decimal == "," else values


def _labels(records: Records, frame: pd.DataFrame, source: DataSource, task: Task) -> NDArray[np.int64] | None:
    if task.multilabel:
        return _several_labels(records, frame, source, task)
    name = source.label or records.label
    if name in frame.columns:
        numbered = records.numbered and name == records.label
        spelled = {text_of(spelling): meant for spelling, meant in source.classes.items()}
        labels = np.array([spelled.get(label, label) for label in texts_of(frame[name]).tolist()], dtype=np.str_)
        return encode_labels(labels, task, origin=records.origin, numbered=numbered)
    if source.label is None:
        return None
    raise ColumnMissing(f"{records.origin}: no label column {name}; there are {_listed(frame)}")


def _several_labels(records: Records, frame: pd.DataFrame, source: DataSource, task: Task) -> NDArray[np.int64] | None:
    if source.label is not None:
        raise DataError(
            f"{records.origin}: in a multilabel task every class is a column of its own, of zeros and ones: "
            "leave label out"
        )
    absent = [name for name in task.classes if name not in frame.columns]
    if len(absent) == len(task.classes):
        return None
    if absent:
        raise ColumnMissing(f"{records.origin}: no column {', '.join(absent[:10])}; there are {_listed(frame)}")
    return encode_several({name: texts_of(frame[name]) for name in task.classes}, origin=records.origin)


def _groups(records: Records, frame: pd.DataFrame, source: DataSource) -> NDArray[np.str_] | None:
    name = source.group or records.group
    if name is None:
        return None
    if name not in frame.columns:
        raise ColumnMissing(f"{records.origin}: no group column {name}; there are {_listed(frame)}")
    groups = texts_of(frame[name])
    missing = sum(group.lower() in MISSING for group in groups)
    if missing:
        raise DataError(f"{records.origin}: {missing} records have no value in the group column {name}: fill it in")
    return groups


def _other_columns(
    records: Records, frame: pd.DataFrame, source: DataSource, task: Task
) -> dict[str, NDArray[np.str_]]:
    inputs = {column.name for column in task.inputs.columns} if isinstance(task.inputs, TableInputs) else set()
    if isinstance(task.inputs, VectorInputs) and records.inputs is None:
        inputs = set(_vector_columns(records, frame, source))
    others = [name for name in frame.columns if source.rename.get(name, name) not in inputs]
    return {str(name): texts_of(frame[name]) for name in others}


def _listed(frame: pd.DataFrame) -> str:
    return ", ".join(map(str, frame.columns[:60])) or "none"
