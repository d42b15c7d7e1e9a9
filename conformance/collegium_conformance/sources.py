"""The suite for data sources: the same records at every read, in random access too, and no label among the inputs."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from collegium.data import DataSource, Examples
from collegium.data.loading.loading import NamedSource, encoded, source_named
from collegium.data.loading.sources import Records
from collegium.data.task import TableInputs, Task
from collegium.errors import CollegiumError, ConfigurationError, DataError
from collegium_conformance.promises import promise, random_state

if TYPE_CHECKING:
    import pandas as pd

_SPLITS = ("train", "test", "all")
_RECORDS_PER_VALUE = 10
"""An input that decides every label is a leak where each of its values is shared by so many records at least."""


def check_source(source: str | NamedSource, *, data_root: Path | None = None) -> None:
    """Check that a data source keeps its promises.

    Parameters
    ----------
    source : str or NamedSource
        The name of an installed source, or the object itself.
    data_root : Path, optional
        The folder of the user's data files, where the source reads any.

    Raises
    ------
    AssertionError
        With the promise that is broken: the source is not installed or has no task; no split can be read; two reads
        differ, with another random state of the process; a record read alone differs from the same one among all;
        the records do not fit the task; records sorted by class are not marked so; the label's column is an input,
        or an input of few values decides every label.
    """
    name = source if isinstance(source, str) else type(source).__name__
    if isinstance(source, str):
        try:
            source = source_named(source)
        except ConfigurationError as error:
            raise AssertionError(f"no source {name} is installed: {error}") from error
    promise(isinstance(getattr(source, "task", None), Task), f"{name}: task must be a Task")
    splits = []
    for split in _SPLITS:
        try:
            with random_state(1):
                first = source.read(split, data_root)
        except DataError:
            continue
        splits.append(split)
        with random_state(2):
            second = source.read(split, data_root)
        _check_two_reads(f"{name}, {split}", first, second)
        _check_records(f"{name}, {split}", source.task, first)
    promise(bool(splits), f"{name}: none of the splits {', '.join(_SPLITS)} can be read")


def _check_two_reads(name: str, first: Records, second: Records) -> None:
    promise(isinstance(first, Records), f"{name}: read must return Records")
    promise(len(first) > 0, f"{name} holds no record")
    promise(
        first.frame.reset_index(drop=True).equals(second.frame.reset_index(drop=True)),
        f"{name}: two reads give other records or another order: fix every random choice by a seed",
    )
    promise((first.inputs is None) == (second.inputs is None), f"{name}: only one of two reads has inputs")
    if first.inputs is None or second.inputs is None:
        return
    everything = np.arange(len(first), dtype=np.int64)
    whole = first.inputs(everything)
    promise(
        bool(np.array_equal(whole, second.inputs(everything))),
        f"{name}: two reads give other inputs: fix every random choice by a seed",
    )
    some = everything[:: max(1, len(everything) // 7)][::-1]
    promise(
        bool(np.array_equal(first.inputs(some), whole[some])),
        f"{name}: inputs at some positions differ from the same positions among all",
    )


def _check_records(name: str, task: Task, records: Records) -> None:
    source = DataSource(source=name)
    try:
        examples = encoded(records, source, task)
    except CollegiumError as error:
        raise AssertionError(f"{name}: the records do not fit the task: {error}") from error
    promise(
        examples.x.shape == (len(records), *task.inputs.shape) and examples.x.dtype == np.dtype(task.inputs.dtype),
        f"{name}: inputs must be {task.inputs.dtype} of shape {[len(records), *task.inputs.shape]}",
    )
    promise(examples.y is not None, f"{name}: the records have no label column {records.label!r}")
    y = examples.labels()
    runs = 1 + int((np.diff(y) != 0).sum())
    sorted_by_class = len(np.unique(y)) > 1 and runs == len(np.unique(y))
    promise(
        records.sorted_by_class or not sorted_by_class,
        f"{name}: the records are sorted by class: say so with sorted_by_class, or a part of them lacks classes",
    )
    if isinstance(task.inputs, TableInputs):
        columns = [column.name for column in task.inputs.columns]
        promise(records.label not in columns, f"{name}: the label {records.label!r} is one of the task's inputs")
        leaks = [column for column in columns if column in records.frame and _decides(records.frame[column], y)]
        promise(not leaks, f"{name}: the input {', '.join(leaks)} decides every label: it leaks the label")
    _check_encoded(name, examples)


def _check_encoded(name: str, examples: Examples) -> None:
    flat = examples.x.reshape(len(examples), -1)
    leaks = [number for number in range(flat.shape[1]) if _decides(flat[:, number], examples.labels())]
    promise(not leaks, f"{name}: the encoded input {leaks[:5]} decides every label: it leaks the label")


def _decides(values: "pd.Series[float] | NDArray[np.generic]", labels: NDArray[np.int64]) -> bool:
    """Whether equal values have equal labels, with two labels at least and values that many records share."""
    import pandas as pd  # takes half a second to load, and the processes that try a teacher need none of it

    codes, distinct = pd.factorize(values, use_na_sentinel=False)
    if len(distinct) < 2 or len(np.unique(labels)) < 2 or len(labels) < _RECORDS_PER_VALUE * len(distinct):
        return False
    pairs = np.unique(np.stack([codes, labels], axis=1), axis=0)
    return len(pairs) == len(distinct)
