"""Students learn from the issued labels and the public pool; they are what a consortium publishes.

This module says what a student learns from, and finds its method by name. A method is
imported when it is chosen, so that a student that is a forest needs no torch.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from collegium.data.task import Task
from collegium.errors import ConfigurationError, DataError, MissingExtra
from collegium.extras import installed, load_plugin, optional_import
from collegium.models.devices import resolve_device, seeded_draws, set_threads
from collegium.models.noisy_sums import NoisySums
from collegium.models.students import ENTRY_POINT_GROUP, Student
from collegium.models.students import METHODS as METHODS
from collegium.settings import first_mistake

if TYPE_CHECKING:
    from collegium.models.networks import FittedNetwork
    from collegium.models.training import StepCallback


@dataclass(frozen=True, eq=False)
class LearningProblem:
    """The input of every method. All of it is public or paid for.

    Parameters
    ----------
    pool : shape ``[inputs, …]`` as the task says, unlabelled.
    indices : shape ``[labels]``, positions in the pool.
    labels : shape ``[labels]``, label numbers of the task.
    cache : folder in which what is learned without labels is kept and found again; None keeps nothing.
    sums : the class sums that the labels come from, where they do.
    threads : what torch is told once it is loaded; None tells it nothing.
    """

    task: Task
    pool: NDArray[Any]
    indices: NDArray[np.int64]
    labels: NDArray[np.int64]
    seed: int
    device: str
    progress: "StepCallback"
    cache: Path | None = None
    sums: NoisySums | None = None
    threads: int | None = None


class StudentMethod(Protocol):
    """One way to learn. Its public settings are pydantic fields; one file each.

    A class attribute ``multilabel = True`` says that it learns several labels per input.
    """

    name: ClassVar[str]

    def fit(self, problem: LearningProblem) -> "Student | FittedNetwork":
        """Learn; a torch network is put into whole numbers before it is published.

        Raises ConfigurationError when the method does not suit the task, TrainingDiverged when it came to nothing.
        """
        ...


BUILT_IN = {
    "consistency": "collegium.coordinator.students.consistency",
    "kernel": "collegium.coordinator.students.without_torch",
    "random-forest": "collegium.coordinator.students.without_torch",
    "supervised": "collegium.coordinator.students.supervised",
}
"""The module of each method of this package, imported when the method is first looked for."""

_Method = TypeVar("_Method", bound=type[BaseModel])


def register(method: _Method) -> _Method:
    """Class decorator: make a method known under its ``name``, also to `read_student`, which calls its ``read``."""
    METHODS[method.name] = method  # type: ignore[attr-defined]
    return method


def method_names() -> list[str]:
    """The names of all methods, sorted; none of them is imported."""
    return sorted({*METHODS, *BUILT_IN, *installed(ENTRY_POINT_GROUP).names})


def find_method(name: str) -> type[BaseModel]:
    """The class of the method of that name.

    Raises
    ------
    ConfigurationError
        No such method is registered or installed, or its package is broken.
    MissingExtra
        The method needs a package that only an extra installs.
    """
    if name not in method_names():
        raise ConfigurationError(
            f"unknown student method {name!r}: install the package that has it, or use one of "
            f"{', '.join(method_names())}"
        )
    if name not in METHODS:
        if name in BUILT_IN:
            with optional_import(f"the student {name!r}"):
                importlib.import_module(BUILT_IN[name])
        else:
            register(load_plugin(installed(ENTRY_POINT_GROUP)[name], f"the student {name!r}"))
    found: type[BaseModel] = METHODS[name]
    return found


def fit_student(  # noqa: PLR0913 -- what a student may learn from, by name
    method: str,
    pool: NDArray[Any],
    indices: Sequence[int] | NDArray[np.int64],
    labels: Sequence[int] | NDArray[np.int64],
    task: Task,
    *,
    seed: int,
    device: str = "auto",
    threads: int = 1,
    options: Mapping[str, float | int | str | bool] | None = None,
    progress: "StepCallback | None" = None,
    cache: Path | None = None,
    sums: NoisySums | None = None,
) -> Student:
    """Fit the student called ``method`` on the labels of ``pool[indices]`` and on the pool itself.

    Raises ConfigurationError for an unknown method or option and for a network that has no form in whole numbers,
    MissingExtra for a method whose package is not installed, DataError when the labels cannot teach anything (none at
    all, one class only, a class the task does not have; class sums teach even where their labels are of one class),
    TrainingDiverged when the training came to nothing. ``cache`` and ``sums`` are what `LearningProblem` says.
    """
    chosen = chosen_method(method, options or {}, task)
    positions = np.asarray(indices, dtype=np.int64)
    classes = np.asarray(labels, dtype=np.int64)
    if sums is None:
        _check_labels(positions, classes, len(pool), task)
    set_threads(threads)
    target = resolve_device(device)
    tell = progress or (lambda done, total: None)
    problem = LearningProblem(task, pool, positions, classes, seed, target, tell, cache, sums, threads)
    with seeded_draws(seed, target):
        fitted = chosen.fit(problem)
    # Not by its class: that of torch networks would load torch for forests.
    published: Callable[[NDArray[Any]], Student] | None = getattr(fitted, "published", None)
    return fitted if published is None else published(pool)  # type: ignore[return-value]


def chosen_method(method: str, options: Mapping[str, float | int | str | bool], task: Task) -> StudentMethod:
    """The method of that name with these options; ConfigurationError for an unknown one of either.

    So too for a method that does not learn several labels an input where the task has them.
    """
    found = find_method(method)
    if task.multilabel and not _learns_several(method):
        several = [name for name in method_names() if _learns_several(name)]
        raise ConfigurationError(
            f"the student {method!r} learns one class an input: for a multilabel task choose {' or '.join(several)}"
        )
    try:
        return found.model_validate(dict(options))  # type: ignore[return-value]
    except ValidationError as error:
        raise ConfigurationError(f"student.options.{first_mistake(error)}") from error


def _learns_several(method: str) -> bool:
    """Whether the method learns several labels per input; False where it cannot be imported."""
    try:
        return bool(getattr(find_method(method), "multilabel", False))
    except MissingExtra:
        return False


def _check_labels(positions: NDArray[np.int64], classes: NDArray[np.int64], inputs: int, task: Task) -> None:
    if len(positions) == 0:
        raise DataError("no query got a label: ask more queries, lower the threshold or raise the budget")
    if positions.shape != classes.shape or positions.min() < 0 or positions.max() >= inputs:
        raise DataError(f"labels do not fit a pool of {inputs} inputs")
    if classes.min() < 0 or classes.max() >= task.label_numbers:
        raise DataError(f"a label is outside the task's {len(task.classes)} classes")
    if len(np.unique(classes)) < 2:
        only = "the same" if task.multilabel else task.classes[int(classes[0])]
        raise DataError(f"all {len(classes)} labels say {only!r}: a student needs two classes; ask more queries")
