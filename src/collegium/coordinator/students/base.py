"""What a student is, what it learns from, and how a method is found by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from torch import Tensor, nn

from collegium.data.task import Task
from collegium.errors import ConfigurationError, DataError
from collegium.models.devices import resolve_device, set_threads
from collegium.models.networks import Option, build_network, network_inputs, save_network
from collegium.models.training import StepCallback
from collegium.privacy.multilabel import numbers_of

_BATCH = 1024


@dataclass(frozen=True, eq=False)
class LearningProblem:
    """What every method gets: all of it public or paid for.

    Parameters
    ----------
    pool : shape ``[inputs, …]`` as the task says, unlabelled.
    indices : shape ``[labels]``, positions in the pool.
    labels : shape ``[labels]``, label numbers of the task.
    soft_targets : shape ``[labels, classes]``, the teachers' mean class probabilities without noise. Private: only
        a simulation has them.
    cache : folder in which what is learned without labels is kept and found again; None keeps nothing.
    """

    task: Task
    pool: NDArray[Any]
    indices: NDArray[np.int64]
    labels: NDArray[np.int64]
    seed: int
    device: str
    progress: StepCallback
    cache: Path | None = None
    soft_targets: NDArray[np.float64] | None = None

    def generator(self) -> torch.Generator:
        """A fresh generator on the device, the same for the same seed."""
        return torch.Generator(device=self.device).manual_seed(self.seed)


class Student(Protocol):
    """What is published: it labels inputs of its task, and its file holds arrays alone."""

    @property
    def task(self) -> Task: ...

    def probabilities(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Class probabilities, shape ``[n, classes]``, of inputs ``[n, …]`` as the task says.

        Rows add up to 1 where an input has one class.
        """
        ...

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Label numbers of the task, shape ``[n]``."""
        ...

    def save(self, path: Path) -> None:
        """Write what `load_student` reads; StorageError if that fails."""
        ...


@dataclass(frozen=True, eq=False)
class NetworkStudent:
    """A torch network that labels inputs of its task."""

    architecture: str
    task: Task
    network: nn.Module
    device: str
    options: Mapping[str, Option] = field(default_factory=dict)

    def probabilities(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Class probabilities, shape ``[n, classes]``."""
        self.network.eval()
        rows = []
        with torch.no_grad():
            for start in range(0, len(x), _BATCH):
                logits = self.network(network_inputs(x[start : start + _BATCH]).to(self.device))
                of_logits = torch.sigmoid if self.task.multilabel else partial(torch.softmax, dim=1)
                rows.append(of_logits(logits.float()).cpu().numpy())
        return np.concatenate(rows).astype(np.float64)

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Label numbers of the task, shape ``[n]``."""
        probabilities = self.probabilities(x)
        if self.task.multilabel:
            return numbers_of(probabilities >= 0.5)
        return np.asarray(probabilities.argmax(axis=1), dtype=np.int64)

    def save(self, path: Path) -> None:
        """Write the weights as safetensors, with what is needed to load them."""
        save_network(path, self.network, self.architecture, self.task, **self.options)


class StudentMethod(Protocol):
    """One way to learn. Its public settings are pydantic fields; one file each.

    A class attribute ``multilabel = True`` says that it learns several labels per input, ``needs_soft_targets = True``
    that it learns the teachers' votes without noise, which only a simulation has.
    """

    name: ClassVar[str]

    def fit(self, problem: LearningProblem) -> Student:
        """Learn.

        Raises ConfigurationError when the method does not suit the task, TrainingDiverged when it came to nothing.
        """
        ...


METHODS: dict[str, type[BaseModel]] = {}
"""Methods by name, once `load_methods` has run."""

STUDENT_METHOD = "collegium-student-method"
"""The key in a file's metadata that names the method whose ``read`` understands the file."""

ENTRY_POINT_GROUP = "collegium.students"
"""Where a package of somebody else's names its methods."""

_Method = TypeVar("_Method", bound=type[BaseModel])


def register(method: _Method) -> _Method:
    """Class decorator: make a method known under its ``name``."""
    METHODS[method.name] = method  # type: ignore[attr-defined]
    return method


@cache
def load_methods() -> None:
    """Import the methods that installed packages name as entry points; importing one registers it."""
    for point in entry_points(group=ENTRY_POINT_GROUP):
        point.load()


def needs_soft_targets(method: str) -> bool:
    """Whether the method of that name learns the teachers' votes without noise."""
    load_methods()
    return bool(getattr(METHODS.get(method), "needs_soft_targets", False))


def require_soft_targets(method: str, soft_targets: NDArray[np.float64] | None) -> None:
    """ConfigurationError if ``method`` needs soft targets and there are none, as everywhere but in a simulation."""
    if needs_soft_targets(method) and soft_targets is None:
        raise ConfigurationError(
            f"student.method {method!r} learns the teachers' answers without noise, which parties never show: it "
            "runs only in a simulation with research = true and sums without the parties' noise; use 'consistency'"
        )


def fit_student(
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
    progress: StepCallback | None = None,
    cache: Path | None = None,
    soft_targets: NDArray[np.float64] | None = None,
) -> Student:
    """Fit the student called ``method`` on the labels of ``pool[indices]`` and on the pool itself.

    Raises ConfigurationError for an unknown method or option, DataError when the labels cannot teach
    anything (none at all, one class only, a class the task does not have), TrainingDiverged when the training
    came to nothing. ``soft_targets`` are what `LearningProblem` says.
    """
    chosen = chosen_method(method, options or {}, task)
    require_soft_targets(method, soft_targets)
    positions = np.asarray(indices, dtype=np.int64)
    classes = np.asarray(labels, dtype=np.int64)
    _check_labels(positions, classes, len(pool), task)
    set_threads(threads)
    target = resolve_device(device)
    tell = progress or (lambda done, total: None)
    problem = LearningProblem(task, pool, positions, classes, seed, target, tell, cache, soft_targets)
    # Dropout draws from the process-wide generator: it is seeded for the fit and put back as it was.
    devices = [target] if target.startswith("cuda") else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        return chosen.fit(problem)


def chosen_method(method: str, options: Mapping[str, float | int | str | bool], task: Task) -> StudentMethod:
    """The method of that name with these options; ConfigurationError for an unknown one of either.

    So too for a method that does not learn several labels an input where the task has them.
    """
    load_methods()
    if method not in METHODS:
        raise ConfigurationError(f"unknown student method {method!r}; there are: {', '.join(sorted(METHODS))}")
    several = [name for name in sorted(METHODS) if getattr(METHODS[name], "multilabel", False)]
    if task.multilabel and method not in several:
        raise ConfigurationError(
            f"the student {method!r} learns one class an input: for a multilabel task choose {' or '.join(several)}"
        )
    try:
        return METHODS[method].model_validate(dict(options))  # type: ignore[return-value]
    except ValidationError as error:
        wrong = error.errors()[0]
        place = ".".join(str(part) for part in wrong["loc"])
        raise ConfigurationError(f"student.options.{place}: {wrong['msg']}") from error


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


def new_network(problem: LearningProblem, architecture: str) -> nn.Module:
    """A freshly initialised network on the problem's device; the same for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(problem.seed)
        network = build_network(architecture, problem.task)
    # Channels last is a third faster on a CPU, and what a GPU's tensor cores want.
    return network.to(device=problem.device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def pool_tensor(problem: LearningProblem) -> Tensor:
    """The whole pool as a network's input, on the device."""
    return network_inputs(problem.pool).to(problem.device)
