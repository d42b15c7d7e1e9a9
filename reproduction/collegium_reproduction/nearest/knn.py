"""Private-kNN: the k nearest records vote; screening and aggregation each on a fresh Poisson sample.

Each party draws the sample, one coin of probability γ per record, unknown to the coordinator, and anew for
each of the two stages. Data-dependent accounting is not valid under sampling: what amplifies is the
uncertainty about who was in, which an analysis of the realised votes throws away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from collegium.errors import UnsupportedAccounting
from collegium_accounting.mechanisms.gaussian_stage import GaussianLabels
from collegium_accounting.mechanisms.labels import ArgMax, LabelMechanism, LabelStage, Seen, Threshold
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.units import Adjacency, Unit

SamplingRate = Annotated[float, Parameter("probability with which a record takes part in a stage", at_most=1.0)]
Neighbours = Annotated[int, Parameter("neighbours that vote on each query")]


class SampledMechanism(LabelMechanism):
    """A mechanism for the votes of records in a Poisson sample, which every stage draws anew."""

    adjacencies: ClassVar[tuple[Adjacency, ...]] = (Adjacency.ADD_REMOVE,)
    no_votes_because: ClassVar[str] = (
        "data-dependent accounting is not valid here: Poisson sampling protects by hiding who was sampled, and an "
        "analysis of the votes that came out takes the sample as known; account with --queries and --answered instead"
    )
    no_audit_because: ClassVar[str] = (
        "its charge relies on the parties' sampling of records, which counts no longer show"
    )


@register
@dataclass(frozen=True)
class PrivateKNN(SampledMechanism):
    """Screen M queries with N(0, σ₁²) against T, answer those that pass with N(0, σ₂²) on each count.

    A record in or out of the data swaps at most one of the k neighbours: two counts move by one.
    """

    name: ClassVar[str] = "knn"
    source: ClassVar[str] = "Zhu et al., CVPR 2020, Theorem 7, Poisson-sampled; Mironov, Talwar, Zhang 2019"

    k: Neighbours
    classes: Annotated[int, Parameter("number of classes")]
    threshold: Annotated[float, Parameter("what the largest count must reach", "votes", positive=False)]
    sigma1: Annotated[float, Parameter("noise of the threshold test", "votes")]
    sigma2: Annotated[float, Parameter("noise on each count of a release", "votes")]
    sampling_rate: SamplingRate

    @property
    def stages(self) -> tuple[LabelStage, ...]:
        return (
            SampledVotes("threshold", self.sigma1, Threshold(self.threshold), sampling_rate=self.sampling_rate),
            SampledVotes("release", self.sigma2, ArgMax(), sampling_rate=self.sampling_rate),
        )


@dataclass(frozen=True)
class SampledVotes(GaussianLabels):
    """The votes of the neighbours in a Poisson sample: sampled Gaussian of sensitivity √2, or 1 for the largest."""

    def moved(self, unit: Unit) -> float:
        check_records(unit)
        return float(unit.votes) if self.seen is Seen.BIT else math.sqrt(2.0) * unit.votes

    def entries(self, unit: Unit) -> int:
        return 1 if self.seen is Seen.BIT else 2 * unit.votes

    def one_vote(self, unit: Unit) -> Adjacency:
        """A sampled record displaces another neighbour, or there is none to displace: one vote moves at most."""
        return Adjacency.ADD_REMOVE if self.seen is Seen.BIT else Adjacency.REPLACE


def check_records(unit: Unit) -> None:
    """Raise UnsupportedAccounting unless records come or go, which is what sampling amplifies."""
    if unit.adjacency is not Adjacency.ADD_REMOVE:
        raise UnsupportedAccounting(
            "sampled neighbours are accounted for under add-remove adjacency: one record is added or removed"
        )
