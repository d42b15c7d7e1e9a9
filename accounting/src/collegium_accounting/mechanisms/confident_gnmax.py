"""Confident-GNMax: answer only the queries on which the teachers agree, decided with noise."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from collegium_accounting.divergences.grids import NoiseLaw, ThresholdTestLaw
from collegium_accounting.mechanisms.base import SumMode
from collegium_accounting.mechanisms.gnmax import GaussianVotes
from collegium_accounting.mechanisms.labels import ArgMax, LabelStage, Threshold
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.mechanisms.votes import VoteMechanism

_THRESHOLDS_TRIED = (0.5, 0.6, 0.7, 0.8)
"""Shares of the teachers."""


@register
@dataclass(frozen=True)
class ConfidentGNMax(VoteMechanism):
    """Release the argmax under N(0, σ₂²) for queries whose largest count + N(0, σ₁²) reaches T.

    Every query pays for the threshold; those that pass pay for the release as well. The noises of the
    two stages are independent.

    Examples
    --------
    >>> mechanism = ConfidentGNMax(sigma1=2, sigma2=2, threshold=150)
    >>> mechanism.release([[180, 40, 30], [90, 85, 75]])  # −1 where the teachers do not agree enough
    array([ 0, -1])
    """

    name: ClassVar[str] = "confident-gnmax"
    source: ClassVar[str] = "Papernot et al., ICLR 2018, Algorithm 1; Private-kNN 2020, Theorem 7 for the threshold"
    sum_modes: ClassVar[tuple[SumMode, ...]] = tuple(SumMode)

    sigma1: Annotated[float, Parameter("noise of the threshold test", "votes")]
    sigma2: Annotated[float, Parameter("noise on each count of a release", "votes")]
    threshold: Annotated[float, Parameter("what the largest count must reach", "votes", positive=False)]

    @property
    def stages(self) -> tuple[LabelStage, ...]:
        return (
            GaussianVotes("threshold", self.sigma1, Threshold(self.threshold)),
            GaussianVotes("release", self.sigma2, ArgMax()),
        )

    def noise_law(self, discrete: bool) -> NoiseLaw:
        return NoiseLaw("discrete-gaussian" if discrete else "gaussian", self.sigma2)

    def screen_law(self, discrete: bool) -> ThresholdTestLaw:
        return ThresholdTestLaw(self.sigma1, self.threshold, discrete)

    @classmethod
    def plans(cls, noise_votes: float, teachers: int) -> Iterable[Self]:
        sigma = float(f"{noise_votes:.3g}")
        return [cls(4.0 * sigma, sigma, float(round(share * teachers))) for share in _THRESHOLDS_TRIED]
