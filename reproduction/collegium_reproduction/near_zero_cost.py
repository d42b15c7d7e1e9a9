"""The near-zero-cost mechanism as published, to reproduce its table. It is not differentially private.

It adds a large constant to the winning count before the noise. Two neighbours with a gap of 2 or less may
have different winners, and each is then released almost surely: (125, 125) and (124, 126) are told apart
by one answer. Answering only where the gap is above 2 does not help, for that choice is itself a leak.
The sound mechanism with the same idea is propose-test-release (``ptr``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from collegium.errors import ConfigurationError
from collegium_accounting.divergences.independent import theorem_2
from collegium_accounting.mechanisms.base import Noise
from collegium_accounting.mechanisms.labels import LabelStage
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.mechanisms.votes import VoteMechanism
from collegium_accounting.renyi import Conversion, RenyiCurve, check_orders, gaussian_curve
from collegium_accounting.units import IntArray, Unit, checked_counts, winners


@register
@dataclass(frozen=True)
class NearZeroCost(VoteMechanism):
    """Argmax of the counts, the largest raised by ``constant``, + Laplace(1/γ) or N(0, σ²): give one of the two.

    ``accept_no_privacy`` must be True: whoever runs this states to know that it protects nobody.
    """

    name: ClassVar[str] = "nzc"
    source: ClassVar[str] = "Near-zero-cost, ICLR 2020 submission, as published; its privacy claim does not hold"
    private: ClassVar[bool] = False

    constant: Annotated[float, Parameter("what is added to the largest count", "votes")]
    gamma: Annotated[float | None, Parameter("inverse scale of the noise on each count", "per vote")] = None
    sigma: Annotated[float | None, Parameter("standard deviation of the Gaussian noise on each count", "votes")] = None
    accept_no_privacy: Annotated[bool, Parameter("states that this protects nobody")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.gamma is None) == (self.sigma is None):
            raise ConfigurationError(f"{self.name}: give either gamma or sigma")
        if not self.accept_no_privacy:
            raise ConfigurationError(
                f"{self.name} is not differentially private; set accept_no_privacy to run it for comparison, or use ptr"
            )

    @classmethod
    def completed(cls, given: Mapping[str, Any], *, delta: float, queries: int) -> dict[str, Any]:
        """An account releases nothing: it needs no statement that whoever runs this accepts no privacy."""
        return {**given, "accept_no_privacy": True}

    @property
    def stages(self) -> tuple[LabelStage, ...]:
        return (BoostedRelease("release", self.constant, self.gamma, self.sigma),)

    def other_figures(
        self, queries: int, delta: float, orders: tuple[float, ...], counts: IntArray | None
    ) -> dict[str, float]:
        return {
            "epsilon_claimed": self.claimed_epsilon(queries, delta, orders),
            "epsilon_honest": math.inf if counts is None else self.honest_epsilon(counts),
        }

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
class BoostedRelease(LabelStage):
    """Release the noisy argmax after raising the largest count."""

    constant: float
    gamma: float | None
    sigma: float | None

    @property
    def noise_votes(self) -> float:
        """None that protects anybody."""
        return 0.0

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        """Infinite: no budget lets it pass."""
        return RenyiCurve(check_orders(orders), np.full(len(orders), np.inf))

    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        votes = checked_counts(counts)
        raised = votes.astype(np.float64)
        raised[np.arange(votes.shape[0]), winners(votes)] += self.constant
        if self.gamma is not None:
            return winners(raised + noise.laplace(1.0 / self.gamma, votes.shape))
        return winners(raised + noise.gaussian(self.sigma or 1.0, votes.shape))
