"""The suite for student methods: what is published predicts classes of its task and is a file of arrays alone."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from collegium.coordinator.students import find_method, fit_student, method_names
from collegium.data.task import Task
from collegium.errors import CollegiumError, ConfigurationError
from collegium.models.students import Student, read_student
from collegium_conformance.promises import (
    TABLE,
    check_file,
    class_numbers,
    easy_examples,
    on_a_suitable_task,
    promise,
    random_state,
    refuses,
)

_POOL = 240
_LABELS = 60
_SEED = 3


def check_student(
    method: str, *, options: Mapping[str, float | int | str | bool] | None = None, task: Task | None = None
) -> None:
    """Check that a student method keeps its promises.

    Parameters
    ----------
    method : str
        The registered name; an installed package names its methods as entry points ``collegium.students``.
    options : mapping, optional
        Options of the method; few steps or trees make the suite fast.
    task : Task, optional
        What the student learns; by default a small table, and small images where the method does not suit tables.

    Raises
    ------
    AssertionError
        With the promise that is broken: the method is not registered or its settings can change; its probabilities
        or classes have the wrong shape, type or range; it changes the pool; the same labels and seed give another
        student; the file is not of arrays alone, cannot be read back by `read_student`, or is read although it is
        damaged.
    """
    chosen = dict(options or {})
    promise(method in method_names(), f"no student method is registered as {method!r}: put @register on its class")
    promise(
        bool(find_method(method).model_config.get("frozen")), f"{method}: its settings must be a frozen pydantic model"
    )
    refuses(
        ConfigurationError,
        lambda: _fitted(method, {**chosen, "no_such_option": 1}, task or TABLE),
        f"{method} must refuse an option that it does not have",
    )
    with random_state(4):
        student, suited = on_a_suitable_task(method, task, lambda suitable: _fitted(method, chosen, suitable))
    _check_predictions(method, student, suited)
    with random_state(5):
        again = _fitted(method, chosen, suited)
    probes = easy_examples(suited, 200, seed=9, spread=0.4).x
    promise(
        bool((again.predict(probes) == student.predict(probes)).all()),
        f"{method}: the same labels and seed gave another student with another random state of the process",
    )
    again = check_file(method, student, lambda path: read_student(path, device="cpu"), CollegiumError, probes)
    promise(again.task == suited, f"{method}: the student that is read back has another task")


def _fitted(method: str, options: dict[str, Any], task: Task) -> Student:
    pool = easy_examples(task, _POOL, seed=1)
    kept = pool.x.copy()
    indices = np.arange(_LABELS, dtype=np.int64)
    labels = pool.labels()[indices]
    student = fit_student(method, pool.x, indices, labels, task, seed=_SEED, device="cpu", options=options)
    promise(bool((pool.x == kept).all()), f"{method} changes the pool that it is given")
    return student


def _check_predictions(method: str, student: Student, task: Task) -> None:
    probes = easy_examples(task, 90, seed=2, spread=0.4).x
    promise(student.task == task, f"{method}: the student must say for which task it is")
    for inputs in (probes, probes[:1]):
        class_numbers(student.predict(inputs), len(inputs), task.label_numbers, method)
    probabilities = student.probabilities(probes)
    promise(
        probabilities.shape == (len(probes), len(task.classes)) and probabilities.dtype == np.float64,
        f"{method}: probabilities must be float64 of shape [{len(probes)}, {len(task.classes)}]",
    )
    promise(
        bool(((probabilities >= 0) & (probabilities <= 1)).all()),
        f"{method}: probabilities must lie in [0, 1]",
    )
    if task.multilabel:
        return
    promise(
        bool(np.allclose(probabilities.sum(axis=1), 1.0, atol=1e-6)), f"{method}: probabilities of an input add up to 1"
    )
    best = np.take_along_axis(probabilities, student.predict(probes)[:, None], axis=1)[:, 0]
    promise(
        bool((best >= probabilities.max(axis=1) - 1e-6).all()),
        f"{method}: predict must name the class of the largest probability",
    )
