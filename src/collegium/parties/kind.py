"""What a party does for one kind of question; `party.Party` does the rest, the same for all kinds.

Derive `PartyKind` for each kind and `register` it. A kind from another package names its module or class under the
entry-point group ``collegium.party_kinds``.
"""

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from collegium.data import Examples, PoolStore
from collegium.data.task import Task, TeacherSettings
from collegium.data.values import ArraySpec
from collegium.errors import DataError
from collegium.extras import INSTALLED_BY
from collegium.logs import event
from collegium.parties.answer_book import AnswerBook
from collegium.parties.teachers.ensemble import TeacherEnsemble
from collegium.protocol.question import PoolRange, Question
from collegium.protocol.requests import ShowReleased
from collegium.whole_files import write_whole
from collegium_accounting.extras import Registry
from collegium_accounting.units import IntArray

_log = logging.getLogger(__name__)

ENTRY_POINT_GROUP = "collegium.party_kinds"

QuestionT = TypeVar("QuestionT", bound=Question)
KindClass = TypeVar("KindClass", bound="type[PartyKind[Any]]")


@dataclass(frozen=True, eq=False)
class Institution:
    """What answers are computed from.

    Parameters
    ----------
    name : the party's, in the roster.
    examples : its records with their class numbers.
    task : what the consortium agreed to learn.
    pools : the public inputs that it holds.
    key : the party's secret of 32 bytes; derive one for each purpose (`teachers.splits.derive_key`).
    folder : where it keeps things; None keeps nothing.
    device : where networks compute.
    teachers : the fitted teachers under some settings.
    book : the party's durable memory, opened when it is first asked for.
    record_rho : what one record may spend on neighbours over all runs.
    disk_bytes : what features of records may take on the disk between the rounds of class sums.
    """

    name: str
    examples: Examples
    task: Task
    pools: PoolStore
    key: bytes = field(repr=False)
    folder: Path | None
    device: str
    teachers: Callable[[TeacherSettings], TeacherEnsemble]
    book: Callable[[], AnswerBook] = field(repr=False)
    record_rho: float
    disk_bytes: int = 0

    def inputs_of(self, asked: PoolRange) -> NDArray[Any]:
        """The inputs of a pool that are asked about, in their order."""
        inputs: NDArray[Any] = self.pools.open(asked.pool_sha256)[np.array(asked.indices)]
        return inputs

    def note(self, file: str, said: Mapping[str, Any], code: str, otherwise: str) -> None:
        """Log the ``warning`` of what was found, or else ``otherwise``; keep all of it in place of what ``file`` held.

        Only the institution may read that file of its folder; see `kept`.
        """
        if warning := said["warning"]:
            _log.warning("party %s: %s", self.name, warning, extra=event(code, party=self.name))
        else:
            _log.info("party %s: %s", self.name, otherwise)
        if self.folder is not None:
            write_whole(self.folder / file, json.dumps(said), mode=0o600)


def kept(file: Path) -> dict[str, Any]:
    """What `Institution.note` kept; empty where there is nothing."""
    try:
        said: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return said


class Asked(NamedTuple):
    """Where a question was asked."""

    run_id: str
    round_id: str


class PartyKind(ABC, Generic[QuestionT]):
    """Answers one kind of question from the institution's own records.

    The template calls, in this order, `validate`, then checks policy and limits, `compute`, cuts the counts to the
    question's bounds, and charges them before they leave. So a kind cannot forget any of that.
    """

    question: ClassVar[type[Question]]
    """The kind of question that it answers."""

    def __init__(self, own: Institution) -> None:
        self.own = own

    def validate(self, question: QuestionT) -> None:
        """Raise unless the question suits the task and the pool, by public facts alone; no record is looked at."""

    @abstractmethod
    def compute(self, question: QuestionT, asked: Asked) -> IntArray:
        """The party's counts, int64 of the question's shape; they may lie outside its bounds."""

    def leave(self, question: QuestionT, asked: Asked) -> None:
        """Note that the masked answer is about to leave; what this raises keeps it here."""

    def shown(self, released: ShowReleased) -> None:
        """Take in what was released for a question; nothing of it is told to anybody."""

    @classmethod
    def noted(cls, folder: Path) -> Mapping[str, Any]:
        """What `party show` tells the institution of what the kind kept in ``folder``, by name.

        A number, a text, the two ends of an interval, or None; ``warning`` stands beside those of other kinds.
        """
        return {}


_by_name: Registry[type[PartyKind[Any]]] = Registry(
    ENTRY_POINT_GROUP,
    "the answer to the question",
    "two classes answer questions of the kind",
    "collegium.parties.kinds",
    INSTALLED_BY,
)


def register(kind: KindClass) -> KindClass:
    """Class decorator: have parties answer the kind's question with it.

    Raises ConfigurationError where another class answers that kind of question.
    """
    _by_name.add(kind.question.kind, kind)
    return kind


def party_kinds() -> Mapping[str, type[PartyKind[Any]]]:
    """Every registered kind, by the name of its question."""
    return _by_name.loaded()


def check_inputs(task: Task, inputs: ArraySpec | NDArray[Any]) -> None:
    """Raise DataError unless the inputs have the task's shape and type and, where seen, are finite."""
    wanted = f"{task.inputs.dtype} of shape [n, {', '.join(map(str, task.inputs.shape))}]"
    if str(inputs.dtype) != task.inputs.dtype or tuple(inputs.shape[1:]) != task.inputs.shape:
        raise DataError(f"inputs are {inputs.dtype} of shape {list(inputs.shape)}; this task needs {wanted}")
    if not isinstance(inputs, ArraySpec) and inputs.dtype.kind == "f" and not np.isfinite(inputs).all():
        raise DataError("inputs hold numbers that are not finite: replace them before they become a pool")


def check_classes(task: Task, classes: int) -> None:
    """Raise DataError unless a question is about as many classes as the task has."""
    if classes != len(task.classes):
        raise DataError(f"the question is about {classes} classes, this task has {len(task.classes)}")
