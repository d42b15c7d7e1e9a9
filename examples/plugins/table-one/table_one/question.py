"""What is asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from collegium.data.task import CategoryColumn, TableInputs, Task
from collegium.data.values import require
from collegium.errors import DataError
from collegium.protocol.kinds.record_counts import CountRecords
from collegium.protocol.question import register


@register
@dataclass(frozen=True)
class TableOne(CountRecords):
    """Count records by class and value; ``columns`` of the schema have ``sizes`` values each (`values_of`)."""

    kind: ClassVar[str] = "table-one"

    columns: tuple[int, ...]
    sizes: tuple[int, ...]
    bins: int
    classes: int

    def __post_init__(self) -> None:
        require(0 < len(self.columns) == len(self.sizes) == len(set(self.columns)), "table one has distinct columns")
        require(1 <= self.bins <= 100 and 2 <= self.classes <= 1000 and min(self.sizes) > 0, "table one has cells")
        super().__post_init__()

    @property
    def parts(self) -> int:
        return len(self.columns)

    @property
    def length(self) -> int:
        return self.classes * sum(self.sizes)


def values_of(task: Task, columns: Sequence[int], bins: int) -> list[list[str]]:
    """What the values of these columns are called: categories, or intervals; the last is "other" or "missing"."""
    if not isinstance(task.inputs, TableInputs) or not all(0 <= at < len(task.inputs.columns) for at in columns):
        raise DataError("table one is about columns of the consortium's table")
    named = []
    for column in [task.inputs.columns[at] for at in columns]:
        if isinstance(column, CategoryColumn):
            named.append([*column.categories, "other"])
        else:
            ends = [column.low + (column.high - column.low) * number / bins for number in range(bins + 1)]
            named.append([*(f"{low:g} to {high:g}" for low, high in pairwise(ends)), "missing"])
    return named
