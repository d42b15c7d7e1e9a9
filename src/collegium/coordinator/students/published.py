"""A published student in use: raw inputs in, names of classes and probabilities out; a scikit-learn classifier."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from collegium.coordinator.students.unusual import unusual
from collegium.data.examples import advice_in_python, encode
from collegium.data.loading.loading import load_inputs
from collegium.data.loading.sources import DataSource
from collegium.data.several_labels import held_in
from collegium.data.task import ImageInputs, TableInputs, Task
from collegium.errors import DataError, StorageError, UnfitInputs
from collegium.models.students import Student, read_student
from collegium.settings import validate_config

RawInputs: TypeAlias = "str | Path | pd.DataFrame | ArrayLike"
"""A file or folder of images, a frame with the task's columns, or an array as `collegium.encode` takes it."""

_WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")


# More than 15 methods: half of them are what scikit-learn asks of a classifier.
class PublishedStudent(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A student that answers raw inputs: a scikit-learn classifier that was fitted elsewhere.

    It stands wherever scikit-learn takes a classifier: pipelines, ``cross_val_score``, permutation importance,
    ``CalibratedClassifierCV(FrozenEstimator(student))``. A clone shares the student, and `fit` changes nothing.

    Parameters
    ----------
    student : Student
        The student itself, which takes encoded inputs.
    unknown : str
        What a category that the task does not know is: ``refuse``, an error, or ``missing``, a missing value.
    """

    def __init__(self, student: Student, unknown: str = "refuse") -> None:
        self.student = student
        self.unknown = unknown

    @property
    def task(self) -> Task:
        """The classes, and the columns of a table or the size of an image."""
        return self.student.task

    @property
    def classes_(self) -> NDArray[np.str_] | NDArray[np.int64]:
        """The names of the classes, shape ``[classes]``, in the probabilities' order; numbers if all are whole."""
        names = self.task.classes
        return np.array([int(name) for name in names] if all(map(_WHOLE.fullmatch, names)) else names)

    @property
    def n_features_in_(self) -> int:
        """The number of columns of a table, of numbers of a vector or of values of an image."""
        inputs = self.task.inputs
        return len(inputs.columns) if isinstance(inputs, TableInputs) else int(np.prod(inputs.shape))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inputs = self.task.inputs
        tags.requires_fit = False
        tags.classifier_tags.multi_label = self.task.multilabel
        tags.input_tags.two_d_array = not isinstance(inputs, ImageInputs)
        tags.input_tags.three_d_array = isinstance(inputs, ImageInputs)
        tags.input_tags.allow_nan = isinstance(inputs, TableInputs)
        tags.input_tags.categorical = tags.input_tags.string = isinstance(inputs, TableInputs)
        return tags

    def __sklearn_clone__(self) -> "PublishedStudent":
        return PublishedStudent(self.student, self.unknown)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        inputs, classes = self.task.inputs, ", ".join(self.task.classes)
        if isinstance(inputs, TableInputs):
            takes = f"{len(inputs.columns)} columns"
        else:
            takes = f"{'images' if isinstance(inputs, ImageInputs) else 'vectors'} of {inputs.shape}"
        return f"<student of {len(self.task.classes)} classes ({classes[:60]}) from {takes}>"[:N_CHAR_MAX]

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        return {"text/plain": repr(self)}

    def fit(self, X: RawInputs, y: ArrayLike | None = None) -> Self:
        """Learn nothing: what the student knows was paid for. It is here for pipelines and cross-validation.

        Parameters
        ----------
        X : path, pandas.DataFrame or array_like
            Inputs, as `predict_proba` takes them; they must fit the task.
        y : array_like, optional
            Their labels, shape ``[n]``; as many as inputs.

        Returns
        -------
        The same student.

        Raises
        ------
        UnfitInputs
            If the inputs do not fit the task, or ``y`` does not fit the inputs.
        """
        rows = self._encoded(X)
        if y is not None:
            try:
                check_consistent_length(rows, y)
                check_classification_targets(y if self.task.multilabel else column_or_1d(y, warn=True))
            except ValueError as error:
                raise UnfitInputs(str(error)) from error
        return self

    def predict_proba(self, X: RawInputs) -> NDArray[np.float64]:
        """The probability of every class.

        Parameters
        ----------
        X : path, pandas.DataFrame or array_like
            The path of a ``.csv``, ``.parquet`` or ``.npz`` file or of a folder of images; a frame that has the task's
            columns; or an array as `collegium.encode` takes it.

        Returns
        -------
        float64 array, shape ``[n, classes]``
            Rows add up to 1 where an input has one class.

        Raises
        ------
        UnfitInputs
            If there are no inputs, or they do not fit the task; the message names columns and rows.
        """
        return self.student.probabilities(self._encoded(X))

    def predict(self, X: RawInputs) -> NDArray[np.str_] | NDArray[np.int64]:
        """The name of each input's class, shape ``[n]``; ``X`` and errors are those of `predict_proba`.

        Where an input has several classes: an int64 array of 0 and 1, shape ``[n, classes]``.
        """
        return self._named(self.student.predict(self._encoded(X)))

    def unusual(self, X: RawInputs) -> pd.DataFrame:
        """What the student's pool never held although it answers; ``X`` and errors are those of `predict_proba`.

        Returns
        -------
        Frame of ``n`` rows: ``clipped``, the names of the columns whose value lies outside the task's range and was
        taken for the end of it; ``outside_pool``, whether an input is further from the pool than 99 of 100 of the
        pool's own are from the rest of it. The latter is there where the student holds inputs of the pool.
        """
        if isinstance(X, str | Path):
            x, raw = self._loaded(X)
            return unusual(self.student, x, raw)
        return unusual(self.student, self._encoded(X), X)

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
        1), then ``probability_CLASS`` for every class, then the columns of `unusual`.

        Raises
        ------
        DataError
            If the inputs do not fit the task, or the file has no such column.
        """
        x, rows, raw = load_inputs(source, self.task)
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
        given = rows[wanted].reset_index(drop=True)
        return pd.concat([given, pd.DataFrame(answers), unusual(self.student, x, raw, source.decimal)], axis=1)

    def save(self, path: str | Path) -> None:
        """Write the file that `load_student` reads; StorageError if that fails."""
        self.student.save(Path(path))

    def _loaded(self, path: str | Path) -> tuple[NDArray[np.uint8 | np.float32], pd.DataFrame | NDArray[Any]]:
        """The inputs of a file, encoded and as they are."""
        source = validate_config({"source": str(path), "unknown": self.unknown}, DataSource, "options")
        with advice_in_python():
            x, _, raw = load_inputs(source, self.task)
        return x, raw

    def _encoded(self, given: RawInputs) -> NDArray[np.uint8 | np.float32]:
        """The inputs as the student takes them; UnfitInputs where they do not fit."""
        try:
            if isinstance(given, str | Path):
                return self._loaded(given)[0]
            if isinstance(given, pd.DataFrame):
                if given.empty:
                    raise DataError("the frame holds no records: give it at least one row")
                return encode(given, self.task, unknown=self.unknown)
            images = isinstance(self.task.inputs, ImageInputs)
            array = check_array(given, dtype=None, ensure_all_finite=False, allow_nd=images)
            return encode(array, self.task, unknown=self.unknown)
        except (DataError, ValueError, TypeError) as error:
            raise UnfitInputs(str(error)) from error

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


def load_student(path: str | Path, *, device: str = "auto", unknown: str = "refuse") -> PublishedStudent:
    """Read a published student, to predict with it.

    Nothing in the file is executed: it holds named arrays and a description of the task.

    Parameters
    ----------
    path : str or Path
        A student's file, such as ``student.safetensors`` in a run's folder.
    device : str
        Where a network computes: ``auto``, ``cpu``, ``cuda`` or ``cuda:<number>``. Forests stay on the CPU.
    unknown : str
        What a category that the task does not know is: ``refuse``, an error, or ``missing``, a missing value.

    Returns
    -------
    PublishedStudent
        A scikit-learn classifier of files, frames and arrays.

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
    return PublishedStudent(read_student(path, device=device), unknown)
