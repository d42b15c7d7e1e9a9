"""Private-kNN: the k nearest records vote; screening and aggregation each on a fresh Poisson sample.

Each party draws the sample, one coin of probability γ per record, unknown to the coordinator, and anew for
each of the two stages. Data-dependent accounting is not valid under sampling: what amplifies is the
uncertainty about who was in, which an analysis of the realised votes throws away.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from collegium_accounting.errors import UnsupportedAccounting
from collegium_accounting.game.laws import Law
from collegium_accounting.game.winner import RoundLaw, winner_is_searched
from collegium_accounting.mechanisms.base import AnsweredBy, Mechanism, Stage
from collegium_accounting.mechanisms.confident_gnmax import ThresholdTest
from collegium_accounting.mechanisms.gaussian_stage import GaussianStage
from collegium_accounting.mechanisms.gnmax import GaussianRelease
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.units import Adjacency, Unit

_NOT_UNDER_SAMPLING = (
    "data-dependent accounting is not valid for knn: Poisson sampling protects by hiding who was sampled, and an "
    "analysis of the votes that came out takes the sample as known; account with --screened and --answered instead"
)
NO_AUDIT_OF_SAMPLES = "its charge relies on the parties' sampling of records, which counts no longer show"

SamplingRate = Annotated[float, Parameter("probability with which a record takes part in a stage", at_most=1.0)]
Neighbours = Annotated[int, Parameter("neighbours that vote on each query")]


@register
@dataclass(frozen=True)
class PrivateKNN(Mechanism):
    """Screen M queries with N(0, σ₁²) against T, answer those that pass with N(0, σ₂²) on each count.

    A record in or out of the data swaps at most one of the k neighbours: two counts move by one.
    """

    name: ClassVar[str] = "knn"
    source: ClassVar[str] = "Zhu et al., CVPR 2020, Theorem 7, Poisson-sampled; Mironov, Talwar, Zhang 2019"
    adjacencies: ClassVar[tuple[Adjacency, ...]] = (Adjacency.ADD_REMOVE,)
    answered_by: ClassVar[AnsweredBy] = AnsweredBy.SAMPLED_RECORDS
    sum_per_stage: ClassVar[bool] = True
    no_votes_because: ClassVar[str] = _NOT_UNDER_SAMPLING
    no_audit_because: ClassVar[str] = NO_AUDIT_OF_SAMPLES

    k: Neighbours
    classes: Annotated[int, Parameter("number of classes")]
    threshold: Annotated[float, Parameter("what the largest count must reach", "votes", positive=False)]
    sigma1: Annotated[float, Parameter("noise of the threshold test", "votes")]
    sigma2: Annotated[float, Parameter("noise on each count of a release", "votes")]
    sampling_rate: SamplingRate

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (
            SampledThreshold("threshold", self.sigma1, self.threshold, sampling_rate=self.sampling_rate),
            SampledRelease("release", self.sigma2, sampling_rate=self.sampling_rate),
        )


@dataclass(frozen=True)
class SampledThreshold(ThresholdTest):
    """The threshold test on the votes of a Poisson sample."""

    def moved(self, unit: Unit) -> float:
        check_records(unit)
        return super().moved(unit)


@dataclass(frozen=True)
class SampledRelease(GaussianRelease):
    """The noisy argmax of the votes of a Poisson sample: sampled Gaussian of sensitivity √2."""

    def moved(self, unit: Unit) -> float:
        check_records(unit)
        return math.sqrt(2.0) * unit.votes

    def entries(self, unit: Unit) -> int:
        return 2 * unit.votes

    def law(self, unit: Unit, classes: int | None = None) -> Law:
        """A sampled record displaces another neighbour, or there is none to displace: one vote moves at most."""
        check_records(unit)
        if unit.votes == 1 and winner_is_searched("discrete-gaussian", self.sigma, Adjacency.REPLACE, classes):
            return RoundLaw("discrete-gaussian", self.sigma, Adjacency.REPLACE, classes, self.sampling_rate)
        return GaussianStage.law(self, unit, classes)


def check_records(unit: Unit) -> None:
    """Raise UnsupportedAccounting unless records come or go, which is what sampling amplifies."""
    if unit.adjacency is not Adjacency.ADD_REMOVE:
        raise UnsupportedAccounting(
            "sampled neighbours are accounted for under add-remove adjacency: one record is added or removed"
        )
