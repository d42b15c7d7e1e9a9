"""Mechanisms for sums that the parties noised themselves (`masked+noised`): nothing is added here.

The coordinator sees the whole noisy histogram, so the whole of it is charged: neither the argmax bound
nor any data-dependent one applies, and a threshold test costs as much as an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from collegium.errors import ConfigurationError
from collegium.privacy.mechanisms.base import ABSTAIN, NEXT_STAGE, Mechanism, Noise, Stage
from collegium.privacy.mechanisms.confident_gnmax import ConfidentGNMax
from collegium.privacy.mechanisms.gnmax import GNMax
from collegium.privacy.mechanisms.registry import register
from collegium.privacy.noise.distributed import noise_share_sigma, noised_sum_curve
from collegium.privacy.renyi import RenyiCurve
from collegium.privacy.units import Adjacency, IntArray, Unit
from collegium.privacy.vote_counts import check_finite, check_positive, winners

SOURCE = "Kairouz, Liu, Steinke 2021, section 4: sums of discrete Gaussians; docs/privacy.md"


@dataclass(frozen=True)
class NoisedStage:
    """One sum with noise of at least ``sigma`` in every entry, and what is read off it.

    Parameters
    ----------
    sigma : of the noise that the honest survivors alone contribute, in votes.
    honest_survivors : the fewest honest parties whose noise any opened sum holds.
    threshold : abstain where the largest entry is below it, pass the query on elsewhere; None answers.
    """

    name: str
    sigma: float
    honest_survivors: int
    threshold: float | None = None

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        share = noise_share_sigma(self.sigma, self.honest_survivors)
        entries = 2 if unit.adjacency is Adjacency.REPLACE else 1
        return noised_sum_curve(
            orders,
            share,
            self.honest_survivors,
            l2_squared=float(entries * unit.votes**2),
            changed_entries=entries * unit.votes,
        )

    def run(self, counts: IntArray, noise: Noise, predictions: IntArray | None = None) -> IntArray:
        best = winners(counts)
        if self.threshold is None:
            return best
        passed = counts.max(axis=1) >= self.threshold
        outcome = best
        outcome[passed], outcome[~passed] = NEXT_STAGE, ABSTAIN
        return outcome


@register
@dataclass(frozen=True)
class NoisedGNMax:
    """GNMax on a sum that carries Gaussian noise of at least ``sigma`` votes already."""

    name: ClassVar[str] = "noised-gnmax"
    source: ClassVar[str] = SOURCE

    sigma: float
    honest_survivors: int

    def __post_init__(self) -> None:
        check_positive(self.name, sigma=self.sigma, honest_survivors=self.honest_survivors)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (NoisedStage("noised release", self.sigma, int(self.honest_survivors)),)

    def parameters(self) -> dict[str, float | int | str]:
        return {"sigma": self.sigma, "honest_survivors": self.honest_survivors}


@register
@dataclass(frozen=True)
class NoisedConfidentGNMax:
    """Confident-GNMax on two noised sums: one decides whether to answer, a second one answers."""

    name: ClassVar[str] = "noised-confident-gnmax"
    source: ClassVar[str] = SOURCE

    sigma1: float
    sigma2: float
    threshold: float
    honest_survivors: int

    def __post_init__(self) -> None:
        check_positive(self.name, sigma1=self.sigma1, sigma2=self.sigma2, honest_survivors=self.honest_survivors)
        check_finite(self.name, threshold=self.threshold)

    @property
    def stages(self) -> tuple[Stage, ...]:
        least = int(self.honest_survivors)
        first = NoisedStage("noised threshold", self.sigma1, least, self.threshold)
        return (first, NoisedStage("noised release", self.sigma2, least))

    def parameters(self) -> dict[str, float | int | str]:
        return {
            "sigma1": self.sigma1,
            "sigma2": self.sigma2,
            "threshold": self.threshold,
            "honest_survivors": self.honest_survivors,
        }


def noised(mechanism: Mechanism, honest_survivors: int) -> Mechanism:
    """``mechanism`` for sums that ``honest_survivors`` honest parties or more noised.

    Raises ConfigurationError where its noise is not Gaussian.
    """
    if isinstance(mechanism, GNMax):
        return NoisedGNMax(mechanism.sigma, honest_survivors)
    if isinstance(mechanism, ConfidentGNMax):
        return NoisedConfidentGNMax(mechanism.sigma1, mechanism.sigma2, mechanism.threshold, honest_survivors)
    raise ConfigurationError(
        "votes.mode = 'masked+noised' needs Gaussian noise, which parties can share: "
        f"use gnmax or confident-gnmax, not {mechanism.name}"
    )
