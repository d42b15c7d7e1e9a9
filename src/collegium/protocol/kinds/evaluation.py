"""Asks how often published classifiers are right on the parties' records."""

from dataclasses import dataclass, field
from typing import ClassVar

from collegium import limits
from collegium.data.values import require
from collegium.privacy.evaluation_cells import Layout
from collegium.protocol.kinds.record_counts import CountRecords
from collegium.protocol.question import register


@register
@dataclass(frozen=True)
class Evaluate(CountRecords):
    """Ask for the counts of an evaluation of classifiers on the party's records (`evaluation_cells`).

    Parameters
    ----------
    students : the classifiers' safetensors files.
    classes : of the task.
    """

    kind: ClassVar[str] = "evaluation"

    students: tuple[bytes, ...] = field(repr=False)
    classes: int

    def __post_init__(self) -> None:
        most = limits.MAX_CANDIDATES
        require(1 <= len(self.students) <= most, f"an evaluation is of 1 to {most} classifiers")
        require(2 <= self.classes <= limits.MAX_CLASSES, "a task has a number of classes")
        files = sum(map(len, self.students))
        require(files <= limits.MAX_EVALUATION_BYTES, f"classifiers have at most {limits.MAX_EVALUATION_BYTES} bytes")
        super().__post_init__()

    @property
    def parts(self) -> int:
        return len(self.students) * Layout(self.classes).parts

    @property
    def length(self) -> int:
        return len(self.students) * Layout(self.classes).length
