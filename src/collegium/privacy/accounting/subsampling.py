"""Rényi cost of Gaussian noise on a Poisson sample of the records.

Each record enters the sample independently with probability γ; one more record moves the noisy sum by at
most ``l2``. Mironov, Talwar, Zhang 2019, "Rényi Differential Privacy of the Sampled Gaussian Mechanism":
the pair N(0, σ²) against (1 − γ)·N(0, σ²) + γ·N(1, σ²). Their series for fractional orders converges too
slowly to be trusted at small γ or large σ, so the moment is integrated instead, for every order alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln, logsumexp

from collegium.errors import ConfigurationError
from collegium.privacy.accounting.divergence import renyi_divergences
from collegium.privacy.renyi import FloatArray, RenyiCurve, gaussian_curve

_REACH = 12.0
_NODES_AT_MOST = 20_000_000


def sampled_gaussian_curve(l2: float, sigma: float, sampling_rate: float, orders: Sequence[float]) -> RenyiCurve:
    """Add/remove cost of N(0, σ²) on a sum over a Poisson sample; ``l2`` bounds one record's share of the sum.

    D_α(mixture‖Gaussian), the larger of the two directions (their Theorem 5). It is attained by a record
    that moves the sum by all of ``l2`` and bounds every other record.
    """
    if not 0.0 <= sampling_rate <= 1.0:
        raise ConfigurationError(f"the sampling rate must lie in [0, 1]; got {sampling_rate}")
    flat = gaussian_curve(l2, sigma, orders)
    if sampling_rate == 0.0 or l2 == 0.0:
        return RenyiCurve.zero(flat.orders)
    if sampling_rate == 1.0:
        return flat
    values = [_divergence(sampling_rate, sigma / l2, alpha) for alpha in flat.orders]
    return RenyiCurve(flat.orders, np.minimum(np.asarray(values), flat.values))


def _divergence(rate: float, noise: float, alpha: float) -> float:
    """Trapezoid rule for E_{z ~ N(0, σ²)}[(1 − γ + γ·e^{(2z − 1)/2σ²})^α].

    The integrand has its nearest singularities πσ² off the real line and Gaussian tails, so steps of
    min(σ/8, σ²/2) leave an error below e^{−39}. Mass moves right up to z = α; 12σ more covers the tail.
    """
    step = min(noise / 8.0, noise * noise / 2.0)
    low, high = -_REACH * noise, alpha + _REACH * noise
    if (high - low) / step > _NODES_AT_MOST:
        return math.inf
    z: FloatArray = np.arange(low, high, step)
    log_weight = -0.5 * (z / noise) ** 2 + math.log(step / (noise * math.sqrt(2.0 * math.pi)))
    shift = (2.0 * z - 1.0) / (2.0 * noise * noise)
    near = np.log1p(rate * np.expm1(np.minimum(shift, 1.0)))
    log_ratio = np.where(shift < 1.0, near, np.logaddexp(math.log1p(-rate), math.log(rate) + shift))
    ones = np.ones((1, z.size))
    return float(renyi_divergences(log_weight[None], log_ratio[None], ones, np.array([alpha]))[0, 0])


def sampled_gaussian_bound(l2: float, sigma: float, sampling_rate: float, orders: Sequence[float]) -> RenyiCurve:
    """The same cost by a closed form that is quick at any noise and holds for the discrete Gaussian as well.

    At a whole order α it is 1/(α − 1)·log Σ_j C(α, j)·(1 − γ)^{α−j}·γ^j·e^{j(j−1)·l2²/2σ²} (Mironov, Talwar, Zhang
    2019, Section 3.3), and no more than without sampling: E[e^{j·loss}] of a whole shift is the same for continuous
    and discrete noise. Another order costs what the next whole one costs, since Rényi divergence grows with its order.
    """
    flat = gaussian_curve(l2, sigma, orders)
    if sampling_rate >= 1.0:
        return flat
    noise = sigma / l2
    costs = {order: _whole_order(sampling_rate, noise, order) for order in {math.ceil(order) for order in flat.orders}}
    values = np.array([costs[math.ceil(order)] for order in flat.orders])
    return RenyiCurve(flat.orders, np.minimum(values, flat.values))


def _whole_order(rate: float, noise: float, alpha: int) -> float:
    j = np.arange(alpha + 1.0)
    log_chosen = gammaln(alpha + 1.0) - gammaln(j + 1.0) - gammaln(alpha - j + 1.0)
    log_terms = log_chosen + (alpha - j) * math.log1p(-rate) + j * math.log(rate) + j * (j - 1.0) / (2.0 * noise**2)
    return max(0.0, float(logsumexp(log_terms))) / (alpha - 1.0)
