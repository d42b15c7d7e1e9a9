"""Interactive-GNMax: where the student is sure already, ask only whether the teachers agree."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from collegium_accounting.errors import ConfigurationError
from collegium_accounting.mechanisms.base import NEXT_STAGE, Mechanism, Noise, Stage
from collegium_accounting.mechanisms.confident_gnmax import ThresholdTest
from collegium_accounting.mechanisms.gnmax import GaussianRelease
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.units import IntArray, checked_counts


@register
@dataclass(frozen=True)
class InteractiveGNMax(Mechanism):
    """Confirm the student's own confident prediction if its count + N(0, σ₁²) reaches T; else release GNMax.

    Which predictions count as confident is decided from the student alone, which is public, and a query
    without one goes straight to the release.
    """

    name: ClassVar[str] = "interactive-gnmax"
    source: ClassVar[str] = "Papernot et al., ICLR 2018, Algorithm 2, with the exact cost of a threshold test"

    sigma1: Annotated[float, Parameter("noise on the count of the predicted class", "votes")]
    sigma2: Annotated[float, Parameter("noise on each count of a release", "votes")]
    threshold: Annotated[float, Parameter("what the predicted class must reach", "votes", positive=False)]

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (AgreementTest("agreement", self.sigma1, self.threshold), GaussianRelease("release", self.sigma2))


@dataclass(frozen=True)
class AgreementTest(ThresholdTest):
    """Does the count of the student's predicted class + N(0, σ²) reach T? If so, that class is the label.

    One count moves by at most as much as the largest count does, so it costs what a threshold test costs.
    """

    needs_prediction: ClassVar[bool] = True

    def run(self, counts: IntArray, noise: Noise, predictions: IntArray | None = None) -> IntArray:
        votes = checked_counts(counts)
        guesses = np.full(votes.shape[0], -1) if predictions is None else np.asarray(predictions, dtype=np.int64)
        if guesses.shape != (votes.shape[0],) or (guesses >= votes.shape[1]).any():
            raise ConfigurationError("predictions must hold one class, or -1, per query")
        agreeing = votes[np.arange(guesses.size), np.maximum(guesses, 0)]
        noisy = agreeing + noise.gaussian(self.sigma, guesses.shape)
        confirmed = (guesses >= 0) & (noisy >= self.threshold)
        return np.where(confirmed, guesses, NEXT_STAGE).astype(np.int64)
