"""The near-zero-cost mechanism as published, to reproduce its table. It is not differentially private.

It adds a large constant to the winning count before the noise. Two neighbours with a gap of 2 or less may
have different winners, and each is then released almost surely: (125, 125) and (124, 126) are told apart
by one answer. Answering only where the gap is above 2 does not help, for that choice is itself a leak.
The sound mechanism with the same idea is propose-test-release (``ptr``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from collegium.errors import ConfigurationError
from collegium.privacy.accounting.independent import theorem_2
from collegium.privacy.mechanisms.base import Noise, Stage
from collegium.privacy.mechanisms.registry import register
from collegium.privacy.renyi import Conversion, RenyiCurve, check_orders, gaussian_curve
from collegium.privacy.units import IntArray, Unit
from collegium.privacy.vote_counts import check_positive, checked_counts, winners


@register
@dataclass(frozen=True)
class NearZeroCost:
    """Argmax of the counts, the largest raised by ``constant``, + Laplace(1/γ) or N(0, σ²).

    Parameters
    ----------
    constant : c, in votes.
    gamma, sigma : the noise; give exactly one.
    accept_no_privacy : must be True; states that whoever runs this knows that it protects nobody.
    """

    name: ClassVar[str] = "nzc"
    source: ClassVar[str] = "Near-zero-cost, ICLR 2020 submission, as published; its privacy claim does not hold"

    constant: float
    gamma: float | None = None
    sigma: float | None = None
    accept_no_privacy: bool = False

    def __post_init__(self) -> None:
        check_positive(self.name, constant=self.constant)
        if (self.gamma is None) == (self.sigma is None):
            raise ConfigurationError(f"{self.name}: give either gamma or sigma")
        check_positive(self.name, noise=self.gamma if self.gamma is not None else self.sigma or 0.0)
        if self.accept_no_privacy is not True:
            raise ConfigurationError(
                f"{self.name} is not differentially private; set accept_no_privacy to run it for comparison, or use ptr"
            )

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (BoostedRelease("release", self.constant, self.gamma, self.sigma),)

    def parameters(self) -> dict[str, float | int | str]:
        noise = {"gamma": self.gamma} if self.gamma is not None else {"sigma": self.sigma or 0.0}
        return {"constant": self.constant, **noise, "accept_no_privacy": True}

    def claimed_epsilon(self, queries: int, delta: float, orders: tuple[float, ...]) -> float:
        """What the authors' Theorem 4 says: Theorem 2 of PATE at γ, or α/σ², as if the constant were not there."""
        if self.sigma is not None:
            return (gaussian_curve(math.sqrt(2.0), self.sigma, orders) * queries).to_epsilon(delta).epsilon
        gamma = self.gamma or 0.0
        curve = theorem_2(gamma, orders, Unit()) * queries
        return min(curve.to_epsilon(delta, Conversion.CLASSIC).epsilon, 2.0 * gamma * queries)

    def honest_epsilon(self, counts: ArrayLike) -> float:
        """Infinite as soon as one released query has a gap of 2 or less; NaN, nothing provable, otherwise.

        Even with wide gaps only, no finite ε holds for the mechanism: another run may meet a narrow one.
        """
        ordered = -np.sort(-checked_counts(counts), axis=1)
        if ordered.shape[1] > 1 and (ordered[:, 0] - ordered[:, 1] <= 2).any():
            return math.inf
        return math.nan


@dataclass(frozen=True)
class BoostedRelease:
    """Release the noisy argmax after raising the largest count."""

    name: str
    constant: float
    gamma: float | None
    sigma: float | None

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        """Infinite: no budget lets it pass."""
        return RenyiCurve(check_orders(orders), np.full(len(orders), np.inf))

    def run(self, counts: IntArray, noise: Noise, predictions: IntArray | None = None) -> IntArray:
        votes = checked_counts(counts)
        raised = votes.astype(np.float64)
        raised[np.arange(votes.shape[0]), winners(votes)] += self.constant
        if self.gamma is not None:
            return winners(raised + noise.laplace(1.0 / self.gamma, votes.shape))
        return winners(raised + noise.gaussian(self.sigma or 1.0, votes.shape))
