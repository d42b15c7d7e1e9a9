"""All teachers of one party under one setting: fitted where they are missing, asked together for votes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collegium.parties.splits import assign_teachers, derive_key
from collegium.parties.store import TeacherStore, canonical_order, teacher_name
from collegium.parties.teachers.base import Teacher, build_teacher, teacher_class
from collegium.parties.teachers.constant import ConstantTeacher
from collegium.protocol.devices import set_threads
from collegium.protocol.errors import ConfigurationError
from collegium.protocol.task import Task, TeacherSettings

if TYPE_CHECKING:
    from collegium.protocol.inputs import Examples

_PREDICTION_BLOCK = 4096


class Faculty:
    """The fitted teachers of one party; ``reused`` of them were found in the store.

    Parameters
    ----------
    party : str
        Its name: parties with the same settings start their teachers from different seeds.
    examples : Examples
        All records of the party, with labels.
    settings : TeacherSettings
        Kind, number, seed and options, equal for every party of a run.
    key : bytes
        The party's secret: it decides which record teaches whom, and names the kept files.
    progress : callable
        Called with the number of teachers that are ready, after each.

    Raises
    ------
    ConfigurationError, Refused
        If the kind or its options are not valid, not allowed here, or do not suit the task.
    StorageError
        If a fitted teacher cannot be kept.
    """

    def __init__(
        self,
        party: str,
        examples: Examples,
        task: Task,
        settings: TeacherSettings,
        *,
        key: bytes,
        store: TeacherStore,
        device: str,
        threads: int,
        allowed_imports: Collection[str],
        progress: Callable[[int], None],
    ) -> None:
        kind = teacher_class(settings.kind, allowed_imports=allowed_imports)
        # Built once before any work: wrong options are an error even where every split falls to a constant.
        build_teacher(kind, task, settings.options)
        set_threads(threads)
        self._threads = threads
        self._classes = len(task.classes)
        self._teachers: list[Teacher] = []
        self.reused = 0
        assigned = assign_teachers(examples.identities(), settings.per_party, key)
        naming_key = derive_key(key, "names of fitted teachers")
        for number in range(settings.per_party):
            own = canonical_order(examples.take(np.flatnonzero(assigned == number)))
            assert own.y is not None
            learnable = len(np.unique(own.y)) > 1
            teacher = build_teacher(kind, task, settings.options) if learnable else ConstantTeacher(task)
            seed = _teacher_seed(settings.seed, party, number)
            made_by = {
                "kind": settings.kind if learnable else "constant",
                "version": teacher.version,
                "options": settings.options,
                "task": task.model_dump(mode="json"),
                "seed": seed,
            }
            name = teacher_name(naming_key, own, made_by)
            if store.load_into(teacher, name, device=device):
                self.reused += 1
            else:
                # A load that failed half-way must leave nothing behind.
                teacher = build_teacher(kind, task, settings.options) if learnable else ConstantTeacher(task)
                teacher.fit(own, seed=seed, device=device)
                store.keep(teacher, name)
            self._teachers.append(teacher)
            progress(number + 1)

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
                    raise ConfigurationError("a teacher must predict one class number per input: mend its predict")
                counts[rows, labels] += 1
        return counts


def _teacher_seed(seed: int, party: str, number: int) -> int:
    """A seed of 63 bits of its own for each teacher of each party."""
    digest = hashlib.sha256(f"collegium teacher seed\0{seed}\0{party}\0{number}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
