"""Theorem 7 of Private-kNN: the Rényi cost of the threshold test "is max count + noise ≥ T?", alone and sampled.

A neighbour moves the largest count by at most one, so the test is a pair of coins, cheaper than the Gaussian mechanism
that it post-processes. Runs are charged by the exact accountant, which is closer still.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from collegium.errors import ConfigurationError
from collegium_accounting.divergences.grids import ThresholdTestLaw
from collegium_accounting.renyi import FloatArray, RenyiCurve, check_orders, gaussian_curve
from collegium_accounting.units import IntArray
from collegium_reproduction.exact_losses import renyi_divergences
from collegium_reproduction.nearest.knn import PrivateKNN


def screening_of(mechanism: PrivateKNN, orders: tuple[float, ...]) -> RenyiCurve:
    """One test of Private-kNN for one record, under continuous and discrete noise alike.

    Over every largest count from 0, since fewer than k records may have been sampled.
    """
    continuous, discrete = (
        screening_curve(
            ThresholdTestLaw(mechanism.sigma1, mechanism.threshold, kind),
            0,
            mechanism.k,
            orders,
            sampling_rate=mechanism.sampling_rate,
        )
        for kind in (False, True)
    )
    return continuous.at_least(discrete.values)


def private_knn_curve(mechanism: PrivateKNN, orders: tuple[float, ...], screened: int, answered: int) -> RenyiCurve:
    """A run for one record, as the paper counts: Theorem 7 for the tests, the sampled Gaussian for the answers."""
    release = mechanism.stages[1].charge(orders, mechanism.unit())
    return screening_of(mechanism, orders) * screened + release * answered


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


def bernoulli_divergences(
    log_p: FloatArray, log_not_p: FloatArray, log_q: FloatArray, log_not_q: FloatArray, orders: FloatArray
) -> FloatArray:
    """D_α(Bernoulli(p)‖Bernoulli(q)) for many pairs, shape ``[pairs, orders]``, from the logarithms of all four."""
    base = np.stack([log_q, log_not_q], axis=-1)
    ratio = np.stack([log_p - log_q, log_not_p - log_not_q], axis=-1)
    return renyi_divergences(base, ratio, np.ones_like(base), orders)
