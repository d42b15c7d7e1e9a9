"""A student whose probabilities were fitted to a few labelled records of the place where it is used.

The probability of class c becomes pᶜ raised to s, times exp(b_c), over the sum of these over the classes. Slope s and
offsets b are those that make the labels most likely under a normal prior of deviation 1 around log s = 0 and b = 0, so
that few records change little. With two classes it is Platt's calibration. A cut may be set beside it: from which
probability on one class is named.

References
----------
Platt, "Probabilistic outputs for support vector machines", 1999.
Guo et al., "On calibration of modern neural networks", ICML 2017.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.task import Task
from collegium.errors import ConfigurationError, DataError, StorageError
from collegium.models.arrays import kinds_in, load_arrays, save_arrays
from collegium.models.student import Student

CALIBRATED_FORMAT = "collegium-calibrated-v1"
"""The key of a file's metadata that describes a calibrated student."""

FEWEST = 10
"""Records that a calibration needs."""
SMALLEST = 1e-4
"""A probability counts as at least this."""


@dataclass(frozen=True, eq=False)
class CalibratedStudent:
    """A student behind a calibration.

    Parameters
    ----------
    student : the one whose probabilities are calibrated.
    slope : s, above 0.
    offsets : b, float64 ``[classes]``.
    cut : the number of a class, and from which of its probabilities on it is named; None for the likeliest class.
    """

    student: Student
    slope: float
    offsets: NDArray[np.float64]
    cut: tuple[int, float] | None = None

    @property
    def task(self) -> Task:
        return self.student.task

    def probabilities(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """The calibrated probabilities of inputs ``[n, …]``, shape ``[n, classes]``."""
        logarithms = np.log(np.maximum(self.student.probabilities(x), SMALLEST))
        return raised(logarithms, self.slope, self.offsets)

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """The likeliest class, or by the cut; ``[n]``."""
        shares = self.probabilities(x)
        if self.cut is not None:
            number, least = self.cut
            shares[:, number] = np.where(shares[:, number] >= least, 2.0, -1.0)
        return np.asarray(shares.argmax(axis=1), dtype=np.int64)

    def save(self, path: Path) -> None:
        """Write the student's own file and the calibration as arrays; StorageError if that fails."""
        with TemporaryDirectory(prefix="collegium-") as folder:
            inside = Path(folder) / "student.safetensors"
            self.student.save(inside)
            arrays: dict[str, NDArray[Any]] = {
                "student": np.frombuffer(inside.read_bytes(), dtype=np.uint8),
                "calibration": np.array([self.slope, *self.offsets]),
            }
        if self.cut is not None:
            arrays["cut"] = np.array(self.cut, dtype=np.float64)
        save_arrays(path, CALIBRATED_FORMAT, arrays)


def raised(logarithms: NDArray[np.float64], slope: float, offsets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities from the logarithms of a student's, ``[n, classes]`` each."""
    scores = slope * logarithms + offsets
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def calibration(shares: NDArray[np.float64], labels: NDArray[np.int64]) -> tuple[float, NDArray[np.float64]]:
    """Slope and offsets that fit a student's probabilities ``[n, classes]`` to class numbers ``[n]``."""
    from scipy.optimize import minimize

    logarithms = np.log(np.maximum(shares, SMALLEST))
    rows, truth = np.arange(len(labels)), np.eye(shares.shape[1])[labels]

    def cost(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        slope = float(np.exp(parameters[0]))
        found = raised(logarithms, slope, parameters[1:])
        missed = found - truth
        gradient = np.concatenate([[slope * float((missed * logarithms).sum())], missed.sum(axis=0)]) + parameters
        return 0.5 * float(parameters @ parameters) - float(np.log(found[rows, labels]).sum()), gradient

    found = minimize(cost, np.zeros(1 + shares.shape[1]), jac=True, method="L-BFGS-B").x
    return float(np.exp(found[0])), np.asarray(found[1:])


def calibrated(student: Student, x: NDArray[Any], labels: NDArray[np.int64]) -> CalibratedStudent:
    """The student, calibrated on labelled inputs ``[n, …]`` and class numbers ``[n]``.

    Raises
    ------
    DataError
        If there are fewer than 10 inputs, or all are of one class.
    ConfigurationError
        If an input of the task may have several classes.
    """
    inner = student.student if isinstance(student, CalibratedStudent) else student
    if inner.task.multilabel:
        raise ConfigurationError("a student of several labels an input cannot be calibrated: use it as it is")
    if len(labels) < FEWEST or len(np.unique(labels)) < 2:
        raise DataError(
            f"a calibration needs {FEWEST} labelled records or more, of two classes at least; there are {len(labels)}, "
            f"of {len(np.unique(labels))} classes: label more of them"
        )
    return CalibratedStudent(inner, *calibration(inner.probabilities(x), labels))


def read_student(path: Path, *, device: str, read: Callable[..., Student]) -> CalibratedStudent:
    """What `CalibratedStudent.save` wrote; ``read`` reads the student inside.

    Raises
    ------
    StorageError
        If the file is damaged, or the student inside is calibrated itself.
    """
    arrays, _ = load_arrays(path, CALIBRATED_FORMAT)
    damaged = StorageError(f"{path.name} holds a damaged calibrated student")
    try:
        inside, numbers, cut = arrays.pop("student"), arrays.pop("calibration"), arrays.pop("cut", None)
    except KeyError:
        raise damaged from None
    if arrays or inside.dtype != np.uint8 or numbers.dtype != np.float64 or numbers.ndim != 1:
        raise damaged
    with TemporaryDirectory(prefix="collegium-") as folder:
        file = Path(folder) / path.name
        file.write_bytes(inside.tobytes())
        try:
            nested = CALIBRATED_FORMAT in kinds_in(file)
        except StorageError as error:
            raise damaged from error
        if nested:  # files in files without end
            raise damaged
        student = read(file, device=device)
    classes = len(student.task.classes)
    fits = len(numbers) == 1 + classes and bool(np.isfinite(numbers).all()) and numbers[0] > 0
    if cut is not None:
        fits = fits and cut.shape == (2,) and cut.dtype == np.float64 and cut[0] in range(classes) and 0 <= cut[1] <= 1
    if not fits or student.task.multilabel:
        raise damaged
    chosen = None if cut is None else (int(cut[0]), float(cut[1]))
    return CalibratedStudent(student, float(numbers[0]), numbers[1:], chosen)
