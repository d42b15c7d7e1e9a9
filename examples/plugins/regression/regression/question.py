"""What is asked.

A record is a vector z = (1, φ(x), y)/√3. φ(x) are its columns, together at most 1 long; y is its target, -1 at the low
end of its range and 1 at the high end: |z| ≤ 1. The record adds the upper triangle of z·zᵀ, entries off the diagonal
times √2, which is |z|² long, in whole numbers of which `longest` stand for 1. One whose target is missing adds nothing.

Adding or removing a record moves the sum by at most ONE, replacing one by at most 2·longest ≤ √2·ONE: what
`RecordCounts` with one part charges. Of a person with g records each adds the g-th part, cut off towards 0.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from collegium.data.task import CategoryColumn, TableInputs, Task
from collegium.data.values import require
from collegium.errors import DataError
from collegium.protocol.kinds.record_counts import CountRecords
from collegium.protocol.question import register
from collegium_accounting.mechanisms.record_counts import ONE


@register
@dataclass(frozen=True)
class SumSquares(CountRecords):
    """Ask for the sum of all z·zᵀ; ``target`` and ``columns`` are of the schema, these ``width`` numbers encoded."""

    kind: ClassVar[str] = "regression"

    target: int
    columns: tuple[int, ...]
    width: int

    def __post_init__(self) -> None:
        distinct = len(self.columns) == len({*self.columns, self.target}) - 1
        require(distinct and len(self.columns) > 0, "a regression has distinct columns, and another one for its target")
        require(1 <= self.width <= 200, "a regression has 1 to 200 encoded numbers")
        super().__post_init__()

    @property
    def parts(self) -> int:
        return 1

    @property
    def length(self) -> int:
        return entries(self.width)

    @property
    def low(self) -> int:
        return -self.high

    @property
    def longest(self) -> int:
        """What stands for 1: the largest length of a record's vector."""
        replaced = self.per_party or self.terms.adjacency == "replace"
        return math.isqrt(ONE * ONE // 2) if replaced else ONE


def entries(width: int) -> int:
    """Of the upper triangle."""
    return (width + 2) * (width + 3) // 2


def parts_of(task: Task, target: int, columns: tuple[int, ...]) -> list[slice]:
    """Where the encoded numbers of target and columns are; DataError where the schema has no such numbers."""
    schema = task.inputs.columns if isinstance(task.inputs, TableInputs) else ()
    if not all(0 <= at < len(schema) for at in (target, *columns)):
        raise DataError("a regression is about columns of the consortium's table")
    if isinstance(schema[target], CategoryColumn):
        raise DataError(f"a regression needs a target that is a number; {schema[target].name} is none")
    return [task.inputs.places[at] for at in (target, *columns)]
