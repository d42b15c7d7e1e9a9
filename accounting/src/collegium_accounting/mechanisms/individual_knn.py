"""Individual k-nearest neighbours: records within a public radius vote, and each has a budget of its own.

Zhu et al. 2023 on the individual Rényi filter of Feldman and Zrnic 2021. Whether a record votes depends on
itself and on public data alone, so a vote of weight w ≤ 1 moves one count by w and costs its record
αw²/(2σ²) at order α. A record leaves for good before its w² pass ``participations`` in sum; the party keeps
count. Counts come in units of 1/``levels``, so that weights are whole numbers. docs/research/individual-neighbours.md
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from collegium_accounting.errors import UnsupportedAccounting
from collegium_accounting.limits import MAX_WEIGHT_LEVELS
from collegium_accounting.mechanisms.base import RecordBudget, SumMode
from collegium_accounting.mechanisms.gaussian_stage import GaussianLabels
from collegium_accounting.mechanisms.labels import ArgMax, LabelMechanism, LabelStage
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.noise.distributed import COORDINATOR, AddedBy
from collegium_accounting.renyi import WIDE_ORDERS
from collegium_accounting.units import Adjacency, Unit

_NO_VOTES = (
    "individual neighbours have no data-dependent analysis: a budget that depends on the votes of others would leak "
    "them; the constant per record is tight and may be published, so account without votes"
)


@register
@dataclass(frozen=True)
class IndividualKNN(LabelMechanism):
    """Argmax of the votes of the records within a radius + N(0, σ²); each record votes at most P times."""

    name: ClassVar[str] = "individual-knn"
    source: ClassVar[str] = "Zhu et al. 2023; Feldman and Zrnic 2021, individual Rényi filter"
    adjacencies: ClassVar[tuple[Adjacency, ...]] = (Adjacency.ADD_REMOVE,)
    sum_modes: ClassVar[tuple[SumMode, ...]] = tuple(SumMode)
    charged_once: ClassVar[bool] = True
    no_votes_because: ClassVar[str] = _NO_VOTES

    sigma: Annotated[float, Parameter("standard deviation of the Gaussian noise on each count", "votes")]
    participations: Annotated[
        int, Parameter("votes of full weight that one record may cast over the whole run", at_most=10**6)
    ]
    levels: Annotated[
        int, Parameter("whole units into which the largest weight of a vote is divided", at_most=MAX_WEIGHT_LEVELS)
    ] = 1

    @property
    def stages(self) -> tuple[LabelStage, ...]:
        return (IndividualRelease("release", self.sigma, ArgMax(), self.levels),)

    def charged_queries(self, queries: int, added: AddedBy = COORDINATOR) -> int:
        """P, however many ``queries`` were asked: a record that has voted P times is out.

        Fewer queries may each be asked more than once where the parties add the noise.
        """
        return self.participations if added.parties else min(self.participations, queries)

    def record_budget(self, added: AddedBy = COORDINATOR) -> RecordBudget:
        """Where the parties add the noise, with the part by which summed discrete Gaussians differ from one.

        That part is counted at the worst order that is kept, and for each sum that a participation enters.
        """
        share = added.share(self.sigma * self.levels)
        if share is None:
            return RecordBudget(self.levels, self.participations, 1.0 / (2.0 * (self.sigma * self.levels) ** 2))
        one_unit = share.curve(WIDE_ORDERS, l2_squared=1.0, changed_entries=1)
        return RecordBudget(self.levels, self.participations, float(np.max(one_unit.values / np.array(WIDE_ORDERS))))


@dataclass(frozen=True)
class IndividualRelease(GaussianLabels):
    """One noisy argmax, seen from a record that votes in it with full weight.

    ``sigma`` is in votes, the counts are in units of 1/``levels``.
    """

    levels: int = 1

    def moved(self, unit: Unit) -> float:
        """One vote per record appears or disappears: 1 for a record, k for k records.

        Raises UnsupportedAccounting where votes move from class to class.
        """
        if unit.adjacency is not Adjacency.ADD_REMOVE:
            raise UnsupportedAccounting(
                "individual neighbours are accounted for under add-remove adjacency: one record is added or removed"
            )
        return float(unit.votes)

    def entries(self, unit: Unit) -> int:
        """Of one participation of full weight: it may be spread over up to ``levels²`` sums, one unit in each."""
        return unit.votes * self.levels**2

    @property
    def parts_of_a_vote(self) -> float:
        return self.levels

    def one_vote(self, unit: Unit) -> Adjacency | None:
        """For votes of full weight; a record whose weights are parts of a vote may vote in more rounds."""
        return super().one_vote(unit) if self.levels == 1 else None
