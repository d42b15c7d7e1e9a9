"""Which kinds of teachers there are, how a kind is found by its name or its import path, and which one a party fits.

A party's own choice of a kind is a setting like any other: made once, from public knowledge, and the same for all of
its teachers. A kind chosen by how well it does on the party's records would be learned from all of them, and the claim
for a single record would not hold. The coordinator learns neither the kind nor the options: rows of votes sum to the
same number of teachers, and what is charged depends on the votes alone. A party that changes its choice gains the
coordinator no more sums of one query than the policy allows anyway: answers are counted by query whatever voted
(`account.Account`), and a masked round that was begun is never begun again.
"""

import functools
import importlib
from collections.abc import Collection
from typing import Any, cast

from pydantic import Field

from collegium.data.task import OWN_CHOICE, TeacherSettings
from collegium.data.teacher_kinds import BUILT_IN, import_path
from collegium.errors import ConfigurationError, Refused
from collegium.extras import optional_import
from collegium.parties.teachers.base import Kind
from collegium.settings import Frozen

_PARTS = ("version", "fit", "predict", "save", "load")
_SCIKIT_LEARN, _TORCH = "sklearn.base.ClassifierMixin", "torch.nn.modules.module.Module"


def find_kind(kind: str, *, allowed_imports: Collection[str] = ()) -> Kind:
    """The function that builds teachers of a kind.

    The coordinator names the kind. Importing whatever it names would let it run code of its choice at the party, so
    the party's own configuration lists the import paths that it trusts.

    Parameters
    ----------
    kind : str
        A name of `BUILT_IN`, of an installed package, or ``package.module:Class``. The class is a `Teacher`, a
        scikit-learn classifier (which `SklearnTeacher` makes a teacher) or a torch module (`ModuleTeacher`).
    allowed_imports : collection of str
        The import paths and names of installed teachers that the party trusts.

    Raises
    ------
    ConfigurationError
        If no such kind exists, its module cannot be imported, or it is nothing to make a teacher of.
    MissingExtra
        If the kind needs a package that only an extra installs.
    Refused
        If the kind is no built-in one and the party did not allow it.
    """
    path = import_path(kind)
    if kind not in BUILT_IN and kind not in allowed_imports:
        raise Refused(
            f"this party does not allow the teacher {kind}: its institution may add it to teacher_imports of its policy"
        )
    module, _, name = path.partition(":")
    try:
        with optional_import(f"the teacher {kind}"):
            found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise ConfigurationError(f"teacher {kind} cannot be imported: install it or correct its name") from error
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


class OwnTeacher(Frozen):
    """The section ``[teacher]`` of a party's file; read only where the consortium's kind is ``own-choice``."""

    kind: str
    options: dict[str, float | int | str | bool] = Field(default_factory=dict)


def settings_here(asked: TeacherSettings, own: OwnTeacher | None) -> TeacherSettings:
    """What this party fits when it is asked for ``asked``.

    Raises ConfigurationError where the choice is the party's and it has made none.
    """
    if asked.kind != OWN_CHOICE:
        return asked
    if own is None:
        raise ConfigurationError(
            "this consortium leaves the kind of teacher to each party: name one under [teacher] in the party's file"
        )
    return asked.model_copy(update={"kind": own.kind, "options": own.options})
