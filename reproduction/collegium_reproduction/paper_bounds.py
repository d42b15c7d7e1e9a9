"""The papers' data-dependent bounds: Theorem 3 of PATE (2017) for Laplace, Theorem 6 of the 2018 paper for Gaussian.

Both bound one direction alone, D(M(d)‖M(d′)); the reverse may be larger (docs/privacy.md, section 2). They are
here to reproduce published figures and to stand beside the exact loss. Both depend on the votes only
through q, the probability that the winner is not the top class, so each distinct q is computed once.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collegium_accounting.divergences.grids import log_normal_cdf
from collegium_accounting.divergences.independent import l1_moved, l2_moved, theorem_2
from collegium_accounting.mechanisms.base import Mechanism
from collegium_accounting.mechanisms.confident_gnmax import ConfidentGNMax
from collegium_accounting.mechanisms.gnmax import GNMax
from collegium_accounting.mechanisms.lnmax import LNMax
from collegium_accounting.renyi import FloatArray, check_orders, gaussian_curve
from collegium_accounting.units import IntArray, Unit, checked_counts


def paper_bound(mechanism: Mechanism, counts: IntArray, orders: tuple[float, ...], unit: Unit) -> FloatArray | None:
    """The published data-dependent bound for ``unit``, one direction only, shape ``[queries, orders]``, or None.

    Of Confident-GNMax α/(2σ₁²) + Theorem 6, as if every query were answered. The published accounts weigh Theorem 6 by
    the probability of an answer, which is an expectation and no bound: at high orders it is below the true divergence.

    Parameters
    ----------
    counts : vote histograms, shape ``[queries, classes]``.
    """
    match mechanism:
        case LNMax():
            return theorem_3(counts, mechanism.gamma, orders, unit)
        case GNMax():
            return theorem_6(counts, mechanism.sigma, orders, unit)
        case ConfidentGNMax():
            screening = gaussian_curve(float(unit.votes), mechanism.sigma1, orders).values
            return np.asarray(screening + theorem_6(counts, mechanism.sigma2, orders, unit))
        case _:
            return None


def lemma_4_log_q(counts: ArrayLike, gamma: float) -> FloatArray:
    """PATE Lemma 4: log of q ≥ Pr[LNMax does not release the top class], shape ``[queries]``.

    q = Σ_{i≠i*} (2 + γ·g_i)/(4·e^{γ·g_i}) with g_i the top count minus count i.
    """
    scaled = gamma * _gaps(checked_counts(counts))
    return _log_sum(np.log(2.0 + scaled) - np.log(4.0) - scaled)


def gaussian_log_q(counts: ArrayLike, sigma: float) -> FloatArray:
    """Papernot et al. 2018, Proposition 7: log of q = ½ Σ_{i≠i*} erfc(g_i/(2σ)) ≥ Pr[GNMax ≠ top class]."""
    return _log_sum(log_normal_cdf(-_gaps(checked_counts(counts)) / (np.sqrt(2.0) * sigma)))


def _gaps(histograms: IntArray) -> FloatArray:
    ordered = -np.sort(-histograms, axis=1).astype(np.float64)
    gaps: FloatArray = ordered[:, :1] - ordered[:, 1:]
    return gaps


def _log_sum(terms: FloatArray) -> FloatArray:
    if terms.shape[1] == 0:
        return np.full(terms.shape[0], -np.inf)
    from scipy.special import logsumexp  # takes half a second to load

    total: FloatArray = np.minimum(np.asarray(logsumexp(terms, axis=1)), 0.0)
    return total


def theorem_3(counts: ArrayLike, gamma: float, orders: Sequence[float], unit: Unit | None = None) -> FloatArray:
    """PATE Theorem 3 with Lemma 4, Theorem 2 and the pure bound: the smallest of the three.

    With the release (2γ, 0)-DP and q ≥ Pr[output ≠ i*], for q < (e^{2γ} − 1)/(e^{4γ} − 1) = 1/(e^{2γ} + 1):
    α(λ) ≤ log((1 − q)·((1 − q)/(1 − e^{2γ}q))^λ + q·e^{2γλ}). Divided by λ it bounds the Rényi divergence
    of order λ + 1. A unit of k votes makes the release (2γk, 0)-DP; q is the same.

    Returns
    -------
    Shape ``[queries, orders]``, in nats. One direction only.
    """
    unit = unit or Unit()
    grid = check_orders(orders)
    pure = gamma * l1_moved(unit)
    flat = theorem_2(gamma, grid, unit).values
    log_q, inverse = _distinct(lemma_4_log_q(counts, gamma))
    moments = np.asarray(grid) - 1.0
    result = np.broadcast_to(flat, (log_q.size, flat.size)).copy()
    applies = log_q < -np.logaddexp(pure, 0.0)
    log_q = log_q[applies, None]
    q = np.exp(log_q)
    stays = np.log1p(-q) + moments * (np.log1p(-q) - np.log1p(-np.exp(log_q + pure)))
    bound = np.logaddexp(stays, log_q + pure * moments) / moments
    result[applies] = np.minimum(result[applies], np.maximum(bound, 0.0))
    return result[inverse]


def theorem_6(counts: ArrayLike, sigma: float, orders: Sequence[float], unit: Unit | None = None) -> FloatArray:
    """Papernot et al. 2018, Theorem 6 with μ₂ = σ·√log(1/q) and μ₁ = μ₂ + 1, or the flat bound if smaller.

    With the release (μ, μ·c)-RDP, c = 1/σ² for one vote, q ≥ Pr[output ≠ i*], ε_i = μ_i·c, μ₂ > 1, λ ≤ μ₁ and
    q ≤ e^{(μ₂−1)ε₂}·(μ₁/(μ₁−1)·μ₂/(μ₂−1))^{−μ₂}: D_λ ≤ log((1 − q)·A^{λ−1} + q·B^{λ−1})/(λ − 1) with
    A = (1 − q)/(1 − (q·e^{ε₂})^{(μ₂−1)/μ₂}) and B = e^{ε₁}/q^{1/(μ₁−1)}. Outside these conditions: λ·c. A unit of
    k votes has c = k²/σ² and μ₂ = √(log(1/q)/c).

    Returns
    -------
    Shape ``[queries, orders]``, in nats. One direction only.
    """
    unit = unit or Unit()
    grid = check_orders(orders)
    cost = (l2_moved(unit) / sigma) ** 2 / 2.0
    flat = np.asarray(grid) * cost
    log_q, inverse = _distinct(gaussian_log_q(counts, sigma))
    result = np.broadcast_to(flat, (log_q.size, flat.size)).copy()
    certain = log_q == -np.inf
    result[certain] = 0.0
    mu2 = np.sqrt(np.where(certain, 0.0, -log_q) / cost)
    mu1 = mu2 + 1.0
    usable = (mu2 > 1.0) & ~certain
    usable[usable] &= log_q[usable] <= (mu2[usable] - 1.0) * mu2[usable] * cost - mu2[usable] * (
        np.log(mu1[usable] / (mu1[usable] - 1.0)) + np.log(mu2[usable] / (mu2[usable] - 1.0))
    )
    log_q, mu1, mu2 = log_q[usable, None], mu1[usable, None], mu2[usable, None]
    inner = (log_q + mu2 * cost) * (mu2 - 1.0) / mu2
    good = inner < 0.0
    log_a = np.log1p(-np.exp(log_q)) - np.log1p(-np.exp(np.where(good, inner, -1.0)))
    log_b = mu1 * cost - log_q / (mu1 - 1.0)
    power = np.asarray(grid) - 1.0
    bound = np.logaddexp(np.log1p(-np.exp(log_q)) + power * log_a, log_q + power * log_b) / power
    allowed: NDArray[np.bool_] = good & (np.asarray(grid) <= mu1)
    result[usable] = np.where(allowed, np.clip(bound, 0.0, flat), flat)
    return result[inverse]


def _distinct(log_q: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
    values, inverse = np.unique(log_q, return_inverse=True)
    return values, inverse.reshape(-1)
