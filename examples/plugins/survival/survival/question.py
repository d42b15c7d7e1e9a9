"""What is asked.

A record is at risk of the event in each interval of time until its own, and has the event there or is censored. Each
round's vector has two parts. In the first, a record adds `ONE` to a single cell: its interval, and whether it had the
event. In the second, it adds whole numbers of a Euclidean length of at most `longest`: in the first round φ(x) and
φ(x)φ(x)ᵀ, later its residual r under the weights that the question names, and φ(x)·Σr. φ(x) are its columns.

Adding or removing a record moves the sum by its vector: by at most √(ONE² + longest²) ≤ √2·ONE. In place of
another one it moves the first part by at most √2·ONE and the second by at most 2·longest, which is √2·ONE where records
are replaced: by 2·ONE in all. So `RecordCounts` with two parts charges for each round what it costs at least, and T
rounds, each of which follows from what was released before, compose as T Gaussian mechanisms. Of a person with g
records each adds ⌊ONE/g⌋ to its cell and the g-th part of the rest, cut off towards 0: in all no longer than one.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from collegium.data.task import CategoryColumn, TableInputs, Task
from collegium.data.values import require
from collegium.errors import DataError
from collegium.models.codes import Weights
from collegium.protocol.kinds.record_counts import CountRecords
from collegium.protocol.question import register
from collegium_accounting.mechanisms.record_counts import ONE

UNIT = 4 * ONE // 5
"""What stands for 1 in the second part."""


@register
@dataclass(frozen=True)
class SumSurvival(CountRecords):
    """Ask for cells and residuals; ``time`` and ``columns`` are of the schema, these ``width`` numbers when encoded.

    ``weights`` are log-odds of the event in each interval, then a weight for each number; None in the first round.
    """

    kind: ClassVar[str] = "survival"

    time: int
    columns: tuple[int, ...]
    bins: int
    width: int
    weights: Weights | None = None

    def __post_init__(self) -> None:
        require(len(self.columns) == len({*self.columns, self.time}) - 1, "survival has distinct columns")
        require(
            2 <= self.bins <= 200 and 1 <= self.width <= 200, "survival has 2 to 200 bins, 1 to 200 encoded numbers"
        )
        fits = self.weights is None or self.weights.whole.shape == (self.bins + self.width, 1)
        require(fits, "weights are about intervals and columns")
        super().__post_init__()

    @property
    def parts(self) -> int:
        return 2

    @property
    def length(self) -> int:
        return entries(self.bins, self.width)

    @property
    def low(self) -> int:
        return -self.high

    @property
    def longest(self) -> int:
        """The largest length of a record's second part."""
        replaced = self.per_party or self.terms.adjacency == "replace"
        return math.isqrt(ONE * ONE // 2) if replaced else ONE


def entries(bins: int, width: int) -> int:
    """Censored in each interval or beyond the last, the same with the event, and room for the second part."""
    return 2 * (bins + 1) + max(width * (width + 1), bins + width)


def parts_of(task: Task, time: int, columns: tuple[int, ...]) -> list[slice]:
    """Where the encoded numbers of time and columns are; DataError where the task is not about survival."""
    schema = task.inputs.columns if isinstance(task.inputs, TableInputs) else ()
    if len(task.classes) != 2 or not all(0 <= at < len(schema) for at in (time, *columns)):
        raise DataError("survival is about a table's columns and two classes of records: censored, and the event")
    if isinstance(schema[time], CategoryColumn):
        raise DataError(f"survival needs a time that is a number; {schema[time].name} is none")
    return [task.inputs.places[at] for at in (time, *columns)]
