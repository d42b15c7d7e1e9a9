"""What one query costs whatever the votes are, by Rényi divergences of whole noisy counts.

Each curve covers the continuous noise of the papers and the discrete noise of a release alike.
"""

import math
from collections.abc import Sequence

import numpy as np

from collegium.privacy.renyi import RenyiCurve, check_orders, discrete_laplace_curve, laplace_curve
from collegium.privacy.units import Adjacency, Unit


def laplace_curve_of_counts(gamma: float, orders: Sequence[float], unit: Unit) -> RenyiCurve:
    """All counts + Laplace(1/γ), continuous or discrete; a bound on their argmax (LNMax).

    The smaller of PATE Theorem 2 with the pure bound and the exact curve of the noisy counts: k votes that move from
    one class to another shift two counts by k, which costs most by convexity.
    """
    noisy = laplace_curve(unit.votes, 1.0 / gamma, orders).at_least(
        discrete_laplace_curve(unit.votes, 1.0 / gamma, orders).values
    )
    entries = 2 if unit.adjacency is Adjacency.REPLACE else 1
    return RenyiCurve(noisy.orders, np.minimum(entries * noisy.values, theorem_2(gamma, orders, unit).values))


def published_range_curve(gamma: float, orders: Sequence[float], unit: Unit) -> RenyiCurve:
    """A release of bounded range r costs min(r, α·r²/8) at order α; the exponential mechanism has r = 2γk.

    One moved vote changes two scores by −γ and +γ, so log-probabilities change within a range of 2γ
    (Durfee and Rogers 2019; Cesar and Rogers 2021, Lemma 3.2).
    """
    grid = check_orders(orders)
    width = gamma * l1_moved(unit)
    return RenyiCurve(grid, np.minimum(width, np.asarray(grid) * width * width / 8.0))


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
