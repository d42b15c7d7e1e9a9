"""Private-kNN where a record holds several labels: the clipped votes of the k nearest of a sample, noised.

There is no screening: what is released for a query is one bit a label, and which query it was is public.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.data.several_labels import MAX_LABELS, numbers_of
from collegium_accounting.mechanisms.gaussian_stage import GaussianLabels
from collegium_accounting.mechanisms.labels import LabelStage, Seen
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.units import IntArray, Unit
from collegium_reproduction.clipped_votes import RESOLUTION, swap_l2
from collegium_reproduction.nearest.knn import Neighbours, SampledMechanism, SamplingRate, check_records


@register
@dataclass(frozen=True)
class MultiLabelKNN(SampledMechanism):
    """A label is on where its clipped votes + N(0, σ²) reach a share of k; data-independent accounting alone.

    Clipping lowers every sum: with τ below the number of labels that records typically hold, an ``on_share``
    lower than a half (both public) makes up for it and costs nothing.
    """

    name: ClassVar[str] = "multilabel-knn"
    source: ClassVar[str] = "Zhu et al., CVPR 2020, τ-approximation, Poisson-sampled; Mironov, Talwar, Zhang 2019"
    several_labels: ClassVar[bool] = True

    k: Neighbours
    labels: Annotated[int, Parameter("number of classes; a record may hold several of them", at_most=MAX_LABELS)]
    tau: Annotated[float, Parameter("L1 bound of one record's vote", "votes")]
    sigma: Annotated[float, Parameter("standard deviation of the noise on each label's sum", "votes")]
    sampling_rate: SamplingRate
    on_share: Annotated[float, Parameter("share of the k neighbours from which on a label is given", at_most=1.0)] = 0.5

    @property
    def stages(self) -> tuple[LabelStage, ...]:
        rule = LabelsOn(self.k * self.on_share)
        return (LabelsRelease("release", self.sigma, rule, self.tau, self.labels, sampling_rate=self.sampling_rate),)


@dataclass(frozen=True)
class LabelsOn:
    """Each label is on whose noisy sum reaches so many votes; sums are in parts of one (`clipped_votes.RESOLUTION`)."""

    votes: float
    seen: ClassVar[Seen] = Seen.VECTOR

    def compared(self, counts: IntArray) -> IntArray:
        return counts

    def read(self, noisy: IntArray | NDArray[np.float64]) -> IntArray:
        """The number of each query's labels (`several_labels.numbers_of`), from sums ``[queries, labels]``."""
        return numbers_of(np.asarray(noisy >= self.votes * RESOLUTION))


@dataclass(frozen=True)
class LabelsRelease(GaussianLabels):
    """Release one bit per label of the votes of a Poisson sample: sampled Gaussian of sensitivity `swap_l2`."""

    tau: float
    labels: int

    def moved(self, unit: Unit) -> float:
        check_records(unit)
        return swap_l2(self.tau, self.labels) * unit.votes

    def entries(self, unit: Unit) -> int:
        return self.labels

    @property
    def parts_of_a_vote(self) -> float:
        return RESOLUTION
