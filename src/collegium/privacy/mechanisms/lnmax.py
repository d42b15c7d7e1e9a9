"""LNMax, the noisy argmax of PATE: the class whose count + Laplace(1/γ) is largest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.privacy.accounting import pld
from collegium.privacy.accounting.exact import exact_divergences
from collegium.privacy.accounting.grids import NoiseLaw
from collegium.privacy.accounting.independent import laplace_argmax_curve, theorem_2
from collegium.privacy.accounting.papers import theorem_3
from collegium.privacy.mechanisms.base import Noise, Stage
from collegium.privacy.mechanisms.registry import register
from collegium.privacy.renyi import RenyiCurve
from collegium.privacy.units import Adjacency, IntArray, Unit
from collegium.privacy.vote_counts import check_positive, checked_counts, winners


@register
@dataclass(frozen=True)
class LNMax:
    """Argmax of the counts + Laplace noise of scale 1/γ votes.

    Parameters
    ----------
    gamma : inverse noise scale, per vote; a *small* γ is strong privacy. One label is (2γ, 0)-DP when
        one vote moves.
    """

    name: ClassVar[str] = "lnmax"
    source: ClassVar[str] = "Papernot et al., ICLR 2017, Theorem 2; certified three-outcome bound, docs/privacy.md"

    gamma: float

    def __post_init__(self) -> None:
        check_positive(self.name, gamma=self.gamma)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (LaplaceRelease("release", self.gamma),)

    def parameters(self) -> dict[str, float | int | str]:
        return {"gamma": self.gamma}

    def exact_loss(
        self, counts: IntArray, orders: tuple[float, ...], adjacency: Adjacency, discrete: bool
    ) -> NDArray[np.float64]:
        """Over all neighbours, both directions: ``exact_divergences``."""
        noise = NoiseLaw("discrete-laplace" if discrete else "laplace", 1.0 / self.gamma)
        return exact_divergences(counts, noise, orders, adjacency=adjacency)

    def paper_bound(self, counts: IntArray, orders: tuple[float, ...], unit: Unit) -> NDArray[np.float64]:
        """PATE Theorem 3 with Lemma 4."""
        return theorem_3(counts, self.gamma, orders, unit)


@dataclass(frozen=True)
class LaplaceRelease:
    """Release the noisy argmax under Laplace noise."""

    name: str
    gamma: float

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        return laplace_argmax_curve(self.gamma, orders, unit)

    def classic_charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        return theorem_2(self.gamma, orders, unit)

    def privacy_loss(self, unit: Unit) -> Any:
        return pld.laplace_loss(self.gamma, unit)

    def run(self, counts: IntArray, noise: Noise, predictions: IntArray | None = None) -> IntArray:
        votes = checked_counts(counts)
        return winners(votes + noise.laplace(1.0 / self.gamma, votes.shape))
