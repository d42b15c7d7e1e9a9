"""What one query costs whatever the votes are, by Rényi divergences of whole noisy counts.

Each curve covers the continuous noise of the papers and the discrete noise of a release alike.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from collegium_accounting.elementary import exp, expm1, interpolate, log, log1p, logaddexp
from collegium_accounting.errors import ConfigurationError
from collegium_accounting.renyi import RenyiCurve, check_orders, discrete_laplace_curve, gaussian_curve, laplace_curve
from collegium_accounting.units import Adjacency, Unit


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


def sampled_gaussian_curve(l2: float, sigma: float, sampling_rate: float, orders: Sequence[float]) -> RenyiCurve:
    """Add/remove cost of Gaussian noise, continuous or discrete, on a sum over a Poisson sample.

    Each record is in the sample with probability γ, independently, and moves the sum by at most ``l2``. The worst pair
    is N(0, σ²) against (1 − γ)·N(0, σ²) + γ·N(l2, σ²), in the direction D_α(mixture‖Gaussian), the larger one.
    Exact at whole orders, by Section 3.3 of the source, for both kinds of noise: it needs E[e^{j·loss}] of a whole
    shift at whole numbers j alone, which is e^{j(j−1)·l2²/2σ²} for either. Between whole orders, and from 1 to 2, a
    chord of (α − 1)·D_α, which is convex in α and 0 at α = 1. Never more than without sampling.

    Parameters
    ----------
    l2 : most that one record moves the sum.
    sigma : standard deviation of the noise.
    sampling_rate : γ, in [0, 1].
    orders : Rényi orders, each above 1.

    Raises
    ------
    ConfigurationError : a rate outside [0, 1].

    References
    ----------
    Mironov, Talwar, Zhang 2019, "Rényi Differential Privacy of the Sampled Gaussian Mechanism", Theorem 5.
    """
    if not 0.0 <= sampling_rate <= 1.0:
        raise ConfigurationError(f"the sampling rate must lie in [0, 1]; got {sampling_rate}")
    flat = gaussian_curve(l2, sigma, orders)
    if sampling_rate == 0.0 or l2 == 0.0:
        return RenyiCurve.zero(flat.orders)
    if sampling_rate == 1.0:
        return flat
    alpha = np.asarray(flat.orders)
    knots = np.unique(np.concatenate([[1.0], np.floor(alpha), np.ceil(alpha)]))
    log_moments = _log_moments(sampling_rate, sigma / l2, tuple(map(int, knots)))
    joined = interpolate(alpha, knots, np.array(log_moments)) / (alpha - 1.0)
    return RenyiCurve(flat.orders, np.minimum(joined, flat.values))


@lru_cache(maxsize=256)
def _log_moments(rate: float, noise: float, orders: tuple[int, ...]) -> tuple[float, ...]:
    """Kept: each party, and each reading of a ledger, computes the few laws of a run again."""
    return tuple(_log_moment(rate, noise, order) for order in orders)


def _log_moment(rate: float, noise: float, alpha: int) -> float:
    """(α − 1)·D_α = log(1 + Σ_{j ≥ 2} C(α, j)·(1 − γ)^{α−j}·γ^j·(e^{j(j−1)/2σ²} − 1)): every term is positive."""
    j = np.arange(2.0, alpha + 1.0)
    if not j.size:
        return 0.0
    loss = j * (j - 1.0) / (2.0 * noise * noise)
    log_factorial = np.insert(np.cumsum(log(np.arange(1.0, alpha + 1.0))), 0, 0.0)
    log_chosen = log_factorial[-1] - log_factorial[2:] - log_factorial[alpha - 2 :: -1]
    log_terms = log_chosen + (alpha - j) * log1p(-rate) + j * log(rate) + loss + log(-expm1(-loss))
    highest = log_terms.max()
    return float(logaddexp(0.0, highest + log(math.fsum(exp(log_terms - highest)))))
