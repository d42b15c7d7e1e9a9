"""The game by brute force: every adaptive policy on a finite set of histograms, with laws computed apart."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Pair = tuple[FloatArray, FloatArray]


def pmf(noise: str, scale: float) -> tuple[NDArray[np.int64], FloatArray]:
    """Integer noise and its probabilities, far into the tails."""
    reach = int(12 * scale if noise == "discrete-gaussian" else 60 * scale) + 5
    z = np.arange(-reach, reach + 1)
    weight = np.exp(-((z / scale) ** 2) / 2) if noise == "discrete-gaussian" else np.exp(-np.abs(z) / scale)
    return z, weight / weight.sum()


def winner_law(histogram: tuple[int, ...], noise: str, scale: float) -> FloatArray:
    """Probability of each class to win; ties go to the lowest class."""
    z, mass = pmf(noise, scale)
    cumulative = np.cumsum(mass)

    def below(limit: NDArray[np.int64]) -> FloatArray:
        return np.where(limit < z[0], 0.0, cumulative[np.clip(limit - z[0], 0, len(z) - 1)])

    law = np.empty(len(histogram))
    for i, count in enumerate(histogram):
        term = mass.copy()
        for j, other in enumerate(histogram):
            if j != i:
                term *= below(z + count - other - (1 if j < i else 0))
        law[i] = term.sum()
    return law


def moved_votes(histograms: list[tuple[int, ...]], noise: str, scale: float) -> list[Pair]:
    """Laws of each histogram and of every histogram with one vote moved."""
    pairs = []
    for histogram in histograms:
        for a, b in itertools.permutations(range(len(histogram)), 2):
            if histogram[a] > 0:
                other = list(histogram)
                other[a] -= 1
                other[b] += 1
                pairs.append((winner_law(histogram, noise, scale), winner_law(tuple(other), noise, scale)))
    return pairs


def removed_votes(histograms: list[tuple[int, ...]], noise: str, scale: float) -> list[Pair]:
    """Laws of each histogram and of the same with one vote less."""
    pairs = []
    for histogram in histograms:
        for a in range(len(histogram)):
            if histogram[a] > 0:
                other = list(histogram)
                other[a] -= 1
                pairs.append((winner_law(histogram, noise, scale), winner_law(tuple(other), noise, scale)))
    return pairs


def sampled(pairs: list[Pair], rate: float, present: bool) -> list[Pair]:
    """With a record that takes part with probability ``rate`` against without it, or the reverse."""
    mixed = [((1.0 - rate) * q + rate * p, q) for p, q in pairs]
    return mixed if present else [(q, p) for p, q in mixed]


def delta(pairs: list[Pair], rounds: int, epsilon: float) -> float:
    """The largest Pr_P[S] − e^ε·Pr_Q[S] over all policies that choose a pair after every winner, and all S."""

    first = np.stack([p for p, _ in pairs])
    losses = np.log(first / np.stack([q for _, q in pairs]))

    def value(s: FloatArray, left: int) -> FloatArray:
        if left == 0:
            return np.maximum(0.0, -np.expm1(-s))
        following = value((s[:, None, None] + losses).ravel(), left - 1).reshape(len(s), *losses.shape)
        return np.asarray((following * first).sum(axis=2).max(axis=1))

    return float(value(np.array([-epsilon]), rounds)[0])
