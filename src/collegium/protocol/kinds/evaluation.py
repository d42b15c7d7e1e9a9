"""Asks how often a published classifier is right on the parties' records."""

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
    """Ask for the counts of an evaluation of a classifier on the party's records (`evaluation_cells`).

    Parameters
    ----------
    student : the classifier's safetensors file.
    classes : of the task.
    """

    kind: ClassVar[str] = "evaluation"

    student: bytes = field(repr=False)
    classes: int

    def __post_init__(self) -> None:
        require(2 <= self.classes <= limits.MAX_CLASSES, "a task has a number of classes")
        most = limits.MAX_EVALUATION_BYTES
        require(len(self.student) <= most, f"a classifier has at most {most} bytes")
        super().__post_init__()

    @property
    def parts(self) -> int:
        return Layout(self.classes).parts

    @property
    def length(self) -> int:
        return Layout(self.classes).length
