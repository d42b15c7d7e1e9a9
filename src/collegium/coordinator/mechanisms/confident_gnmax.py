"""Confident-GNMax: answer only the queries on which the teachers agree, decided with noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from collegium.coordinator.accounting.independent import threshold_curve
from collegium.coordinator.mechanisms.base import ABSTAIN, NEXT_STAGE, IntArray, Noise, Stage, Unit
from collegium.coordinator.mechanisms.gnmax import GaussianRelease
from collegium.coordinator.mechanisms.registry import register
from collegium.coordinator.mechanisms.votes import check_finite, check_positive, checked_counts
from collegium.protocol.renyi import RenyiCurve


@register
@dataclass(frozen=True)
class ConfidentGNMax:
    """Release the argmax under N(0, σ₂²) for queries whose largest count + N(0, σ₁²) reaches T.

    Every query pays for the threshold; those that pass pay for the release as well. The noises of the
    two stages are independent.

    Parameters
    ----------
    sigma1 : noise on the largest count, in votes.
    sigma2 : noise on each count of a release, in votes.
    threshold : T, in votes.
    """

    name: ClassVar[str] = "confident-gnmax"
    source: ClassVar[str] = "Papernot et al., ICLR 2018, Algorithm 1; Private-kNN 2020, Theorem 7 for the threshold"

    sigma1: float
    sigma2: float
    threshold: float

    def __post_init__(self) -> None:
        check_positive(self.name, sigma1=self.sigma1, sigma2=self.sigma2)
        check_finite(self.name, threshold=self.threshold)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (ThresholdTest("threshold", self.sigma1, self.threshold), GaussianRelease("release", self.sigma2))

    def parameters(self) -> dict[str, float | int | str]:
        return {"sigma1": self.sigma1, "sigma2": self.sigma2, "threshold": self.threshold}


@dataclass(frozen=True)
class ThresholdTest:
    """Does the largest count + N(0, σ₁²) reach T? If not, abstain."""

    name: str
    sigma1: float
    threshold: float

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        return threshold_curve(self.sigma1, self.threshold, orders, unit)

    def run(self, counts: IntArray, noise: Noise, predictions: IntArray | None = None) -> IntArray:
        votes = checked_counts(counts)
        noisy = votes.max(axis=1) + noise.gaussian(self.sigma1, (votes.shape[0],))
        return np.where(noisy >= self.threshold, NEXT_STAGE, ABSTAIN).astype(np.int64)
