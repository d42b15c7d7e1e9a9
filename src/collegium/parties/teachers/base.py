"""What a teacher is, and how a kind of teacher is found by its name or its import path.

A teacher sees the records of its own split alone: scaling, feature choice and the number of steps are
fixed constants, public options or follow from that split, never from the party's other records.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from collegium.data.task import Task
from collegium.errors import CollegiumError, ConfigurationError, Refused

if TYPE_CHECKING:
    from collegium.data import Examples

BUILT_IN = {
    "constant": "collegium.parties.teachers.constant:ConstantTeacher",
    "linear": "collegium.parties.teachers.networks:LinearTeacher",
    "mlp": "collegium.parties.teachers.networks:MlpTeacher",
    "paper-cnn": "collegium.parties.teachers.networks:PaperCnnTeacher",
    "paper-cnn-svhn": "collegium.parties.teachers.networks:PaperCnnSvhnTeacher",
    "private-knn-cnn": "collegium.parties.teachers.networks:PrivateKnnCnnTeacher",
    "random-forest": "collegium.parties.teachers.forest:RandomForestTeacher",
    "small-cnn": "collegium.parties.teachers.networks:SmallCnnTeacher",
}
_PARTS = ("version", "fit", "predict", "save", "load")
_SCIKIT_LEARN, _TORCH = "sklearn.base.ClassifierMixin", "torch.nn.modules.module.Module"
_IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class Teacher(Protocol):
    """A classifier built as ``Kind(task, **options)``, then fitted or loaded, then asked for labels.

    ``version`` changes whenever the same records and seed would give another teacher, so that a teacher
    kept from before is not mistaken for it. A kind with ``kept = False`` is fitted anew in every process, its
    `save` and `load` never called; one with ``uses_device = False`` computes on the CPU whatever it is told.
    """

    @property
    def version(self) -> str:
        """Of the algorithm; a plain class attribute will do."""

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


def find_kind(kind: str, *, allowed_imports: Collection[str] = ()) -> Kind:
    """What builds teachers of a kind: a built-in name, or ``package.module:Class`` where the party allows it.

    The class is a `Teacher`, a scikit-learn classifier or a torch module; the latter two get what else a
    teacher needs from `sklearn_classifier` and `torch_module`.

    The kind is named by the coordinator, so importing whatever it names would let it run code of its
    choice; the party's own configuration lists the import paths that it trusts.

    Raises
    ------
    ConfigurationError
        If no such kind exists, its module cannot be imported, or it is nothing to make a teacher of.
    Refused
        If the kind is an import path that the party did not allow.
    """
    if kind in BUILT_IN:
        path = BUILT_IN[kind]
    elif _IMPORT_PATH.fullmatch(kind):
        if kind not in allowed_imports:
            raise Refused(f"this party does not allow the teacher {kind}: its institution may add it to its settings")
        path = kind
    else:
        raise ConfigurationError(
            f"unknown teacher {kind[:64]!r}: use one of {', '.join(sorted(BUILT_IN))}, or package.module:Class"
        )
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise ConfigurationError(f"teacher {kind} cannot be imported: install it or mend its name") from error
    return _kind_of(found, kind)


def _kind_of(found: Any, kind: str) -> Kind:
    missing = [part for part in _PARTS if not hasattr(found, part)]
    if not missing:
        return cast(Kind, found)
    bases = {f"{base.__module__}.{base.__qualname__}" for base in getattr(found, "__mro__", ())}
    if _SCIKIT_LEARN in bases:
        from collegium.parties.teachers.sklearn_classifier import SklearnTeacher

        return functools.partial(SklearnTeacher, kind, found)
    if _TORCH in bases:
        from collegium.parties.teachers.torch_module import ModuleTeacher

        return functools.partial(ModuleTeacher, kind, found)
    raise ConfigurationError(
        f"teacher {kind} has no {missing[0]}: it needs what collegium's Teacher describes, "
        "or to be a scikit-learn classifier or a torch module"
    )


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
    """Whether the device that `Teacher.fit` is told makes a difference."""
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
