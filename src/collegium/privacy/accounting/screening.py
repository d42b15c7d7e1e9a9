"""The threshold test of the confident mechanisms and of Private-kNN: is max count + noise ≥ T?

A neighbour moves the largest count by at most one, so the test is a pair of coins (Private-kNN 2020,
Theorem 7), cheaper than the Gaussian mechanism that it post-processes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from collegium.errors import ConfigurationError
from collegium.privacy.accounting.divergence import bernoulli_divergences
from collegium.privacy.renyi import FloatArray, RenyiCurve, check_orders, gaussian_curve
from collegium.privacy.units import IntArray


@dataclass(frozen=True)
class ThresholdTestLaw:
    """Pass when max count + N(0, σ₁²) ≥ T; ``discrete`` for the discrete Gaussian of a release."""

    sigma1: float
    threshold: float
    discrete: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma1) and self.sigma1 > 0.0 and math.isfinite(self.threshold)):
            raise ConfigurationError(f"a threshold test needs sigma1 > 0 and a finite threshold; got {self}")

    def log_pass(self, top: IntArray) -> FloatArray:
        """log Pr[pass] per largest count."""
        if self.discrete:
            return _discrete_gaussian_log_sf(np.ceil(self.threshold - top), self.sigma1)
        return np.asarray(log_ndtr((top - self.threshold) / self.sigma1), dtype=np.float64)

    def log_fail(self, top: IntArray) -> FloatArray:
        """log Pr[abstain] per largest count."""
        if self.discrete:
            return _discrete_gaussian_log_sf(1.0 - np.ceil(self.threshold - top), self.sigma1)
        return np.asarray(log_ndtr((self.threshold - top) / self.sigma1), dtype=np.float64)


def _discrete_gaussian_log_sf(start: FloatArray, sigma: float) -> FloatArray:
    """log Pr[discrete Gaussian ≥ start], summed from the far tail inwards."""
    reach = int(np.abs(start).max(initial=0)) + math.ceil(39.0 * sigma) + 2
    log_mass = -0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2
    log_tail = np.logaddexp.accumulate(log_mass[::-1])[::-1]
    log_sf: FloatArray = np.minimum(log_tail - log_tail[0], 0.0)[start.astype(np.int64) + reach]
    return log_sf


def screening_curve(
    screen: ThresholdTestLaw,
    lowest: int,
    highest: int,
    orders: Sequence[float],
    votes: int = 1,
    *,
    sampling_rate: float = 1.0,
) -> RenyiCurve:
    """Exact cost of one threshold test for every largest count from ``lowest`` to ``highest`` (Theorem 7).

    All pairs of counts ``votes`` apart, both directions, maximum per order; pairs closer than that cost
    less. With k votes in c classes the largest count lies between ⌈k/c⌉ and k.

    On a Poisson sample of the records, with probability γ each: condition on which other records are sampled. The
    coin is p₀ without the record that differs and (1 − γ)·p₀ + γ·p₁ with it, p₁ the coin ``votes`` away. Given the
    others' sample both laws are mixtures, and Rényi divergence is jointly quasi-convex, so the largest divergence
    over neighbouring counts, both directions, bounds the whole.
    """
    if not 0.0 < sampling_rate <= 1.0:
        raise ConfigurationError(f"the sampling rate must lie in (0, 1]; got {sampling_rate}")
    if not 0 <= lowest <= highest:
        raise ConfigurationError(f"largest counts must satisfy 0 <= lowest <= highest; got {lowest} and {highest}")
    grid, top = check_orders(orders), np.arange(lowest, highest + 1)
    apart = min(votes, max(highest - lowest, 1))
    return RenyiCurve(grid, _largest(screen, top, apart, np.asarray(grid), sampling_rate))


def unbounded_screening_curve(screen: ThresholdTestLaw, orders: Sequence[float], votes: int = 1) -> RenyiCurve:
    """The same for every integer count, however many teachers there are.

    Far from T only the rarer side of the coin counts. With z the distance from T in units of σ₁,
    s = votes/σ₁ and λ the hazard rate of the noise (λ(z) > z, λ′ < 1), the logarithm of that side's term
    falls in z with slope at least αλ(z) − (α − 1)·λ(z + s) ≥ λ(z) − (α − 1)·s, so the supremum lies
    within z ≤ (α − 1)·s. The search covers 10 more, and never goes past the flat α·s²/2.
    """
    grid = check_orders(orders)
    flat = gaussian_curve(float(votes), screen.sigma1, grid)
    values = np.empty(len(grid))
    for part in (slice(0, 40), slice(40, None)):
        some = grid[part]
        if some:
            reach = math.ceil(screen.sigma1 * ((some[-1] - 1.0) * votes / screen.sigma1 + 10.0)) + votes + 1
            centre = math.floor(screen.threshold)
            top = np.arange(centre - reach, centre + reach + 1)
            values[part] = _largest(screen, top, votes, np.asarray(some))
    return RenyiCurve(grid, np.minimum(values, flat.values))


def _largest(screen: ThresholdTestLaw, top: IntArray, votes: int, orders: FloatArray, rate: float = 1.0) -> FloatArray:
    """The largest divergence per order over counts ``votes`` apart, in both directions and for either as p₀."""
    log_pass, log_fail = screen.log_pass(top), screen.log_fail(top)
    worst = np.zeros(orders.size)
    fewer, more = slice(None, -votes), slice(votes, None)
    for without, with_it in ((fewer, more), (more, fewer)):
        coin = log_pass[without], log_fail[without]
        mixed = (
            _mixture(log_pass[without], log_pass[with_it], rate),
            _mixture(log_fail[without], log_fail[with_it], rate),
        )
        for one, other in ((coin, mixed), (mixed, coin)) if rate < 1.0 else ((coin, mixed),):
            worst = np.maximum(worst, bernoulli_divergences(*one, *other, orders).max(axis=0, initial=0.0))
    return worst


def _mixture(log_without: FloatArray, log_with: FloatArray, rate: float) -> FloatArray:
    """log((1 − γ)·p₀ + γ·p₁), with the digits of the difference kept: p₀·(1 + γ·(p₁/p₀ − 1))."""
    return log_with if rate == 1.0 else log_without + np.log1p(rate * np.expm1(log_with - log_without))
