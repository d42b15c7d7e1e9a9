"""Private-kNN where a record holds several labels: the clipped votes of the k nearest of a sample, noised.

There is no screening: what is released for a query is one bit a label, and which query it was is public.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from collegium_accounting.mechanisms.base import AnsweredBy, Mechanism, Noise, Stage
from collegium_accounting.mechanisms.gaussian_stage import GaussianStage
from collegium_accounting.mechanisms.knn import NO_AUDIT_OF_SAMPLES, Neighbours, SamplingRate, check_records
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.multilabel import MAX_LABELS, RESOLUTION, numbers_of, swap_l2
from collegium_accounting.units import Adjacency, IntArray, Unit, checked_counts


@register
@dataclass(frozen=True)
class MultiLabelKNN(Mechanism):
    """A label is on where its clipped votes + N(0, σ²) reach a share of k; data-independent accounting alone.

    Clipping lowers every sum: with τ below the number of labels that records typically hold, an ``on_share``
    lower than a half (both public) makes up for it and costs nothing.
    """

    name: ClassVar[str] = "multilabel-knn"
    source: ClassVar[str] = "Zhu et al., CVPR 2020, τ-approximation, Poisson-sampled; Mironov, Talwar, Zhang 2019"
    adjacencies: ClassVar[tuple[Adjacency, ...]] = (Adjacency.ADD_REMOVE,)
    answered_by: ClassVar[AnsweredBy] = AnsweredBy.SAMPLED_RECORDS
    sum_per_stage: ClassVar[bool] = True
    several_labels: ClassVar[bool] = True
    no_votes_because: ClassVar[str] = "data-dependent accounting is not valid for sampled records"
    no_audit_because: ClassVar[str] = NO_AUDIT_OF_SAMPLES

    k: Neighbours
    labels: Annotated[int, Parameter("number of classes; a record may hold several of them", at_most=MAX_LABELS)]
    tau: Annotated[float, Parameter("L1 bound of one record's vote", "votes")]
    sigma: Annotated[float, Parameter("standard deviation of the noise on each label's sum", "votes")]
    sampling_rate: SamplingRate
    on_share: Annotated[float, Parameter("share of the k neighbours from which on a label is given", at_most=1.0)] = 0.5

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (
            LabelsRelease(
                "release", self.sigma, self.tau, self.labels, self.k * self.on_share, sampling_rate=self.sampling_rate
            ),
        )


@dataclass(frozen=True)
class LabelsRelease(GaussianStage):
    """Release one bit per label of the votes of a Poisson sample: sampled Gaussian of sensitivity `swap_l2`."""

    tau: float
    labels: int
    votes_on: float

    def moved(self, unit: Unit) -> float:
        check_records(unit)
        return swap_l2(self.tau, self.labels) * unit.votes

    def entries(self, unit: Unit) -> int:
        return self.labels

    @property
    def parts_of_a_vote(self) -> float:
        return RESOLUTION

    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        """The number of each query's labels (`multilabel.numbers_of`), from sums ``[queries, labels]`` in parts."""
        sums = checked_counts(counts)
        noisy = sums + noise.gaussian(self.sigma * RESOLUTION, sums.shape)
        return numbers_of(np.asarray(noisy >= self.votes_on * RESOLUTION))
