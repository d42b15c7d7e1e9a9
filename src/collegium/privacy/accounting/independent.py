"""What one query costs whatever the votes are: the curves that budgets stop on.

Each curve covers the continuous noise of the papers and the discrete noise of a release alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from collegium.privacy.accounting.argmax.bound import argmax_curve
from collegium.privacy.accounting.screening import ThresholdTestLaw, unbounded_screening_curve
from collegium.privacy.renyi import (
    FloatArray,
    RenyiCurve,
    check_orders,
    discrete_laplace_curve,
    gaussian_curve,
    laplace_curve,
)
from collegium.privacy.units import Adjacency, Unit

_KNOTS = tuple(map(float, (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 256)))


def gaussian_argmax_curve(sigma: float, orders: Sequence[float], unit: Unit) -> RenyiCurve:
    """Argmax of counts + N(0, σ²), continuous or discrete (GNMax).

    For one vote the certified bound of the argmax alone. Several votes may move between more than three
    classes, which that bound does not cover; they pay for the noisy counts, α·k²/σ² when k votes move.
    """
    flat = gaussian_curve(l2_moved(unit), sigma, orders)
    return _with_certified(flat, ("gaussian", "discrete-gaussian"), sigma, unit)


def laplace_argmax_curve(gamma: float, orders: Sequence[float], unit: Unit) -> RenyiCurve:
    """Argmax of counts + Laplace(1/γ), continuous or discrete (LNMax).

    For one vote the certified bound of the argmax alone. For several, the smaller of PATE Theorem 2 with
    the pure bound and the exact curve of the noisy counts: k votes that move from one class to another
    shift two counts by k, which costs most by convexity.
    """
    noisy = laplace_curve(unit.votes, 1.0 / gamma, orders).at_least(
        discrete_laplace_curve(unit.votes, 1.0 / gamma, orders).values
    )
    entries = 2 if unit.adjacency is Adjacency.REPLACE else 1
    flat = RenyiCurve(noisy.orders, np.minimum(entries * noisy.values, theorem_2(gamma, orders, unit).values))
    return _with_certified(flat, ("laplace", "discrete-laplace"), 1.0 / gamma, unit)


def gumbel_argmax_curve(gamma: float, orders: Sequence[float], unit: Unit) -> RenyiCurve:
    """Argmax of counts + Gumbel(1/γ), the exponential mechanism: the exact supremum for one vote."""
    return _with_certified(published_range_curve(gamma, orders, unit), ("gumbel",), 1.0 / gamma, unit)


def _with_certified(flat: RenyiCurve, noises: tuple[str, ...], scale: float, unit: Unit) -> RenyiCurve:
    """The smaller of ``flat`` and, for one vote, the certified bound that holds for all of ``noises``."""
    if unit.votes > 1:
        return flat
    certified = np.max([_certified(noise, scale, flat.orders, unit.adjacency) for noise in noises], axis=0)
    return RenyiCurve(flat.orders, np.minimum(flat.values, certified))


def _certified(noise: str, scale: float, orders: tuple[float, ...], adjacency: Adjacency) -> FloatArray:
    """The certified bound; on a long grid searched at some orders only and joined by chords.

    (α − 1)·D_α is convex in α and zero at 1, and so is its supremum over histograms: a chord is an upper
    bound, about one per cent above the curve between these orders.
    """
    if len(orders) <= len(_KNOTS) or noise == "gumbel":
        return argmax_curve(noise, scale, orders, adjacency)
    knots = np.asarray(_KNOTS)
    moments = argmax_curve(noise, scale, _KNOTS, adjacency) * (knots - 1.0)
    alpha = np.asarray(orders)
    joined = np.interp(alpha, np.append(1.0, knots), np.append(0.0, moments), right=np.inf)
    bound: FloatArray = joined / (alpha - 1.0)
    return bound


def published_range_curve(gamma: float, orders: Sequence[float], unit: Unit) -> RenyiCurve:
    """A release of bounded range r costs min(r, α·r²/8) at order α; the exponential mechanism has r = 2γk.

    One moved vote changes two scores by −γ and +γ, so log-probabilities change within a range of 2γ
    (Durfee and Rogers 2019; Cesar and Rogers 2021, Lemma 3.2).
    """
    grid = check_orders(orders)
    width = gamma * l1_moved(unit)
    return RenyiCurve(grid, np.minimum(width, np.asarray(grid) * width * width / 8.0))


@lru_cache(maxsize=64)
def threshold_curve(sigma1: float, threshold: float, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
    """Is a count + N(0, σ₁²) at least T? Theorem 7 of Private-kNN over all counts, continuous or discrete noise."""
    fraction = threshold - math.floor(threshold)
    continuous, discrete = (
        unbounded_screening_curve(ThresholdTestLaw(sigma1, fraction, kind), orders, unit.votes)
        for kind in (False, True)
    )
    return continuous.at_least(discrete.values)


def theorem_2(gamma: float, orders: Sequence[float], unit: Unit) -> RenyiCurve:
    """PATE Theorem 2 with the pure bound: an ε-DP release costs min(ε, α·ε²/2) at order α; ε = 2γ for one vote.

    In moments: α(λ) ≤ min(2γλ, 2γ²λ(λ + 1)), λ = order − 1.
    """
    grid = check_orders(orders)
    pure = gamma * l1_moved(unit)
    return RenyiCurve(grid, np.minimum(pure, np.asarray(grid) * pure * pure / 2.0))


def l1_moved(unit: Unit) -> int:
    """By how much the unit can change the counts in L1: 2 per moved vote, 1 per vote added or removed."""
    return (2 if unit.adjacency is Adjacency.REPLACE else 1) * unit.votes


def l2_moved(unit: Unit) -> float:
    """By how much the unit can change the counts in L2: √2·k for k moved votes, k for k votes added or removed."""
    return (math.sqrt(2.0) if unit.adjacency is Adjacency.REPLACE else 1.0) * unit.votes
