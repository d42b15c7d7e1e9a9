"""Read the user's own files: ``.npz``, ``.csv``, ``.parquet``, ``.xlsx`` and folders of images. No pickle is read."""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
import os
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from collegium.data.loading import excel
from collegium.data.loading.dicom import is_dicom, patient_of, read_dicom
from collegium.data.loading.saved_datasets import is_saved_dataset, read_saved_dataset
from collegium.data.loading.sources import DATA_ROOT_VARIABLE, DataSource, Records, data_root
from collegium.data.task import ImageInputs, Task
from collegium.errors import DataError
from collegium.extras import optional_import
from collegium.settings import toml_value

if TYPE_CHECKING:
    import pandas as pd


IMAGE_ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"})
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
UNREADABLE = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error)
_LYING_HEADER = (MemoryError, OverflowError, TypeError, SyntaxError, RecursionError, AttributeError, TokenError)
"""What numpy raises besides where the header of an array promises what the file does not hold."""
DATABASE_FILES = (".db", ".sqlite", ".sqlite3")
LARGE_FROM = 2**26
"""Bytes of a Parquet file, or of an array of an .npz file, from which on the inputs do not go into memory whole."""
BATCH_ROWS = 2**16
_KINDS = (
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "boolean",
    "string",
    "Float32",
    "Float64",
)
"""pandas's types of columns that may hold missing values."""
MAX_COLUMNS = 20_000
"""Of a CSV file: the time that pandas takes grows with the square of their number."""
_Read = TypeVar("_Read")
_OPENED_BY: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}


def find(name: str, root: Path | None, *, settled: bool = False) -> Path:
    """The file or folder of that name, relative to ``root``; DataError that names it when it is not there.

    Where ``root`` is what `DATA_ROOT_VARIABLE` names, a file or folder that is there as ``name`` says goes first.
    ``settled`` says that whoever asks cannot name another root.
    """
    path = Path(name).expanduser()
    if not path.is_absolute() and root is not None and not (root == data_root(None) and path.exists()):
        path = root / path
    if not path.exists():
        advice = f", set data_root or {DATA_ROOT_VARIABLE} to its folder (or --data-root, where the command has it)"
        advice = "" if settled or Path(name).is_absolute() else advice
        advice += " or install collegium-reproduction for the sets of the papers" if advice and not path.suffix else ""
        raise DataError(f"there is no {path}: correct its name{advice}")
    return path


def read_file(path: Path, source: DataSource, task: Task) -> Records:
    """The records of one split of the file or image folder at ``path``; DataError when it cannot be read."""
    split = source.split
    if path.is_dir() and is_saved_dataset(path):
        return read_saved_dataset(path, split)
    if path.is_dir():
        _only_one_split(path, split)
        return _read_image_folder(path, task)
    if _ending(path) == ".npz":
        return _read_npz(path, split, task)
    _only_one_split(path, split)
    return Records(str(path), read_table(path, source))


def read_table(path: Path, source: DataSource) -> pd.DataFrame:
    """The rows of a ``.csv``, ``.parquet`` or ``.xlsx`` file, read as ``source`` says; DataError if it cannot."""
    import pandas as pd

    match _ending(path):
        case ".csv":
            frame = read_csv(path, separator=source.separator, encoding=source.encoding)
            frame.index = pd.RangeIndex(2, len(frame) + 2, name="lines")  # below the header; errors name them
            return frame
        case ".parquet":
            return _read_parquet(path)
        case excel.ENDING:
            return excel.read_sheet(path, source.sheet, source.decimal)
    advice = "; save it as .xlsx, CSV or Parquet"
    if path.suffix.lower() in DATABASE_FILES:
        advice = f"; a database is named by its URL, sqlite:///{path}, and a query"
    raise DataError(f"{path} is no .npz, .csv, .parquet or .xlsx file and no folder of images{advice}")


def header_of(path: Path, source: DataSource) -> list[str]:
    """The names of the columns of a ``.csv``, ``.parquet`` or ``.xlsx`` file; none for any other. No row is read."""
    if _ending(path) == excel.ENDING:
        return excel.names_in(path, source.sheet)
    if _ending(path) == ".csv":
        frame = read_csv(path, separator=source.separator, encoding=source.encoding, nrows=0)
        return [str(name) for name in frame.columns]
    if _ending(path) == ".parquet":
        with optional_import(f"reading {path.name}"):
            from pyarrow.parquet import read_schema
        try:
            return [str(name) for name in read_schema(path).names]
        except UNREADABLE:
            return []
    return []


def columns_of(path: Path) -> list[str]:
    """The names of a table's columns, of all sheets, however it is written; none for images and arrays.

    Raises DataError if the file cannot be read.
    """
    source = DataSource(source=str(path))
    if _ending(path) == excel.ENDING:
        return [name for sheet in excel.sheets_of(path) for name in excel.names_in(path, sheet)]
    return found_settings(path, source, header_of)[1]


def found_settings(
    path: Path, source: DataSource, read: Callable[[Path, DataSource], _Read]
) -> tuple[dict[str, object], _Read]:
    """How a table has to be read, and what ``read`` makes of it, such as `read_table` or `header_of`.

    Returns
    -------
    The encoding and separator that differ from those of ``source``, and what was read with them.

    Raises
    ------
    DataError
        If the file cannot be read with any.
    """
    if _ending(path) != ".csv":
        return {}, read(path, source)
    tried: list[DataError] = []
    for encoding in dict.fromkeys((source.encoding, "utf-8", "utf-16", "cp1252")):
        for separator in dict.fromkeys((source.separator, ",", ";", "\t", "|")):
            given: dict[str, object] = {"encoding": encoding, "separator": separator}
            try:
                found = read(path, source.model_copy(update=given))
            except DataError as error:
                tried.append(error)
                continue
            return {key: value for key, value in given.items() if value != getattr(source, key)}, found
    raise tried[0]


def _ending(path: Path) -> str:
    """The ending of the name in lower case, without that of a compressed file; ``.csv`` for texts of any other."""
    endings = [ending.lower() for ending in path.suffixes if ending.lower() not in (".xz", ".gz", ".bz2", ".zip")]
    ending = endings[-1] if endings else ""
    return ".csv" if ending in (".tsv", ".txt") else ending


def read_csv(path: Path, *, separator: str = ",", encoding: str = "utf-8", **options: Any) -> pd.DataFrame:
    """A CSV file, every value as text: how a value is read must not depend on the other rows.

    Parameters
    ----------
    separator, encoding : as in `DataSource`.
    options : further ones of ``pandas.read_csv``.

    Raises
    ------
    DataError
        If the file cannot be read. The text names the setting that would help, where one would.
    """
    import pandas as pd

    settings: dict[str, Any] = {"index_col": False, "encoding": encoding}
    settings |= options if "sep" in options else options | {"sep": separator}
    try:
        opened = _OPENED_BY.get(path.suffix.lower(), open)
        with opened(path, "rt", encoding=encoding, errors="replace") as file:
            names = file.readline()
        columns = names.count(separator) + 1
        if columns > MAX_COLUMNS:
            raise DataError(
                f"{path} has {columns} columns, and {MAX_COLUMNS} are the most: does each line hold one record?"
            )
        others = [one for one in ",;\t|" if one != separator and one in names]
        if columns == 1 and others and not {"sep", "header"} & options.keys() and path.suffix.lower() != ".zip":
            raise DataError(
                f"the first line of {path} has no {separator!r} but {others[0]!r}: "
                f"set separator = {toml_value(others[0])} beside source"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.DataFrame(pd.read_csv(path, dtype=str, keep_default_na=False, skipinitialspace=True, **settings))
    except (*UNREADABLE, pd.errors.ParserWarning) as error:
        raise DataError(f"cannot read {path}: {_plainly(error, encoding)}") from error


def _plainly(error: Exception, encoding: str = "") -> str:
    """What is wrong with a file, in our own words, whatever library found it."""
    import pandas as pd

    text = str(error)
    if longer := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", text):
        expected, line, found = longer.groups()
        return (
            f"line {line} has {found} values, but the lines before it have {expected}: correct the line, or separator"
        )
    if "EOF inside string" in text:
        return "a quotation mark is opened and never closed: correct the file"
    match error:
        case UnicodeError():
            others = " or ".join(f'"{one}"' for one in ("utf-8", "cp1252", "utf-16") if one != encoding.lower())
            return f"it is not written in {encoding}: set encoding = {others} beside source, or save it as UTF-8"
        case pd.errors.EmptyDataError():
            return "it is empty"
        case pd.errors.ParserWarning():
            return "its lines have more values than its first line has names: correct the file, or separator"
        case OSError() if error.strerror:
            return error.strerror
    return "it is damaged, or not what the ending of its name says"


def open_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` file; DataError when one needs pickle.

    Those of 64 MiB or more that are not compressed stay in the file, which must not change while they are used: of
    records that are larger than the memory, only what is looked at is read.
    """
    try:
        # numpy leaves a file open that it opened itself and cannot read.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            entries = {name.removesuffix(".npy"): archive.zip.getinfo(name) for name in archive.zip.namelist()}
            held = {name: _mapped(path, file, entry) for name, entry in entries.items()}
            return {name: archive[name] if array is None else array for name, array in held.items()}
    except _LYING_HEADER:
        raise DataError(f"cannot read {path}: an array's header does not say what it holds; save it again") from None
    except UNREADABLE as error:
        if "allow_pickle" in str(error):
            raise DataError(f"{path} holds pickled objects, which are not read: save plain arrays") from error
        raise DataError(f"cannot read {path}: {_plainly(error)}") from error


def _mapped(path: Path, file: BinaryIO, entry: zipfile.ZipInfo) -> NDArray[Any] | None:
    """An array of an ``.npz`` file as a map of that file; None where it is small, compressed, or has to be read."""
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size < LARGE_FROM:
        return None
    file.seek(entry.header_offset + 26)  # the lengths of a name and of an extra field, and then these two
    start = file.seek(sum(struct.unpack("<HH", file.read(4))), os.SEEK_CUR)
    if np.lib.format.read_magic(file) != (1, 0):
        return None
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
    size = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or by_columns or file.tell() - start + size != entry.file_size:
        return None
    return np.memmap(path, dtype=dtype, mode="r", offset=file.tell(), shape=shape)


def _rows_of(array: NDArray[Any], indices: NDArray[np.int64]) -> NDArray[Any]:
    """Rows of an array; without a copy where they follow one another."""
    if not len(indices):
        return array[:0]
    first, last = int(indices[0]), int(indices[-1])
    if last - first + 1 == len(indices) and bool((np.diff(indices) == 1).all()):
        return array[first : last + 1]
    return array[indices]


def _only_one_split(path: Path, split: str) -> None:
    if split == "test":
        raise DataError(f"{path} has no test split: name another file, or set start and stop")


def _read_parquet(path: Path) -> pd.DataFrame:
    import pandas as pd

    with optional_import(f"reading {path.name}"):
        import pyarrow  # noqa: F401
    try:
        return pd.read_parquet(path, dtype_backend="numpy_nullable")
    except UNREADABLE as error:
        raise DataError(f"cannot read {path}: {_plainly(error)}") from error


def parquet_batches(path: Path) -> Iterator[pd.DataFrame]:
    """The rows of a Parquet file as `read_table` has them, 65,536 at a time; their index counts through the file.

    Raises DataError if the file cannot be read.
    """
    import pandas as pd

    with optional_import(f"reading {path.name}"):
        import pyarrow
        from pyarrow.parquet import ParquetFile
    kinds = {pyarrow.type_for_alias(kind.lower()): pd.api.types.pandas_dtype(kind) for kind in _KINDS}
    kinds[pyarrow.large_string()] = pd.StringDtype()
    start = 0
    try:
        with ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH_ROWS):
                frame = pyarrow.Table.from_batches([batch]).to_pandas(types_mapper=kinds.get)
                frame.index = pd.RangeIndex(start, start := start + len(frame))
                yield frame
    except UNREADABLE as error:
        raise DataError(f"cannot read {path}: {_plainly(error)}") from error


def is_large_table(path: Path) -> bool:
    """Whether the file is one that `parquet_batches` should read."""
    return _ending(path) == ".parquet" and path.stat().st_size >= LARGE_FROM


def _read_npz(path: Path, split: str, task: Task) -> Records:
    import pandas as pd

    arrays = open_npz(path)
    parts = {"train": ("_train",), "test": ("_test",), "all": ("_train", "_test")}[split]
    if "x" in arrays:
        _only_one_split(path, split)
        parts = ("",)
    absent = [f"x{part}" for part in parts if f"x{part}" not in arrays]
    if absent:
        raise DataError(f"{path} has no array {absent[0]} (nor x); there are {', '.join(arrays) or 'none'}")
    inputs = [arrays[f"x{part}"] for part in parts]
    if any(array.ndim < 2 or array.shape[1:] != inputs[0].shape[1:] for array in inputs):
        raise DataError(f"{path}: {' and '.join(f'x{part}' for part in parts)} are no rows of one shape")
    x = np.concatenate(inputs) if len(inputs) > 1 else inputs[0]
    columns: dict[str, NDArray[Any]] = {}
    labels = [arrays[f"y{part}"] for part in parts if f"y{part}" in arrays]
    if labels and task.multilabel:
        columns |= _columns_of_classes(path, labels, len(x), task)
    elif labels and sum(len(array) if array.ndim == 1 else -1 for array in labels) != len(x):
        raise DataError(f"{path}: labels of shape {[list(array.shape) for array in labels]} for {len(x)} rows of x")
    for first in [name for name in arrays if name.endswith(parts[0])]:
        name = first.removesuffix(parts[0])
        values = [arrays[name + part] for part in parts if name + part in arrays]
        if name == "x" or name in columns or any(array.ndim != 1 for array in values):
            continue
        column = np.concatenate(values)
        if len(column) == len(x):
            columns[name] = column
    numbered = "y" in columns and np.issubdtype(columns["y"].dtype, np.integer)
    frame = pd.DataFrame(columns, index=pd.RangeIndex(len(x)))
    return Records(str(path), frame, lambda indices: _rows_of(x, indices), numbered=numbered)


def _columns_of_classes(path: Path, labels: list[NDArray[Any]], rows: int, task: Task) -> dict[str, NDArray[Any]]:
    """A two-dimensional ``y`` as one column per class."""
    wanted = len(task.classes)
    if any(array.ndim != 2 or array.shape[1] != wanted for array in labels) or sum(map(len, labels)) != rows:
        shapes = [list(array.shape) for array in labels]
        raise DataError(
            f"{path}: labels of shape {shapes} for {rows} rows of x: a multilabel task needs {[rows, wanted]}"
        )
    return dict(zip(task.classes, np.concatenate(labels).T, strict=True))


def _read_image_folder(path: Path, task: Task) -> Records:
    import pandas as pd

    if not isinstance(task.inputs, ImageInputs):
        raise DataError(f"{path} is a folder, which holds images, but the task is a table")
    files = image_files(path)
    columns = {"file": [file.name for file in files]}
    if files and files[0].parent != path:
        columns["y"] = [file.relative_to(path).parts[0] for file in files]
    patients = [patient_of(file) if is_dicom(file) else "" for file in files]
    if any(patients):
        columns["patient"] = patients
    shape = task.inputs
    return Records(
        str(path),
        pd.DataFrame(columns, dtype=str),
        lambda indices: _read_images([files[i] for i in indices], shape),
        group="patient" if files and all(patients) else None,
    )


def image_files(path: Path) -> list[Path]:
    """The images below the sub-folders of a folder, in order; where there are none, those in the folder itself."""

    def images(files: Iterable[Path]) -> list[Path]:
        present = filter(Path.is_file, sorted(files))
        return [file for file in present if file.suffix.lower() in IMAGE_ENDINGS or is_dicom(file)]

    folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    return [file for folder in folders for file in images(folder.rglob("*"))] or images(path.iterdir())


def _read_images(files: list[Path], inputs: ImageInputs) -> NDArray[np.uint8]:
    with optional_import("reading images"):
        from PIL import Image

    images = np.empty((len(files), *inputs.shape), dtype=np.uint8)
    for number, file in enumerate(files):
        if is_dicom(file):
            shown = Image.fromarray(read_dicom(file)).convert(_MODES[inputs.channels])
            resized = shown.resize((inputs.width, inputs.height), Image.Resampling.BOX)
            images[number] = np.asarray(resized).reshape(inputs.shape)
            continue
        try:
            with Image.open(file) as image:
                if image.size != (inputs.width, inputs.height):
                    raise DataError(
                        f"{file} is {image.height}×{image.width}, but the task has {inputs.height}×{inputs.width} "
                        "(height×width): resize it or correct the task"
                    )
                images[number] = np.asarray(image.convert(_MODES[inputs.channels])).reshape(inputs.shape)
        except (*UNREADABLE, Image.DecompressionBombError) as error:
            raise DataError(f"cannot read {file}: {_plainly(error)}") from error
    return images
