"""The interface of a teacher.

A teacher sees the records of its own split alone: scaling, feature choice and the number of steps are
fixed constants, public options or follow from that split, never from the party's other records.
"""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from collegium.data import Examples
from collegium.data.task import Task
from collegium.errors import CollegiumError, ConfigurationError


class Teacher(Protocol):
    """A classifier built as ``Kind(task, **options)``, then fitted or loaded, then asked for labels.

    ``version`` changes whenever the same records and seed would give another teacher, so that a teacher
    kept from before is not mistaken for it. A kind with ``kept = False`` is fitted anew in every process, its
    `save` and `load` never called; one with ``uses_device = False`` always computes on the CPU.
    """

    @property
    def version(self) -> str:
        """The version of the algorithm; a plain class attribute is enough."""

    def fit(self, examples: Examples, *, seed: int, device: str) -> None:
        """Learn from records of at least two classes; the same records and seed give the same teacher."""

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """One class number per input, shape ``[n]``."""

    def save(self, path: Path) -> None:
        """Write the fitted teacher to one file of arrays, no code within it."""

    def load(self, path: Path, *, device: str) -> None:
        """Read back what `save` wrote; StorageError if the file is damaged or of another kind."""


Kind = Callable[..., Teacher]
"""Builds a teacher yet to be fitted: ``kind(task, **options)``."""


def build_teacher(kind: Kind, task: Task, options: Mapping[str, Any]) -> Teacher:
    """A teacher yet to be fitted.

    Raises
    ------
    ConfigurationError
        If the kind does not take these options or does not suit the task's inputs.
    """
    try:
        return kind(task, **options)
    except CollegiumError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"teacher options are not valid: {error}") from error


def can_be_kept(teacher: Teacher) -> bool:
    """Whether `Teacher.save` writes it to a file."""
    return bool(getattr(teacher, "kept", True))


def uses_device(teacher: Teacher) -> bool:
    """Whether the teacher uses the device that `Teacher.fit` is given."""
    return bool(getattr(teacher, "uses_device", True))


def checked_arguments(kind: str, found: Callable[..., object], options: Mapping[str, Any]) -> set[str]:
    """The names of the arguments that ``found`` takes, ``**`` among them if it takes any.

    Raises ConfigurationError for an option that is not one of them.
    """
    parameters = inspect.signature(found).parameters.values()
    names = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return {*names, "**"}
    unknown = sorted(set(options) - names)
    if unknown:
        raise ConfigurationError(
            f"{kind} takes no option {unknown[0][:64]!r}: it takes {', '.join(sorted(names)) or 'none'}"
        )
    return names
