"""The threshold test of the confident mechanisms and of Private-kNN: is max count + noise ≥ T?

A neighbour moves the largest count by at most one, so the test is a pair of coins (Private-kNN 2020,
Theorem 7), cheaper than the Gaussian mechanism that it post-processes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from collegium.coordinator.accounting.divergence import bernoulli_divergences
from collegium.coordinator.mechanisms.base import IntArray
from collegium.protocol.errors import ConfigurationError
from collegium.protocol.renyi import FloatArray, RenyiCurve, check_orders


@dataclass(frozen=True)
class Screen:
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
    """log Pr[discrete Gaussian ≥ start], the sum taken over the smaller tail's own scale."""
    flat, inverse = np.unique(start, return_inverse=True)
    offsets = np.arange(0, math.ceil(2.0 * 39.0 * sigma) + 2 + int(np.abs(flat).max(initial=0)))
    norm = np.logaddexp.reduce(-0.5 * (np.arange(-offsets.size, offsets.size + 1) / sigma) ** 2)
    tails = [np.logaddexp.reduce(-0.5 * ((value + offsets) / sigma) ** 2) - norm for value in flat]
    log_sf: FloatArray = np.minimum(np.asarray(tails)[inverse].reshape(start.shape), 0.0)
    return log_sf


def screening_curve(screen: Screen, lowest: int, highest: int, orders: Sequence[float]) -> RenyiCurve:
    """Exact cost of one threshold test for every largest count from ``lowest`` to ``highest`` (Theorem 7).

    All pairs of neighbouring counts, both directions, maximum per order. With k votes in c classes the
    largest count lies between ⌈k/c⌉ and k.
    """
    grid = check_orders(orders)
    log_pass, log_fail = _coins(screen, lowest, highest)
    values = _both_directions(log_pass, log_fail, np.asarray(grid))
    return RenyiCurve(grid, values.max(axis=0, initial=0.0))


def _coins(screen: Screen, lowest: int, highest: int) -> tuple[FloatArray, FloatArray]:
    if not 0 <= lowest <= highest:
        raise ConfigurationError(f"largest counts must satisfy 0 <= lowest <= highest; got {lowest} and {highest}")
    top = np.arange(lowest, highest + 1)
    return screen.log_pass(top), screen.log_fail(top)


def _both_directions(log_pass: FloatArray, log_fail: FloatArray, orders: FloatArray) -> FloatArray:
    up = bernoulli_divergences(log_pass[:-1], log_fail[:-1], log_pass[1:], log_fail[1:], orders)
    down = bernoulli_divergences(log_pass[1:], log_fail[1:], log_pass[:-1], log_fail[:-1], orders)
    return np.maximum(up, down)


def sampled_screening_curve(
    screen: Screen, lowest: int, highest: int, sampling_rate: float, orders: Sequence[float]
) -> RenyiCurve:
    """The threshold test on a Poisson sample of the records, exactly.

    Condition on which other records are sampled. The record that differs is in with probability γ, so
    the coin is p₀ without it and (1 − γ)·p₀ + γ·p₁ with it, p₁ the coin one count away. Given the others'
    sample both laws are mixtures, and Rényi divergence is jointly quasi-convex, so the largest divergence
    over neighbouring counts, both directions, bounds the whole.
    """
    if not 0.0 < sampling_rate <= 1.0:
        raise ConfigurationError(f"the sampling rate must lie in (0, 1]; got {sampling_rate}")
    grid = check_orders(orders)
    log_pass, log_fail = _coins(screen, lowest, highest)
    alpha = np.asarray(grid)
    worst = np.zeros(alpha.size)
    for without, with_it in ((slice(None, -1), slice(1, None)), (slice(1, None), slice(None, -1))):
        mixed_pass = _mixture(log_pass[without], log_pass[with_it], sampling_rate)
        mixed_fail = _mixture(log_fail[without], log_fail[with_it], sampling_rate)
        there = bernoulli_divergences(log_pass[without], log_fail[without], mixed_pass, mixed_fail, alpha)
        back = bernoulli_divergences(mixed_pass, mixed_fail, log_pass[without], log_fail[without], alpha)
        worst = np.maximum(worst, np.maximum(there, back).max(axis=0, initial=0.0))
    return RenyiCurve(grid, worst)


def _mixture(log_without: FloatArray, log_with: FloatArray, rate: float) -> FloatArray:
    """log((1 − γ)·p₀ + γ·p₁), with the digits of the difference kept: p₀·(1 + γ·(p₁/p₀ − 1))."""
    return log_without + np.log1p(rate * np.expm1(log_with - log_without))
