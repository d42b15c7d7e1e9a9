"""A scikit-learn classifier as a teacher: any class by its import path, built with public options alone.

Its class decides what its fitted state is, and there is no way to write that to a file which reading
back could not turn into running code. So it is never written: a party that starts again fits it again,
to the same result, because everything random about it follows from the teacher's seed.
"""

import logging
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.data import Examples
from collegium.data.task import Task
from collegium.errors import ConfigurationError, StorageError
from collegium.models.forests import flat
from collegium.parties.teachers.base import checked_arguments

_log = logging.getLogger(__name__)
_TRIAL_RECORDS_PER_CLASS = 10


class SklearnTeacher:
    """Fits ``classifier(**options)`` on flattened float32 inputs.

    ``random_state`` follows from the teacher's seed where the class takes it and no option says otherwise.
    Where the classifier cannot learn from its own records, it votes for their most frequent class: a matter of its own
    records alone, like everything else.
    """

    version: ClassVar[str] = "1"
    kept: ClassVar[bool] = False
    uses_device: ClassVar[bool] = False

    def __init__(self, kind: str, classifier: type, task: Task, **options: Any) -> None:
        names = checked_arguments(kind, classifier, options)
        self._options = options
        self._seeded = "random_state" in names and "random_state" not in options
        self._kind, self._classifier = kind, classifier
        self._classes = len(task.classes)
        self._fitted: Any = None
        self._label = 0
        trial = self._options | ({"random_state": 0} if self._seeded else {})
        _try_out(kind, classifier, int(np.prod(task.inputs.shape)), self._classes, tuple(sorted(trial.items())))

    def fit(self, examples: Examples, *, seed: int, device: str) -> None:
        assert examples.y is not None
        self._label = int(np.bincount(examples.y, minlength=self._classes).argmax())
        seeded = {"random_state": seed % 2**32} if self._seeded else {}
        own = flat(examples.x)
        try:
            self._fitted = self._classifier(**self._options, **seeded).fit(own, examples.y)
            self._fitted.predict(own[:1])  # some find out only now
        except Exception as error:
            # An error that left this party would tell of the records, and its text may quote one.
            _log.warning("%s cannot learn from one teacher's records (%s)", self._kind, type(error).__name__)
            self._fitted = None

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        if self._fitted is not None and len(x):
            try:
                return np.asarray(self._fitted.predict(flat(x)), dtype=np.int64)
            except Exception as error:
                _log.warning("%s cannot label the inputs (%s)", self._kind, type(error).__name__)
        return np.full(len(x), self._label, dtype=np.int64)

    def save(self, path: Path) -> None:
        raise StorageError(f"a teacher of the kind {self._kind} is not kept")

    def load(self, path: Path, *, device: str) -> None:
        raise StorageError(f"a teacher of the kind {self._kind} is not kept")


@lru_cache(maxsize=64)
def _try_out(kind: str, classifier: type, features: int, classes: int, options: tuple[tuple[str, Any], ...]) -> None:
    """Fit and ask the classifier once on made-up records, so that a wrong option is found before any real fit.

    Raises ConfigurationError with what scikit-learn says: it speaks of public options only.
    """
    generator = np.random.default_rng(0)
    y = np.arange(classes * _TRIAL_RECORDS_PER_CLASS) % classes
    x = generator.random((len(y), features), dtype=np.float32)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels = classifier(**dict(options)).fit(x, y).predict(x)
    except Exception as error:
        shown = " ".join(str(error).split())[:400]
        raise ConfigurationError(f"teacher {kind} does not work with these options: {shown}") from error
    if not np.isin(np.asarray(labels), y).all():
        raise ConfigurationError(f"teacher {kind} does not predict the class numbers it was fitted on")
