"""The exponential mechanism on vote counts: argmax of counts + Gumbel noise, Pr[i] ∝ e^{γ·n_i}."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.privacy.accounting import pld
from collegium.privacy.accounting.exact import exact_divergences
from collegium.privacy.accounting.grids import NoiseLaw
from collegium.privacy.accounting.independent import gumbel_argmax_curve, l1_moved, published_range_curve
from collegium.privacy.mechanisms.base import Noise, Stage
from collegium.privacy.mechanisms.registry import register
from collegium.privacy.renyi import RenyiCurve
from collegium.privacy.units import Adjacency, IntArray, Unit
from collegium.privacy.vote_counts import check_positive, checked_counts


@register
@dataclass(frozen=True)
class Exponential:
    """Argmax of the counts + Gumbel noise of scale 1/γ votes.

    As private as LNMax at the same γ, (2γ, 0)-DP when one vote moves, with less noise; its privacy loss
    has the bounded range 2γ, so it costs about a quarter of Theorem 2. Ties do not happen: the classes
    are drawn from their exact probabilities.

    Parameters
    ----------
    gamma : inverse noise scale, per vote.
    """

    name: ClassVar[str] = "exponential"
    source: ClassVar[str] = "McSherry and Talwar 2007; bounded range: Durfee and Rogers 2019, Dong et al. 2020"

    gamma: float

    def __post_init__(self) -> None:
        check_positive(self.name, gamma=self.gamma)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (GumbelRelease("release", self.gamma),)

    def parameters(self) -> dict[str, float | int | str]:
        return {"gamma": self.gamma}

    def exact_loss(
        self, counts: IntArray, orders: tuple[float, ...], adjacency: Adjacency, discrete: bool
    ) -> NDArray[np.float64]:
        """Two soft-max laws, in closed form; the same for papers and releases."""
        return exact_divergences(counts, NoiseLaw("gumbel", 1.0 / self.gamma), orders, adjacency=adjacency)


@dataclass(frozen=True)
class GumbelRelease:
    """Release a class drawn with probability ∝ e^{γ·count}."""

    name: str
    gamma: float

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        return gumbel_argmax_curve(self.gamma, orders, unit)

    def classic_charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        return published_range_curve(self.gamma, orders, unit)

    def privacy_loss(self, unit: Unit) -> Any:
        """By its pure bound alone, which gives bounded range away; the Rényi value is often smaller."""
        return pld.pure_loss(self.gamma * l1_moved(unit))

    def run(self, counts: IntArray, noise: Noise, predictions: IntArray | None = None) -> IntArray:
        return noise.gumbel_argmax(checked_counts(counts), 1.0 / self.gamma)
