"""GNMax: the class whose count + Gaussian noise is largest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.privacy.accounting import pld
from collegium.privacy.accounting.exact import exact_divergences
from collegium.privacy.accounting.grids import NoiseLaw
from collegium.privacy.accounting.independent import gaussian_argmax_curve, l2_moved
from collegium.privacy.accounting.papers import theorem_6
from collegium.privacy.mechanisms.base import Noise, Stage
from collegium.privacy.mechanisms.registry import register
from collegium.privacy.renyi import RenyiCurve, gaussian_curve
from collegium.privacy.units import Adjacency, IntArray, Unit
from collegium.privacy.vote_counts import check_positive, checked_counts, winners


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

    def exact_loss(
        self, counts: IntArray, orders: tuple[float, ...], adjacency: Adjacency, discrete: bool
    ) -> NDArray[np.float64]:
        """Over all neighbours, both directions: ``exact_divergences``."""
        noise = NoiseLaw("discrete-gaussian" if discrete else "gaussian", self.sigma)
        return exact_divergences(counts, noise, orders, adjacency=adjacency)

    def paper_bound(self, counts: IntArray, orders: tuple[float, ...], unit: Unit) -> NDArray[np.float64]:
        """Papernot et al. 2018, Theorem 6."""
        return theorem_6(counts, self.sigma, orders, unit)


@dataclass(frozen=True)
class GaussianRelease:
    """Release the noisy argmax under Gaussian noise."""

    name: str
    sigma: float

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        return gaussian_argmax_curve(self.sigma, orders, unit)

    def classic_charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        return gaussian_curve(l2_moved(unit), self.sigma, orders)

    def privacy_loss(self, unit: Unit) -> Any:
        return pld.gaussian_loss(self.sigma, unit)

    def run(self, counts: IntArray, noise: Noise, predictions: IntArray | None = None) -> IntArray:
        votes = checked_counts(counts)
        return winners(votes + noise.gaussian(self.sigma, votes.shape))
