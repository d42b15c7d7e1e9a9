"""Counts of private records by cells, as one noisy vector: of an evaluation, or of how well a pool covers the records.

Every record adds to ``parts`` cells, one of each of so many disjoint parts of the vector: `evaluation_cells` says which
for an evaluation, `models.coverage` for a pool. Which cells they are may follow from whatever the coordinator chose.

A record adds ONE to each cell, a person with g records ⌊ONE/g⌋ for each of them, and under the unit party a party with
n records ⌊ONE/n⌋ for each. So the vector of a unit has L1 norm at most ONE in each part, hence L2 norm at most
ONE·√parts, all entries at least 0. Add-remove moves the sum by that; replace by at most √2 times as much, since
|a − b|² ≤ |a|² + |b|² where no entry is below 0. Everything is in whole numbers.

``sigma`` is the standard deviation of the noise on every count, in records. The whole vector is released and charged.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium_accounting.limits import MAX_PARTS, MAX_SUM_LENGTH
from collegium_accounting.mechanisms.base import Stage
from collegium_accounting.mechanisms.gaussian_stage import GaussianStage
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.mechanisms.whole_vector import VectorMechanism
from collegium_accounting.units import Adjacency, IntArray, Unit

ONE = 2**20
"""What one record, or one person, adds to a cell."""


def records_of_person(groups: NDArray[np.str_] | None, records: int) -> IntArray:
    """For each record, how many records its person has, shape ``[records]``; 1 without groups."""
    if groups is None:
        return np.ones(records, dtype=np.int64)
    _, person, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    return np.asarray(sizes[person], dtype=np.int64)


def weights_of(groups: NDArray[np.str_] | None, records: int, *, per_party: bool) -> IntArray:
    """What each record adds to a cell, shape ``[records]``: ONE, divided among the records of its person or party."""
    if per_party:
        return np.full(records, ONE // max(records, 1), dtype=np.int64)
    return ONE // records_of_person(groups, records)


def counts_of(cells: IntArray, weights: IntArray, length: int) -> IntArray:
    """The sum over all records of what they add to their cells, int64 ``[length]``."""
    counts = np.zeros(length, dtype=np.int64)
    np.add.at(counts, cells, weights[:, None])
    return counts


@dataclass(frozen=True)
class CountsRelease(GaussianStage):
    """One noisy vector of ``cells`` counts, to ``parts`` of which a record adds; ``sigma`` in records."""

    parts: int
    cells: int

    @property
    def noise_votes(self) -> float:
        """σ in units of the largest contribution of one record, whose L2 norm is √parts records."""
        return self.sigma / math.sqrt(self.parts)

    def moved(self, unit: Unit) -> float:
        """In L2 and in records: the largest contribution, √2 times as much where one replaces another."""
        return unit.votes * math.sqrt(self.parts * (2.0 if unit.adjacency is Adjacency.REPLACE else 1.0))

    def entries(self, unit: Unit) -> int:
        return self.cells

    @property
    def parts_of_a_vote(self) -> float:
        return ONE


@register
@dataclass(frozen=True)
class RecordCounts(VectorMechanism):
    """The counts of all records' cells + Gaussian noise of σ records on every count."""

    name: ClassVar[str] = "record-counts"
    source: ClassVar[str] = "one cell a record in each part: this module's docstring"

    sigma: Annotated[float, Parameter("standard deviation of the noise on each count", "records")]
    parts: Annotated[int, Parameter("cells that one record adds to", at_most=MAX_PARTS)]
    cells: Annotated[int, Parameter("cells altogether", at_most=MAX_SUM_LENGTH)]

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (CountsRelease("record counts", self.sigma, self.parts, self.cells),)
