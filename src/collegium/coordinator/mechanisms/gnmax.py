"""GNMax: the class whose count + Gaussian noise is largest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from collegium.coordinator.accounting.independent import gaussian_argmax_curve
from collegium.coordinator.mechanisms.base import IntArray, Noise, Stage, Unit
from collegium.coordinator.mechanisms.registry import register
from collegium.coordinator.mechanisms.votes import check_positive, checked_counts, winners
from collegium.protocol.renyi import RenyiCurve


@register
@dataclass(frozen=True)
class GNMax:
    """Argmax of the counts + N(0, σ²).

    Parameters
    ----------
    sigma : standard deviation of the noise on each count, in votes.
    """

    name: ClassVar[str] = "gnmax"
    source: ClassVar[str] = "Papernot et al., ICLR 2018, Proposition 8; certified three-outcome bound, docs/privacy.md"

    sigma: float

    def __post_init__(self) -> None:
        check_positive(self.name, sigma=self.sigma)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (GaussianRelease("release", self.sigma),)

    def parameters(self) -> dict[str, float | int | str]:
        return {"sigma": self.sigma}


@dataclass(frozen=True)
class GaussianRelease:
    """Release the noisy argmax under Gaussian noise."""

    name: str
    sigma: float

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        return gaussian_argmax_curve(self.sigma, orders, unit)

    def run(self, counts: IntArray, noise: Noise, predictions: IntArray | None = None) -> IntArray:
        votes = checked_counts(counts)
        return winners(votes + noise.gaussian(self.sigma, votes.shape))
