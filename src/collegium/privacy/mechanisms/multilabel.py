"""Multi-label votes clipped to L1 ≤ τ: each label is on when its noisy share of the votes reaches a half.

The votes are in parts of a vote: `collegium.privacy.multilabel.clipped_votes`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from collegium.privacy.accounting import pld
from collegium.privacy.mechanisms.base import Noise, Stage
from collegium.privacy.mechanisms.registry import register
from collegium.privacy.multilabel import RESOLUTION
from collegium.privacy.renyi import RenyiCurve, gaussian_curve
from collegium.privacy.units import Adjacency, IntArray, Unit
from collegium.privacy.vote_counts import check_positive, checked_counts


@register
@dataclass(frozen=True)
class MultiLabel:
    """Per label: is the sum of clipped votes + N(0, σ²) at least half the voters? Only the ones are noised.

    Parameters
    ----------
    sigma : noise on each label's sum, in votes.
    tau : L1 bound of one teacher's votes on one query.
    voters : number of teachers, public.
    """

    name: ClassVar[str] = "multilabel"
    source: ClassVar[str] = "Zhu et al., CVPR 2020, τ-approximation: ατ/σ² when the ones vector alone is noised"

    sigma: float
    tau: float
    voters: int

    def __post_init__(self) -> None:
        check_positive(self.name, sigma=self.sigma, tau=self.tau, voters=self.voters)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (ClippedRelease("release", self.sigma, self.tau, self.voters),)

    def parameters(self) -> dict[str, float | int | str]:
        return {"sigma": self.sigma, "tau": self.tau, "voters": self.voters}


@dataclass(frozen=True)
class ClippedRelease:
    """Release one bit per label from the noisy sums of clipped votes."""

    name: str
    sigma: float
    tau: float
    voters: int

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        """Entries lie in [0, 1], so L2² ≤ L1: 2τ for a teacher whose votes change, τ for one that comes or goes."""
        return gaussian_curve(self._moved(unit), self.sigma, orders)

    def classic_charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        return self.charge(orders, unit)

    def privacy_loss(self, unit: Unit) -> Any:
        return pld.shifted_gaussian_loss(self.sigma, self._moved(unit))

    def _moved(self, unit: Unit) -> float:
        return unit.votes * math.sqrt((2.0 if unit.adjacency is Adjacency.REPLACE else 1.0) * self.tau)

    def run(self, counts: IntArray, noise: Noise, predictions: IntArray | None = None) -> IntArray:
        """Bits of shape ``[queries, labels]`` from sums of ``clipped_votes`` of the same shape."""
        sums = checked_counts(counts)
        noisy = sums + noise.gaussian(self.sigma * RESOLUTION, sums.shape)
        return (2 * noisy >= self.voters * RESOLUTION).astype(np.int64)
