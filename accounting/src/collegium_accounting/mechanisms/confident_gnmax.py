"""Confident-GNMax: answer only the queries on which the teachers agree, decided with noise."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import numpy as np

from collegium_accounting.divergences.grids import NoiseLaw, ThresholdTestLaw
from collegium_accounting.divergences.papers import theorem_6
from collegium_accounting.game.laws import Law
from collegium_accounting.game.winner import RoundLaw, winner_is_searched
from collegium_accounting.mechanisms.base import ABSTAIN, NEXT_STAGE, Mechanism, Noise, Stage, SumMode
from collegium_accounting.mechanisms.gaussian_stage import (
    SOURCE,
    GaussianStage,
    NoisedByParties,
    NoisedRelease,
    NoisedThreshold,
)
from collegium_accounting.mechanisms.gnmax import GaussianRelease
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.noise.distributed import NoiseShare
from collegium_accounting.renyi import FloatArray, gaussian_curve
from collegium_accounting.units import Adjacency, IntArray, Unit, checked_counts

_THRESHOLDS_TRIED = (0.5, 0.6, 0.7, 0.8)
"""Shares of the teachers."""


@register
@dataclass(frozen=True)
class ConfidentGNMax(Mechanism):
    """Release the argmax under N(0, σ₂²) for queries whose largest count + N(0, σ₁²) reaches T.

    Every query pays for the threshold; those that pass pay for the release as well. The noises of the
    two stages are independent.
    """

    name: ClassVar[str] = "confident-gnmax"
    source: ClassVar[str] = "Papernot et al., ICLR 2018, Algorithm 1; Private-kNN 2020, Theorem 7 for the threshold"
    sum_modes: ClassVar[tuple[SumMode, ...]] = tuple(SumMode)

    sigma1: Annotated[float, Parameter("noise of the threshold test", "votes")]
    sigma2: Annotated[float, Parameter("noise on each count of a release", "votes")]
    threshold: Annotated[float, Parameter("what the largest count must reach", "votes", positive=False)]

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (ThresholdTest("threshold", self.sigma1, self.threshold), GaussianRelease("release", self.sigma2))

    def noise_law(self, discrete: bool) -> NoiseLaw:
        return NoiseLaw("discrete-gaussian" if discrete else "gaussian", self.sigma2)

    def screen_law(self, discrete: bool) -> ThresholdTestLaw:
        return ThresholdTestLaw(self.sigma1, self.threshold, discrete)

    def paper_bound(self, counts: IntArray, orders: tuple[float, ...], unit: Unit) -> FloatArray:
        """α/(2σ₁²) + Theorem 6, as if every query were answered.

        The published accounts weigh Theorem 6 by the probability of an answer, which is an expectation
        and no bound: at high orders it is below the true divergence.
        """
        self.check_votes_may_be_analysed()
        screening = gaussian_curve(float(unit.votes), self.sigma1, orders).values
        bound: FloatArray = screening + theorem_6(counts, self.sigma2, orders, unit)
        return bound

    def noised_by_parties(self, honest_survivors: int) -> "NoisedConfidentGNMax":
        return NoisedConfidentGNMax(self.sigma1, self.sigma2, self.threshold, honest_survivors=honest_survivors)

    @classmethod
    def plans(cls, noise_votes: float, teachers: int) -> Iterable[Self]:
        sigma = float(f"{noise_votes:.3g}")
        return [cls(4.0 * sigma, sigma, float(round(share * teachers))) for share in _THRESHOLDS_TRIED]


@dataclass(frozen=True)
class ThresholdTest(GaussianStage):
    """Does the largest count + N(0, σ²) reach T? If not, abstain."""

    threshold: float

    def moved(self, unit: Unit) -> float:
        """The largest count moves by no more votes than the unit has."""
        return float(unit.votes)

    def entries(self, unit: Unit) -> int:
        """One number is tested."""
        return 1

    def law(self, unit: Unit, classes: int | None = None) -> Law:
        """Under both adjacencies the count that is tested moves by at most one for each vote."""
        if unit.votes == 1 and winner_is_searched("discrete-gaussian", self.sigma, Adjacency.ADD_REMOVE, None):
            return RoundLaw("discrete-gaussian", self.sigma, Adjacency.ADD_REMOVE, sampling_rate=self.sampling_rate)
        return super().law(unit, classes)

    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        votes = checked_counts(counts)
        noisy = votes.max(axis=1) + noise.gaussian(self.sigma, (votes.shape[0],))
        return np.where(noisy >= self.threshold, NEXT_STAGE, ABSTAIN).astype(np.int64)


@register
@dataclass(frozen=True)
class NoisedConfidentGNMax(NoisedByParties, ConfidentGNMax):
    """Confident-GNMax on two noised sums: one decides whether to answer, a second one answers."""

    name: ClassVar[str] = "noised-confident-gnmax"
    source: ClassVar[str] = SOURCE

    def _noised(self, stage: Stage) -> NoisedRelease:
        """The test reads the whole noisy histogram, which is charged as that of a release is."""
        if not isinstance(stage, ThresholdTest):
            return super()._noised(stage)
        share, whole = NoiseShare(stage.sigma, self.honest_survivors), GaussianRelease(stage.name, stage.sigma)
        return NoisedThreshold(f"noised {stage.name}", share, whole, stage.threshold)
