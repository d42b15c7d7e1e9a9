"""All teachers of one party under one setting: fitted where they are missing, asked together for votes."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigurationError
from collegium.models.devices import set_threads
from collegium.parties.teachers.base import Teacher
from collegium.parties.teachers.fitting import fit_teachers
from collegium.parties.teachers.specs import TeacherSpec

_PREDICTION_BLOCK = 4096


class TeacherEnsemble:
    """The fitted teachers of one party; ``reused`` of them were found in their store.

    Parameters
    ----------
    specs : all teachers of the party, at least one; see `specs_of`.
    threads : cores; teachers that are missing are fitted in as many processes, on the CPU.
    progress : called with the number of teachers that are ready, after each.

    Raises
    ------
    ConfigurationError
        If the kind or its options do not suit the task.
    StorageError
        If a fitted teacher cannot be kept.
    FittingFailed
        If a process that fits teachers fails.
    """

    def __init__(
        self,
        specs: Sequence[TeacherSpec],
        *,
        device: str,
        threads: int,
        progress: Callable[[int], None] = lambda ready: None,
    ) -> None:
        set_threads(threads)
        self._threads = threads
        self._classes = len(specs[0].factory.task.classes)
        found: dict[int, Teacher] = {}
        for spec in specs:
            teacher = spec.unfitted()
            if spec.store.load_into(teacher, spec.name, device=device):
                found[spec.number] = teacher
                progress(len(found))
        self.reused = len(found)
        missing = [spec for spec in specs if spec.number not in found]
        for spec, teacher in fit_teachers(missing, device=device, threads=threads):
            found[spec.number] = teacher
            progress(len(found))
        self._teachers = [found[spec.number] for spec in specs]

    def __len__(self) -> int:
        return len(self._teachers)

    def votes(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Votes per class for each input, shape ``[n, classes]``; every row sums to the number of teachers."""
        set_threads(self._threads)  # torch counts them per thread, and this may be another one
        counts = np.zeros((len(x), self._classes), dtype=np.int64)
        for start in range(0, len(x), _PREDICTION_BLOCK):
            block = np.ascontiguousarray(x[start : start + _PREDICTION_BLOCK])
            rows = np.arange(start, start + len(block))
            for teacher in self._teachers:
                labels = teacher.predict(block)
                if labels.shape != (len(block),) or labels.min() < 0 or labels.max() >= self._classes:
                    raise ConfigurationError(
                        "a teacher must predict one class number per input: correct its predict method"
                    )
                counts[rows, labels] += 1
        return counts
