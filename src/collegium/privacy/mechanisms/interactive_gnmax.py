"""Interactive-GNMax: where the student is sure already, ask only whether the teachers agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from collegium.errors import ConfigurationError
from collegium.privacy.accounting import pld
from collegium.privacy.accounting.independent import threshold_curve
from collegium.privacy.mechanisms.base import NEXT_STAGE, Noise, Stage
from collegium.privacy.mechanisms.gnmax import GaussianRelease
from collegium.privacy.mechanisms.registry import register
from collegium.privacy.renyi import RenyiCurve, gaussian_curve
from collegium.privacy.units import IntArray, Unit
from collegium.privacy.vote_counts import check_finite, check_positive, checked_counts


@register
@dataclass(frozen=True)
class InteractiveGNMax:
    """Confirm the student's own confident prediction if its count + N(0, σ₁²) reaches T; else release GNMax.

    Which predictions count as confident is decided from the student alone, which is public, and a query
    without one goes straight to the release.

    Parameters
    ----------
    sigma1 : noise on the count of the predicted class, in votes.
    sigma2 : noise on each count of a release, in votes.
    threshold : T, in votes.
    """

    name: ClassVar[str] = "interactive-gnmax"
    source: ClassVar[str] = "Papernot et al., ICLR 2018, Algorithm 2, with the exact cost of a threshold test"

    sigma1: float
    sigma2: float
    threshold: float

    def __post_init__(self) -> None:
        check_positive(self.name, sigma1=self.sigma1, sigma2=self.sigma2)
        check_finite(self.name, threshold=self.threshold)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (AgreementTest("agreement", self.sigma1, self.threshold), GaussianRelease("release", self.sigma2))

    def parameters(self) -> dict[str, float | int | str]:
        return {"sigma1": self.sigma1, "sigma2": self.sigma2, "threshold": self.threshold}


@dataclass(frozen=True)
class AgreementTest:
    """Does the count of the student's predicted class + N(0, σ₁²) reach T? If so, that class is the label."""

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
        guesses = np.full(votes.shape[0], -1) if predictions is None else np.asarray(predictions, dtype=np.int64)
        if guesses.shape != (votes.shape[0],) or (guesses >= votes.shape[1]).any():
            raise ConfigurationError("predictions must hold one class, or -1, per query")
        agreeing = votes[np.arange(guesses.size), np.maximum(guesses, 0)]
        noisy = agreeing + noise.gaussian(self.sigma1, guesses.shape)
        confirmed = (guesses >= 0) & (noisy >= self.threshold)
        return np.where(confirmed, guesses, NEXT_STAGE).astype(np.int64)
