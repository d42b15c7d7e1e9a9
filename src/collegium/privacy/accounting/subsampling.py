"""Rényi cost of Gaussian noise on a Poisson sample of the records.

Each record enters the sample independently with probability γ; one more record moves the noisy sum by at most ``l2``.
Mironov, Talwar, Zhang 2019, "Rényi Differential Privacy of the Sampled Gaussian Mechanism": the worst pair is N(0, σ²)
against (1 − γ)·N(0, σ²) + γ·N(l2, σ²), and the larger direction D_α(mixture‖Gaussian) (their Theorem 5).
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln, logsumexp

from collegium.errors import ConfigurationError
from collegium.privacy.renyi import RenyiCurve, gaussian_curve


def sampled_gaussian_curve(l2: float, sigma: float, sampling_rate: float, orders: Sequence[float]) -> RenyiCurve:
    """Add/remove cost of Gaussian noise, continuous or discrete, on a sum over a Poisson sample.

    Exact at whole orders, by their Section 3.3, for both kinds of noise: it needs E[e^{j·loss}] of a whole shift at
    whole numbers j alone, which is e^{j(j−1)·l2²/2σ²} for either. Between whole orders, and from 1 to 2, a chord of
    (α − 1)·D_α, which is convex in α and 0 at α = 1. Never more than without sampling.

    Parameters
    ----------
    l2 : most that one record moves the sum.
    sigma : standard deviation of the noise.
    sampling_rate : γ, in [0, 1].
    orders : Rényi orders, each above 1.

    Raises
    ------
    ConfigurationError : a rate outside [0, 1].
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
    log_moments = [_log_moment(sampling_rate, sigma / l2, int(order)) for order in knots]
    joined = np.interp(alpha, knots, log_moments) / (alpha - 1.0)
    return RenyiCurve(flat.orders, np.minimum(joined, flat.values))


def _log_moment(rate: float, noise: float, alpha: int) -> float:
    """(α − 1)·D_α = log(1 + Σ_{j ≥ 2} C(α, j)·(1 − γ)^{α−j}·γ^j·(e^{j(j−1)/2σ²} − 1)): every term is positive."""
    j = np.arange(2.0, alpha + 1.0)
    if not j.size:
        return 0.0
    loss = j * (j - 1.0) / (2.0 * noise * noise)
    log_chosen = gammaln(alpha + 1.0) - gammaln(j + 1.0) - gammaln(alpha - j + 1.0)
    log_terms = log_chosen + (alpha - j) * math.log1p(-rate) + j * math.log(rate) + loss + np.log(-np.expm1(-loss))
    return float(np.logaddexp(0.0, logsumexp(log_terms)))
