"""Confident-GNMax: answer only the queries on which the teachers agree, decided with noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.privacy.accounting import pld
from collegium.privacy.accounting.exact import exact_divergences
from collegium.privacy.accounting.grids import NoiseLaw
from collegium.privacy.accounting.independent import threshold_curve
from collegium.privacy.accounting.papers import theorem_6
from collegium.privacy.accounting.screening import ThresholdTestLaw
from collegium.privacy.mechanisms.base import ABSTAIN, NEXT_STAGE, Noise, Stage
from collegium.privacy.mechanisms.gnmax import GaussianRelease
from collegium.privacy.mechanisms.registry import register
from collegium.privacy.renyi import RenyiCurve, gaussian_curve
from collegium.privacy.units import Adjacency, IntArray, Unit
from collegium.privacy.vote_counts import check_finite, check_positive, checked_counts


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

    def exact_loss(
        self, counts: IntArray, orders: tuple[float, ...], adjacency: Adjacency, discrete: bool
    ) -> NDArray[np.float64]:
        """Of the whole query, screening and release: one outcome per class and one for the abstention."""
        noise = NoiseLaw("discrete-gaussian" if discrete else "gaussian", self.sigma2)
        screen = ThresholdTestLaw(self.sigma1, self.threshold, discrete)
        return exact_divergences(counts, noise, orders, adjacency=adjacency, screen=screen)

    def paper_bound(self, counts: IntArray, orders: tuple[float, ...], unit: Unit) -> NDArray[np.float64]:
        """α/(2σ₁²) + Theorem 6, as if every query were answered.

        The published accounts weigh Theorem 6 by the probability of an answer, which is an expectation
        and no bound: at high orders it is below the true divergence.
        """
        screening = gaussian_curve(float(unit.votes), self.sigma1, orders).values
        bound: NDArray[np.float64] = screening + theorem_6(counts, self.sigma2, orders, unit)
        return bound


@dataclass(frozen=True)
class ThresholdTest:
    """Does the largest count + N(0, σ₁²) reach T? If not, abstain."""

    name: str
    sigma1: float
    threshold: float

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        return threshold_curve(self.sigma1, self.threshold, orders, unit)

    def classic_charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        return gaussian_curve(float(unit.votes), self.sigma1, orders)

    def privacy_loss(self, unit: Unit) -> Any:
        return pld.shifted_gaussian_loss(self.sigma1, float(unit.votes))

    def run(self, counts: IntArray, noise: Noise, predictions: IntArray | None = None) -> IntArray:
        votes = checked_counts(counts)
        noisy = votes.max(axis=1) + noise.gaussian(self.sigma1, (votes.shape[0],))
        return np.where(noisy >= self.threshold, NEXT_STAGE, ABSTAIN).astype(np.int64)
