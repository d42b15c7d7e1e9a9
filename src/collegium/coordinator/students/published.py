"""A published student in use: raw inputs in, names of classes and probabilities out, as in scikit-learn."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from collegium.data.examples import encode
from collegium.data.loading.loading import load_inputs
from collegium.data.loading.sources import DataSource
from collegium.data.several_labels import held_in
from collegium.data.task import Task
from collegium.errors import DataError, StorageError
from collegium.models.students import Student, read_student
from collegium.settings import validate_config

RawInputs: TypeAlias = "str | Path | pd.DataFrame | ArrayLike"
"""A file or folder of images, a frame with the task's columns, or an array as `collegium.encode` takes it."""


class PublishedStudent:
    """A student that answers raw inputs.

    Attributes
    ----------
    student : the student itself, which takes encoded inputs.
    task : its classes, and the columns of a table or the size of an image.
    classes_ : the names of the classes, shape ``[classes]``, in the order of the probabilities.
    """

    def __init__(self, student: Student) -> None:
        self.student = student
        self.task: Task = student.task
        self.classes_: NDArray[np.str_] = np.array(student.task.classes)

    def predict_proba(self, inputs: RawInputs, *, unknown: str = "refuse") -> NDArray[np.float64]:
        """The probability of every class.

        Parameters
        ----------
        inputs : path, pandas.DataFrame or array_like
            The path of a ``.csv``, ``.parquet`` or ``.npz`` file or of a folder of images; a frame that has the task's
            columns; or an array as `collegium.encode` takes it.
        unknown : str
            What a category that the task does not know is: ``refuse``, an error, or ``missing``, a missing value.

        Returns
        -------
        float64 array, shape ``[n, classes]``
            Rows add up to 1 where an input has one class.

        Raises
        ------
        DataError
            If the inputs do not fit the task; the message names columns and rows.
        """
        return self.student.probabilities(self._encoded(inputs, unknown))

    def predict(self, inputs: RawInputs, *, unknown: str = "refuse") -> NDArray[np.str_] | NDArray[np.int64]:
        """The name of each input's class, shape ``[n]``; see `predict_proba` for parameters and errors.

        Where an input has several classes: an int64 array of 0 and 1, shape ``[n, classes]``.
        """
        return self._named(self.student.predict(self._encoded(inputs, unknown)))

    def predict_source(self, source: DataSource, columns: Sequence[str] = ()) -> pd.DataFrame:
        """A row for each input of a file or folder: ``columns`` of the file, prediction and probabilities.

        Parameters
        ----------
        source : DataSource
            A file or a folder of images, whose column ``file`` is always passed on.
        columns : sequence of str
            Columns of the file that are passed on as they are, such as a patient's number.

        Returns
        -------
        Frame with ``columns``, then ``prediction`` (where an input has several classes: ``prediction_CLASS`` of 0 and
        1), then ``probability_CLASS`` for every class.

        Raises
        ------
        DataError
            If the inputs do not fit the task, or the file has no such column.
        """
        x, rows = load_inputs(source, self.task)
        wanted = list(dict.fromkeys([*(["file"] if Path(source.source).is_dir() else []), *columns]))
        absent = [name for name in wanted if name not in rows.columns]
        if absent:
            raise DataError(
                f"{source.source}: no column {absent[0]} to pass on; there are {', '.join(map(str, rows.columns))}"
            )
        predicted = self._named(self.student.predict(x)).T
        names = [f"prediction_{name}" for name in self.task.classes] if predicted.ndim == 2 else ["prediction"]
        answers = dict(zip(names, predicted if predicted.ndim == 2 else [predicted], strict=True))
        shares = self.student.probabilities(x).T
        answers |= {f"probability_{name}": share for name, share in zip(self.task.classes, shares, strict=True)}
        return pd.concat([rows[wanted].reset_index(drop=True), pd.DataFrame(answers)], axis=1)

    def save(self, path: str | Path) -> None:
        """Write the file that `load_student` reads; StorageError if that fails."""
        self.student.save(Path(path))

    def _encoded(self, inputs: RawInputs, unknown: str) -> NDArray[np.uint8 | np.float32]:
        if isinstance(inputs, str | Path):
            given = {"source": str(inputs), "unknown": unknown}
            return load_inputs(validate_config(given, DataSource, "options"), self.task)[0]
        return encode(inputs, self.task, unknown=unknown)

    def _named(self, numbers: NDArray[np.int64]) -> NDArray[np.str_] | NDArray[np.int64]:
        return held_in(numbers, len(self.classes_)) if self.task.multilabel else self.classes_[numbers]


def without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """The table with an apostrophe before every text that a spreadsheet would take for a formula; numbers stay."""
    texts = [name for name in table.columns if not pd.api.types.is_numeric_dtype(table[name])]
    return table.assign(**{name: table[name].map(_no_formula) for name in texts}).rename(columns=_no_formula)


def _no_formula(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def load_student(path: str | Path, *, device: str = "auto") -> PublishedStudent:
    """Read a published student, to predict with it.

    Nothing in the file is executed: it holds named arrays and a description of the task.

    Parameters
    ----------
    path : str or Path
        A student's file, such as ``student.safetensors`` in a run's folder.
    device : str
        Where a network computes: ``auto``, ``cpu``, ``cuda`` or ``cuda:<number>``. Forests stay on the CPU.

    Returns
    -------
    PublishedStudent
        It has ``predict_proba(inputs)`` and ``predict(inputs)`` for files, frames and arrays.

    Raises
    ------
    StorageError
        If the file cannot be read, holds no student, or its method is not installed here.
    DataError
        If the arrays do not fit the task.
    MissingExtra
        If the student is a network and torch is not installed.

    Examples
    --------
    >>> import collegium as cg
    >>> cg.load_student("absent.safetensors")
    Traceback (most recent call last):
        ...
    collegium_accounting.errors.StorageError: no student at absent.safetensors; give the path of a student.safetensors
    """
    if not Path(path).is_file():
        raise StorageError(f"no student at {path}; give the path of a student.safetensors")
    return PublishedStudent(read_student(path, device=device))
