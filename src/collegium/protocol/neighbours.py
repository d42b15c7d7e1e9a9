"""What both sides of a request for neighbours must compute alike: sums of records, and the weight of a distance.

All values are whole numbers. A record's contribution is therefore the same in whatever batches it is computed, and
depends only on the record itself and on public data.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from collegium import limits
from collegium.data.values import require

KERNELS = ("flat", "quadratic")
"""The names of the functions from distance to weight; see `weight_units`."""


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Sums of one party's records per query and class, or per interval of distances; int64 ``[queries, classes]``."""

    counts: NDArray[np.int64] = field(repr=False)

    def __post_init__(self) -> None:
        require(self.counts.ndim == 2 and self.counts.dtype == np.int64, "neighbours are counts per query and class")
        queries, classes = self.counts.shape
        require(0 < queries <= limits.MAX_QUERIES_PER_ROUND, "a round has 1 to 100,000 queries")
        require(0 < classes <= limits.MAX_CLASSES, "at most 1,000 classes")
        lowest, highest = int(self.counts.min()), int(self.counts.max())
        require(lowest >= 0 and highest <= limits.MAX_NEIGHBOUR_COUNT, f"counts are 0 to {limits.MAX_NEIGHBOUR_COUNT}")


def weight_units(
    distances_squared: NDArray[np.int64], radius_squared: int, kernel: str, levels: int
) -> NDArray[np.int64]:
    """Weights in units of 1/``levels``, from 0 to ``levels``: 0 outside the radius.

    ``flat`` weighs 1 inside; ``quadratic`` weighs 1 − d²/r², rounded up to the next unit.
    """
    inside = distances_squared <= radius_squared
    if kernel == "flat":
        return np.where(inside, levels, 0).astype(np.int64)
    clipped = np.minimum(distances_squared, radius_squared)
    units = levels - (clipped * levels) // max(radius_squared, 1)
    return np.where(inside, units, 0).astype(np.int64)
