"""What a teacher is, and how a kind of teacher is found by its name.

A teacher sees the records of its own split alone: scaling, feature choice and the number of steps are
fixed constants, public options or follow from that split, never from the party's other records.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from collegium.protocol.errors import CollegiumError, ConfigurationError, Refused
from collegium.protocol.task import Task

if TYPE_CHECKING:
    from collegium.protocol.inputs import Examples

BUILT_IN = {
    "constant": "collegium.parties.teachers.constant:ConstantTeacher",
    "linear": "collegium.parties.teachers.networks:LinearTeacher",
    "mlp": "collegium.parties.teachers.networks:MlpTeacher",
    "paper-cnn": "collegium.parties.teachers.networks:PaperCnnTeacher",
    "random-forest": "collegium.parties.teachers.forest:RandomForestTeacher",
    "small-cnn": "collegium.parties.teachers.networks:SmallCnnTeacher",
}
_IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class Teacher(Protocol):
    """A classifier built as ``Kind(task, **options)``, then fitted or loaded, then asked for labels.

    ``version`` changes whenever the same records and seed would give another teacher, so that a teacher
    kept from before is not mistaken for it.
    """

    version: ClassVar[str]

    def fit(self, examples: Examples, *, seed: int, device: str) -> None:
        """Learn from records of at least two classes; the same records and seed give the same teacher."""

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """One class number per input, shape ``[n]``."""

    def save(self, path: Path) -> None:
        """Write the fitted teacher to one file of arrays, no code within it."""

    def load(self, path: Path, *, device: str) -> None:
        """Read back what `save` wrote; StorageError if the file is damaged or of another kind."""


def teacher_class(kind: str, *, allowed_imports: Collection[str] = ()) -> type[Teacher]:
    """The class behind a kind: a built-in name, or ``package.module:Class`` where the party allows it.

    The kind is named by the coordinator, so importing whatever it names would let it run code of its
    choice; the party's own configuration lists the import paths that it trusts.

    Raises
    ------
    ConfigurationError
        If no such kind exists, its module cannot be imported, or it is no teacher.
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
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"teacher {kind} cannot be imported: install it or mend its name") from error
    missing = [part for part in ("version", "fit", "predict", "save", "load") if not hasattr(found, part)]
    if missing:
        raise ConfigurationError(f"teacher {kind} has no {missing[0]}: it needs what collegium's Teacher describes")
    return cast(type[Teacher], found)


def build_teacher(kind: type[Teacher], task: Task, options: Mapping[str, Any]) -> Teacher:
    """A teacher yet to be fitted.

    Raises
    ------
    ConfigurationError
        If the kind does not take these options or does not suit the task's inputs.
    """
    try:
        return cast(Any, kind)(task, **options)  # type: ignore[no-any-return]
    except CollegiumError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"teacher options are not valid: {error}") from error
