"""Private-kNN where a record holds several labels: the clipped votes of the k nearest of a sample, noised.

There is no screening: what is released for a query is one bit a label, and which query it was is public.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from collegium.errors import ConfigurationError
from collegium.privacy.accounting import pld
from collegium.privacy.accounting.subsampling import sampled_gaussian_curve
from collegium.privacy.mechanisms.base import Noise, Stage
from collegium.privacy.mechanisms.registry import register
from collegium.privacy.multilabel import MAX_LABELS, RESOLUTION, numbers_of, swap_l2
from collegium.privacy.renyi import RenyiCurve, gaussian_curve
from collegium.privacy.units import IntArray, Unit
from collegium.privacy.vote_counts import check_positive, checked_counts


@register
@dataclass(frozen=True)
class MultiLabelKNN:
    """A label is on where its clipped votes + N(0, σ²) reach a share of k; data-independent accounting alone.

    Parameters
    ----------
    k : neighbours that vote on each query.
    labels : number of the task's classes, of which a record holds any.
    tau : L1 bound of one record's vote.
    sigma : noise on each label's sum, in votes.
    sampling_rate : γ, probability with which a record takes part in a query.
    on_share : of k, at which a label is on. Clipping lowers every sum: with τ below the number of labels that records
        typically hold, a share lower than a half (both public) makes up for it and costs nothing.
    """

    name: ClassVar[str] = "multilabel-knn"
    source: ClassVar[str] = "Zhu et al., CVPR 2020, τ-approximation, Poisson-sampled; Mironov, Talwar, Zhang 2019"

    k: int
    labels: int
    tau: float
    sigma: float
    sampling_rate: float
    on_share: float = 0.5

    def __post_init__(self) -> None:
        check_positive(self.name, k=self.k, labels=self.labels, tau=self.tau, sigma=self.sigma)
        check_positive(self.name, sampling_rate=self.sampling_rate, on_share=self.on_share)
        if self.k != int(self.k) or self.labels != int(self.labels):
            raise ConfigurationError(f"{self.name}: k and labels must be whole numbers")
        if self.labels > MAX_LABELS:
            raise ConfigurationError(f"{self.name}: at most {MAX_LABELS} labels; got {self.labels}")
        if self.sampling_rate > 1.0 or self.on_share > 1.0:
            raise ConfigurationError(f"{self.name}: sampling_rate and on_share must lie in (0, 1]")

    @property
    def stages(self) -> tuple[Stage, ...]:
        share = self.on_share
        return (LabelsRelease("release", self.sigma, self.sampling_rate, self.tau, int(self.labels), self.k * share),)

    def parameters(self) -> dict[str, float | int | str]:
        return {
            "k": self.k,
            "labels": self.labels,
            "tau": self.tau,
            "sigma": self.sigma,
            "sampling_rate": self.sampling_rate,
            "on_share": self.on_share,
        }


@dataclass(frozen=True)
class LabelsRelease:
    """Release one bit per label of the votes of a Poisson sample."""

    name: str
    sigma: float
    sampling_rate: float
    tau: float
    labels: int
    votes_on: float

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        """Sampled Gaussian of the sensitivity `swap_l2`; without amplification for a party's records together."""
        moved = swap_l2(self.tau, self.labels) * unit.votes
        if unit.votes > 1:
            return gaussian_curve(moved, self.sigma, orders)
        return sampled_gaussian_curve(moved, self.sigma, self.sampling_rate, orders)

    def classic_charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        return self.charge(orders, unit)

    def privacy_loss(self, unit: Unit) -> Any:
        rate = self.sampling_rate if unit.votes == 1 else 1.0
        return pld.shifted_gaussian_loss(self.sigma, swap_l2(self.tau, self.labels) * unit.votes, rate)

    def run(self, counts: IntArray, noise: Noise, predictions: IntArray | None = None) -> IntArray:
        """The number of each query's labels (`multilabel.numbers_of`), from sums ``[queries, labels]`` in parts."""
        sums = checked_counts(counts)
        noisy = sums + noise.gaussian(self.sigma * RESOLUTION, sums.shape)
        return numbers_of(np.asarray(noisy >= self.votes_on * RESOLUTION))
