"""Asks which records lie near some inputs of a pool: each within a public radius votes for its class."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium import limits
from collegium.data.values import require
from collegium.models.features import Features
from collegium.protocol.question import ONE_RECORD, Cost, PoolRange, Question, register
from collegium_accounting.mechanisms.labels import LabelMechanism

KERNELS = ("flat", "quadratic")
"""The names of the functions from distance to weight; see `weight_units`."""


@register
@dataclass(frozen=True)
class CastNeighbours(Question):
    """Ask for the classes of the party's records within a radius of some inputs of a pool.

    Parameters
    ----------
    terms : with the parameters ``sigma`` (noise on each entry of the sum), ``levels`` (what the largest weight
        counts in an entry) and ``participations`` (full-weight votes that one record may cast in the run).
    features : made from public data alone, like the radii.
    inputs : the queries, each once.
    classes : of the task.
    radii_squared : one per input, in the units of the features.
    kernel : how a record's weight falls with its distance; see `weight_units`.
    per_party : whether all records of the party are one voter with one budget, which protects the party as a whole.
    """

    kind: ClassVar[str] = "near-records"
    serves: ClassVar[type] = LabelMechanism
    reads: ClassVar[tuple[str, ...]] = ("levels", "participations", "sigma")
    per_row: ClassVar[tuple[str, ...]] = ("inputs", "radii_squared")

    features: Features
    inputs: PoolRange
    classes: int
    radii_squared: tuple[int, ...]
    kernel: str
    per_party: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= self.classes <= limits.MAX_CLASSES, f"at most {limits.MAX_CLASSES} classes")
        require(self.kernel in KERNELS, f"a kernel is one of {', '.join(KERNELS)}")
        require(len(self.radii_squared) == len(self.inputs.indices), "every query has its radius")
        require(len(set(self.inputs.indices)) == len(self.inputs.indices), "a round asks an input once")
        require(
            all(0 <= radius <= limits.MAX_RADIUS_SQUARED for radius in self.radii_squared),
            f"a squared radius lies between 0 and {limits.MAX_RADIUS_SQUARED}",
        )

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.inputs.indices), self.classes

    @property
    def high(self) -> int:
        return limits.MAX_NEIGHBOUR_COUNT

    def cost(self) -> Cost:
        """Each record, or the party as one voter, pays from its own budget."""
        return Cost(self.per_party, ONE_RECORD, ONE_RECORD, budgets_pay=True)

    def detail(self, row: int) -> bytes:
        return b"%d" % self.radii_squared[row]


def weight_units(
    distances_squared: NDArray[np.int64], radius_squared: int, kernel: str, levels: int
) -> NDArray[np.int64]:
    """Weights of records in units of 1/``levels``, from 0 to ``levels``: 0 outside the radius.

    ``flat`` weighs 1 inside; ``quadratic`` weighs 1 − d²/r², rounded up to the next unit. All values are whole
    numbers. A record's weight is therefore the same in whatever batches it is computed, and depends only on the
    record itself and on public data.
    """
    inside = distances_squared <= radius_squared
    if kernel == "flat":
        return np.multiply(inside, levels, dtype=np.int64)
    clipped = np.minimum(distances_squared, radius_squared)
    units = levels - (clipped * levels) // max(radius_squared, 1)
    units *= inside
    return units
