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
from collegium_accounting.game.laws import Law
from collegium_accounting.game.winner import RoundLaw, winner_is_searched
from collegium_accounting.limits import MAX_WEIGHT_LEVELS
from collegium_accounting.mechanisms.base import AnsweredBy, Mechanism, Noise, RecordBudget, Stage, SumMode
from collegium_accounting.mechanisms.gaussian_stage import SOURCE, GaussianStage, NoisedByParties
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.noise.distributed import NoiseShare
from collegium_accounting.renyi import WIDE_ORDERS
from collegium_accounting.units import Adjacency, IntArray, Unit, checked_counts, winners

_NO_VOTES = (
    "individual neighbours have no data-dependent analysis: a budget that depends on the votes of others would leak "
    "them; the constant per record is tight and may be published, so account without votes"
)


@register
@dataclass(frozen=True)
class IndividualKNN(Mechanism):
    """Argmax of the votes of the records within a radius + N(0, σ²); each record votes at most P times."""

    name: ClassVar[str] = "individual-knn"
    source: ClassVar[str] = "Zhu et al. 2023; Feldman and Zrnic 2021, individual Rényi filter"
    adjacencies: ClassVar[tuple[Adjacency, ...]] = (Adjacency.ADD_REMOVE,)
    answered_by: ClassVar[AnsweredBy] = AnsweredBy.RECORDS_WITHIN_A_RADIUS
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
    def stages(self) -> tuple[Stage, ...]:
        return (IndividualRelease("release", self.sigma, self.levels),)

    def charged_queries(self, queries: int) -> int:
        """P, however many ``queries`` were asked: a record that has voted P times is out."""
        return min(self.participations, queries)

    @property
    def record_budget(self) -> RecordBudget:
        return RecordBudget(self.levels, self.participations, 1.0 / (2.0 * (self.sigma * self.levels) ** 2))

    def noised_by_parties(self, honest_survivors: int) -> "NoisedIndividualKNN":
        return NoisedIndividualKNN(self.sigma, self.participations, self.levels, honest_survivors=honest_survivors)


@dataclass(frozen=True)
class IndividualRelease(GaussianStage):
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

    def law(self, unit: Unit, classes: int | None = None) -> Law:
        """The winner for votes of full weight; a record whose weights are parts of a vote may vote in more rounds."""
        self.moved(unit)  # raises for a unit that is not covered
        searched = winner_is_searched("discrete-gaussian", self.sigma, unit.adjacency, classes)
        if unit.votes == 1 and self.levels == 1 and searched:
            return RoundLaw("discrete-gaussian", self.sigma, unit.adjacency, classes)
        return super().law(unit, classes)

    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        units = checked_counts(counts)
        return winners(units + noise.gaussian(self.sigma * self.levels, units.shape))


@register
@dataclass(frozen=True)
class NoisedIndividualKNN(NoisedByParties, IndividualKNN):
    """IndividualKNN on a sum that carries Gaussian noise of at least ``sigma`` votes already.

    The part by which summed discrete Gaussians differ from one is charged for each sum that a participation enters.
    """

    name: ClassVar[str] = "noised-individual-knn"
    source: ClassVar[str] = f"{IndividualKNN.source}; {SOURCE}"
    no_votes_because: ClassVar[str] = _NO_VOTES

    def charged_queries(self, queries: int) -> int:
        """P, as for the sum without noise; ``queries`` below P may each be asked more than once."""
        return self.participations

    @property
    def record_budget(self) -> RecordBudget:
        """With the part by which summed discrete Gaussians differ from one, at the worst order that is kept."""
        share = NoiseShare(self.sigma * self.levels, self.honest_survivors)
        one_unit = share.curve(WIDE_ORDERS, l2_squared=1.0, changed_entries=1)
        return RecordBudget(self.levels, self.participations, float(np.max(one_unit.values / np.array(WIDE_ORDERS))))
