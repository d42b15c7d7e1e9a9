"""Private-kNN: the k nearest records vote; screening and aggregation each on a fresh Poisson sample.

Each party draws the sample, one coin of probability γ per record, unknown to the coordinator, and anew for
each of the two stages. Data-dependent accounting is not valid under sampling: what amplifies is the
uncertainty about who was in, which an analysis of the realised votes throws away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigurationError, UnsupportedAccounting
from collegium.privacy.accounting import pld
from collegium.privacy.accounting.independent import threshold_curve
from collegium.privacy.accounting.screening import ThresholdTestLaw, sampled_screening_curve
from collegium.privacy.accounting.subsampling import sampled_gaussian_curve
from collegium.privacy.mechanisms.base import Stage
from collegium.privacy.mechanisms.confident_gnmax import ThresholdTest
from collegium.privacy.mechanisms.gnmax import GaussianRelease
from collegium.privacy.mechanisms.registry import register
from collegium.privacy.renyi import RenyiCurve, gaussian_curve
from collegium.privacy.units import Adjacency, IntArray, Unit
from collegium.privacy.vote_counts import check_finite, check_positive

_NOT_UNDER_SAMPLING = (
    "data-dependent accounting is not valid for knn: Poisson sampling protects by hiding who was sampled, and an "
    "analysis of the votes that came out takes the sample as known; account with --screened and --answered instead"
)


@register
@dataclass(frozen=True)
class PrivateKNN:
    """Screen M queries with N(0, σ₁²) against T, answer those that pass with N(0, σ₂²) on each count.

    A record in or out of the data swaps at most one of the k neighbours: two counts move by one.

    Parameters
    ----------
    k : neighbours that vote on each query.
    classes : number of classes.
    threshold : T, in votes.
    sigma1, sigma2 : noise of screening and of aggregation, in votes.
    sampling_rate : γ, probability with which a record takes part in a stage.
    """

    name: ClassVar[str] = "knn"
    source: ClassVar[str] = "Zhu et al., CVPR 2020, Theorem 7, Poisson-sampled; Mironov, Talwar, Zhang 2019"

    k: int
    classes: int
    threshold: float
    sigma1: float
    sigma2: float
    sampling_rate: float

    def __post_init__(self) -> None:
        check_positive(self.name, k=self.k, classes=self.classes, sigma1=self.sigma1, sigma2=self.sigma2)
        check_positive(self.name, sampling_rate=self.sampling_rate)
        check_finite(self.name, threshold=self.threshold)
        if self.k != int(self.k) or self.classes != int(self.classes):
            raise ConfigurationError(f"{self.name}: k and classes must be whole numbers")
        if self.sampling_rate > 1.0:
            raise ConfigurationError(f"{self.name}: sampling_rate must lie in (0, 1]; got {self.sampling_rate}")

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (
            SampledThreshold(
                "threshold", self.sigma1, self.threshold, int(self.k), int(self.classes), self.sampling_rate
            ),
            SampledRelease("release", self.sigma2, self.sampling_rate),
        )

    def parameters(self) -> dict[str, float | int | str]:
        return {
            "k": self.k,
            "classes": self.classes,
            "threshold": self.threshold,
            "sigma1": self.sigma1,
            "sigma2": self.sigma2,
            "sampling_rate": self.sampling_rate,
        }

    def exact_loss(
        self, counts: IntArray, orders: tuple[float, ...], adjacency: Adjacency, discrete: bool
    ) -> NDArray[np.float64]:
        """Raises UnsupportedAccounting, always."""
        raise UnsupportedAccounting(_NOT_UNDER_SAMPLING)

    def paper_bound(self, counts: IntArray, orders: tuple[float, ...], unit: Unit) -> NDArray[np.float64]:
        """Raises UnsupportedAccounting, always."""
        raise UnsupportedAccounting(_NOT_UNDER_SAMPLING)


@dataclass(frozen=True)
class SampledThreshold(ThresholdTest):
    """The threshold test on the votes of a Poisson sample."""

    k: int
    classes: int
    sampling_rate: float

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        """One record is sampled or not, which amplifies; a party's records together are charged as if all were in.

        Over every largest count from 0, since fewer than k records may have been sampled.
        """
        if unit.votes > 1:
            return threshold_curve(self.sigma1, self.threshold, orders, unit)
        both = [
            sampled_screening_curve(
                ThresholdTestLaw(self.sigma1, self.threshold, discrete), 0, self.k, self.sampling_rate, orders
            ).values
            for discrete in (False, True)
        ]
        return RenyiCurve(orders, both[0]).at_least(both[1])

    def classic_charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        """The sampled Gaussian of sensitivity 1, which the test post-processes."""
        if unit.votes > 1:
            return gaussian_curve(float(unit.votes), self.sigma1, orders)
        return sampled_gaussian_curve(1.0, self.sigma1, self.sampling_rate, orders)

    def privacy_loss(self, unit: Unit) -> Any:
        rate = self.sampling_rate if unit.votes == 1 else 1.0
        return pld.shifted_gaussian_loss(self.sigma1, float(unit.votes), rate)


@dataclass(frozen=True)
class SampledRelease(GaussianRelease):
    """The noisy argmax of the votes of a Poisson sample."""

    sampling_rate: float

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        """Sampled Gaussian of sensitivity √2; without amplification for a party's records together."""
        swapped = math.sqrt(2.0) * unit.votes
        if unit.votes > 1:
            return gaussian_curve(swapped, self.sigma, orders)
        return sampled_gaussian_curve(swapped, self.sigma, self.sampling_rate, orders)

    def classic_charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        return self.charge(orders, unit)

    def privacy_loss(self, unit: Unit) -> Any:
        rate = self.sampling_rate if unit.votes == 1 else 1.0
        return pld.shifted_gaussian_loss(self.sigma, math.sqrt(2.0) * unit.votes, rate)
