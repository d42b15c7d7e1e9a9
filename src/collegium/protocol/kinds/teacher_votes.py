"""Asks for the votes of the parties' teachers on some inputs of a pool."""

from dataclasses import dataclass
from typing import ClassVar

from collegium import limits
from collegium.data.task import TeacherSettings
from collegium.data.values import require
from collegium.protocol.question import TURNED, Cost, PoolRange, Question, register
from collegium_accounting.mechanisms.base import Mechanism
from collegium_accounting.mechanisms.votes import VoteMechanism
from collegium_accounting.units import Adjacency, IntArray, Unit


@register
@dataclass(frozen=True)
class CastVotes(Question):
    """Ask for the votes of the party's teachers on some inputs.

    Parameters
    ----------
    teacher : what teachers the party has.
    inputs : the queries.
    classes : of the task.
    """

    kind: ClassVar[str] = "teacher-votes"
    serves: ClassVar[type] = VoteMechanism
    fixed_voters: ClassVar[bool] = True

    teacher: TeacherSettings
    inputs: PoolRange
    classes: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= self.classes <= limits.MAX_CLASSES, f"at most {limits.MAX_CLASSES} classes")

    @classmethod
    def fits(cls, mechanism: type[Mechanism]) -> bool:
        """A teacher votes for one class."""
        return super().fits(mechanism) and not mechanism.several_labels

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.inputs.indices), self.classes

    @property
    def high(self) -> int:
        return min(self.teacher.per_party, limits.MAX_TEACHERS_PER_PARTY)

    def cost(self) -> Cost:
        """All votes of the party may appear or vanish; without a record, its teacher may vote for another class."""
        return Cost(per_party=True, unit=Unit(self.high, Adjacency.ADD_REMOVE), record=TURNED)

    def check(self, counts: IntArray, teachers: int) -> None:
        """Every row holds the votes of all teachers."""
        true = int(counts.min()) >= 0 and bool((counts.sum(axis=1) == teachers).all())
        require(true, f"a row of votes does not sum to {teachers} teachers")
