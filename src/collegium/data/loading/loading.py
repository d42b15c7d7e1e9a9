"""Load the records that a `DataSource` names and encode them for a task.

A name stands for a set that scikit-learn brings (its task is ``tasks/NAME.toml``) or for one of an installed package.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
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
    unlabelled,
)
from collegium.data.examples import Examples
from collegium.data.loading.databases import read_database
from collegium.data.loading.files import find, header_of, is_large_table, parquet_batches, read_file
from collegium.data.loading.respelling import respelt_numbers
from collegium.data.loading.row_digests import counts_rows, row_digests
from collegium.data.loading.sources import ENTRY_POINT_GROUP, NAMED_SETS, DataSource, Indices, Records, named_sources
from collegium.data.task import ImageInputs, TableInputs, Task, VectorInputs
from collegium.data.texts import UNNAMED, counted, written
from collegium.errors import ColumnMissing, ConfigurationError, DataError
from collegium.extras import installed, load_plugin

if TYPE_CHECKING:
    import pandas as pd


_NO_LABEL = "no record has a label: name its column with label"


class NamedSource(Protocol):
    """A data source that a configuration names. The records of one split are the same at every read."""

    @property
    def task(self) -> Task:
        """What the data are usually used for: classes, and inputs with public ranges."""

    def read(self, split: str, root: Path | None) -> Records:
        """The records of the split ``train``, ``test`` or ``all``.

        Parameters
        ----------
        root : the folder that holds the user's data files; None where none was given.

        Raises
        ------
        DataError
            If there is no such split or a file is missing or damaged.
        """


@dataclass(frozen=True)
class PublicSet:
    """A public set with a reader of its own; its task is ``tasks/NAME.toml`` in the package ``package``."""

    name: str
    reader: Callable[[str, Path | None], Records]
    package: str = "collegium.data"

    @cached_property
    def task(self) -> Task:
        text = resources.files(self.package).joinpath("tasks", f"{self.name}.toml").read_text(encoding="utf-8")
        return Task.model_validate(tomllib.loads(text))

    def read(self, split: str, root: Path | None) -> Records:
        return self.reader(split, root)


def without_test_split(name: str, split: str) -> None:
    """Raise DataError where the test split of a set that has none is wanted."""
    if split == "test":
        raise DataError(f"{name} has no test split: choose records with shuffle_seed, start and stop")


@cache
def _digits() -> tuple[NDArray[np.uint8], NDArray[np.str_]]:
    """scikit-learn's 1,797 digits of 8×8 pixels, their values 0 to 16 scaled to 0 to 255, and their classes.

    Read from its file, as importing scikit-learn takes seconds, and once in a process, where many institutions may be.
    """
    package = find_spec("sklearn")
    assert package is not None and package.origin is not None  # the package depends on it
    rows = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    images = np.rint(rows[:, :-1].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    images.flags.writeable = False
    return images, rows[:, -1].astype(int).astype(str)


def _read_digits(split: str, root: Path | None) -> Records:
    import pandas as pd

    without_test_split("digits", split)
    images, classes = _digits()
    return Records("digits", pd.DataFrame({"y": classes.copy()}), lambda chosen: images[chosen])


def _read_table(name: str, split: str, root: Path | None) -> Records:
    """One of scikit-learn's tables: 569 breast cancers (Wisconsin, diagnostic), 150 irises, 178 wines."""
    import pandas as pd
    from sklearn import datasets

    without_test_split(name, split)
    bunch = getattr(datasets, f"load_{name.replace('-', '_')}")()
    frame = pd.DataFrame(bunch.data, columns=[str(column) for column in bunch.feature_names])
    frame["y"] = np.asarray(bunch.target_names)[bunch.target].astype(str)
    return Records(name, frame, sorted_by_class=name in ("iris", "wine"))


def source_named(name: str) -> NamedSource:
    """The source called ``name``; ConfigurationError where there is none, or where its package is broken."""
    if name in NAMED_SETS:
        return PublicSet(name, _read_digits if name == "digits" else partial(_read_table, name))
    for point in installed(ENTRY_POINT_GROUP).select(name=name):
        source: NamedSource = load_plugin(point, f"the data source {name!r}")
        return source
    raise ConfigurationError(
        f"{name} is no named set ({', '.join(named_sources())}): write its task in the configuration"
    )


def default_task(source: DataSource | str) -> Task:
    """The task that a named source is usually used for: its classes and public ranges.

    Raises ConfigurationError for anything but a named source.
    """
    return source_named(source if isinstance(source, str) else source.source).task


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
    if not (source.is_named or source.is_database or source.start or source.stop or source.split == "test"):
        path = find(source.source, data_root)
        if is_large_table(path):
            return _encoded_in_turn(path, source, task)
    examples = encoded(read_records(source, task, data_root), source, task)
    if not len(examples):
        raise DataError(f"{source.shown}: {_NO_LABEL}")
    return examples


def _encoded_in_turn(path: Path, source: DataSource, task: Task) -> Examples:
    """The records of a large Parquet file; their inputs stay in a file without a name, which ends with the process.

    It lies in the folder for temporary files, with 4 bytes for each encoded number. In memory are one batch of rows and
    what is known of every record beside its inputs: label, group, digest, and the columns that are no inputs.
    """
    parts: list[Examples] = []
    with TemporaryFile() as file:
        for frame in parquet_batches(path):
            part = encoded(Records(str(path), frame), source, task)
            file.write(part.x.data)
            parts.append(replace(part, x=part.x[:0]))
        if not parts:
            raise DataError(f"{path} holds no records")
        first, sizes = parts[0], [len(part.rows) for part in parts if part.rows is not None]
        if not any(sizes):
            raise DataError(f"{path}: {_NO_LABEL}")
        file.flush()
        x = np.memmap(file, dtype=first.x.dtype, mode="r", shape=(sum(sizes), *first.x.shape[1:]))

    def joined(of: Callable[[Examples], NDArray[Any] | None]) -> Any:
        found = [values for part in parts if (values := of(part)) is not None]
        return np.concatenate(found) if found else None

    columns = {name: joined(lambda part: part.columns[name]) for name in first.columns}  # noqa: B023
    return Examples(
        x,
        joined(lambda part: part.y),
        joined(lambda part: part.groups),
        columns,
        joined(lambda part: part.rows),
        first.rows_of,
        first.group_of,
    )


def lacks_columns(source: DataSource, task: Task, data_root: Path | None) -> bool:
    """Whether a table's file lacks a column that the task or ``source`` names, by its header alone.

    No value of a record has a part in the answer, so that it may be told to others. False where there is no header.
    """
    if source.is_named or source.is_database or not isinstance(task.inputs, TableInputs):
        return False
    try:
        names = header_of(find(source.source, data_root), source)
    except DataError:
        return False
    renamed = {source.rename.get(name, name) for name in names}
    own = [name for name in (source.label, source.group) if name is not None]
    wanted = [column.name for column in task.inputs.columns] if source.absent == "refuse" else []
    return bool(names) and not (set(wanted) <= renamed and {*own, *source.rename} <= set(names))


def read_records(source: DataSource, task: Task, data_root: Path | None) -> Records:
    """The raw records that ``source`` names; DataError where they cannot be read."""
    if source.is_named:
        return source_named(source.source).read(source.split, data_root)
    if source.is_database:
        return read_database(source, data_root)
    return read_file(find(source.source, data_root), source, task)


def load_inputs(
    source: DataSource, task: Task
) -> tuple[NDArray[np.uint8 | np.float32], pd.DataFrame, pd.DataFrame | NDArray[Any]]:
    """The inputs that ``source`` names, labelled or not: what a finished student predicts.

    Returns
    -------
    The encoded inputs ``[n, …]``; a frame of ``n`` rows with the columns of the file under the task's names; and the
    inputs before they were encoded: that frame for a table's columns, else images or a matrix.

    Raises
    ------
    DataError
        If the file cannot be read or has no rows, or an input does not fit the task; the message names rows.
    """
    records = read_file(find(source.source, None, settled=True), source, task)
    chosen = _chosen(source, records)
    inputs = None if records.inputs is None else records.inputs(chosen)
    frame = respelt_numbers(_renamed(records, records.frame.iloc[chosen], source), source, task.inputs)
    return _encoded(records, frame, inputs, source, task), frame, frame if inputs is None else inputs


def encoded(records: Records, source: DataSource, task: Task) -> Examples:
    """The part of ``records`` that ``source`` takes, encoded for ``task``; see `load` for errors."""
    chosen = _chosen(source, records)
    if source.unlabelled == "leave-out":
        chosen = chosen[~_without_label(records.frame.iloc[chosen], source.label or records.label, source, task)]
    frame = records.frame.iloc[chosen]
    inputs = None if records.inputs is None else records.inputs(chosen)
    labels = set(task.classes) if task.multilabel else {source.label or records.label}
    others = _other_columns(records, frame, source, task)
    whole = [name for name in frame.columns if name not in labels and not (str(name) in others and counts_rows(name))]
    return Examples(
        _encoded(records, respelt_numbers(_renamed(records, frame, source), source, task.inputs), inputs, source, task),
        _labels(records, frame, source, task),
        _groups(records, frame, source),
        others,
        *row_digests(frame[whole], inputs, source),
        source.group or records.group or "",
    )


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
    for name in (*source.values, *source.scale):
        if name not in renamed.columns:
            raise DataError(f"{records.origin}: values or scale names {name!r}, but there are {_listed(renamed)}")
    return renamed.assign(**{name: respelt(renamed[name], meant, written) for name, meant in source.values.items()})


def respelt(
    values: pd.Series[Any], meant: Mapping[str, str], others: Callable[[pd.Series[Any]], NDArray[np.str_]] = texts_of
) -> NDArray[np.str_]:
    """The values as texts, each replaced by what ``meant`` says that this spelling stands for; ``others`` as they are.

    A column of numbers needs `written` for others: whether 200.000 is two hundred is not known here.
    """
    spelled = {text_of(spelling): text for spelling, text in meant.items()}
    pairs = zip(texts_of(values).tolist(), others(values).tolist(), strict=True)
    return np.array([spelled.get(text, other) for text, other in pairs], dtype=np.str_)


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
    return [name for name in frame.columns if name not in others and not UNNAMED.fullmatch(str(name))]


def _vectors(records: Records, frame: pd.DataFrame, source: DataSource) -> ArrayLike:
    """All named columns but the label's and the group's, in their order; or the lists that the only such one holds."""
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
        labels = respelt(frame[name], source.classes)
        return encode_labels(labels, task, origin=records.origin, numbered=numbered)
    if source.label is None:
        return None
    raise ColumnMissing(f"{records.origin}: no label column {name}; there are {_listed(frame)}")


def _without_label(frame: pd.DataFrame, label: str, source: DataSource, task: Task) -> NDArray[np.bool_]:
    """Which records lack a label, or one of several, where there is such a column; each by itself. Shape ``[n]``."""
    names = [name for name in (task.classes if task.multilabel else (label,)) if name in frame.columns]
    lacking = [unlabelled(respelt(frame[name], source.classes), task) for name in names]
    return np.any(lacking, axis=0) if lacking else np.zeros(len(frame), dtype=np.bool_)


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
        lacking = counted(missing, "record has", "records have")
        raise DataError(f"{records.origin}: {lacking} no value in the group column {name}: fill it in")
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
