"""Rényi divergence between two finite laws that are almost equal, without losing digits.

With x = p/q − 1 per outcome, Σ q·x = 0, so the moment is Σ q·(p/q)^α = 1 + Σ q·φ(x) with
φ(x) = (1 + x)^α − 1 − αx ≥ 0: every term is positive and nothing cancels, however small the divergence.
"""

import numpy as np

from collegium.privacy.renyi import FloatArray

_SERIES_BELOW = 1e-3
_LINEAR_BELOW = 500.0


def renyi_divergences(log_q: FloatArray, log_ratio: FloatArray, weight: FloatArray, orders: FloatArray) -> FloatArray:
    """D_α(P‖Q) for many pairs of laws.

    Parameters
    ----------
    log_q : shape ``[pairs, outcomes]``, log Q of one outcome.
    log_ratio : shape ``[pairs, outcomes]``, log P − log Q.
    weight : shape ``[pairs, outcomes]``, how many equal outcomes the entry stands for, 0 for none.
    orders : shape ``[orders]``.

    Returns
    -------
    Shape ``[pairs, orders]``, in nats.
    """
    result = np.empty((log_q.shape[0], orders.size))
    present = weight > 0
    ratio = np.where(present, log_ratio, 0.0)
    log_mass = np.where(present, log_q, -np.inf) + np.log(np.where(present, weight, 1.0))
    mass = np.exp(log_mass)
    largest = max(float(np.abs(ratio).max(initial=0.0)), 1e-300)
    linear = orders * largest < _LINEAR_BELOW
    x = np.expm1(np.minimum(ratio, _LINEAR_BELOW))
    for k, alpha in enumerate(orders):
        if linear[k]:
            result[:, k] = np.log1p(np.einsum("ij,ij->i", mass, _phi(alpha, ratio, x))) / (alpha - 1.0)
        else:
            result[:, k] = _log_moments(alpha, log_mass, ratio, x) / (alpha - 1.0)
    return np.maximum(result, 0.0)


def _phi(alpha: float, ratio: FloatArray, x: FloatArray) -> FloatArray:
    """(1 + x)^α − 1 − αx from L = log(1 + x), by its series where the difference would cancel."""
    direct = np.expm1(alpha * ratio)
    direct -= alpha * x
    small = np.abs(ratio) * alpha < _SERIES_BELOW
    if small.any():
        y = x[small]
        tail = 1.0 + (alpha - 4.0) / 5.0 * y
        tail = 1.0 + (alpha - 3.0) / 4.0 * y * tail
        tail = 1.0 + (alpha - 2.0) / 3.0 * y * tail
        direct[small] = 0.5 * alpha * (alpha - 1.0) * y * y * tail
    return np.maximum(direct, 0.0)


def _log_moments(alpha: float, log_mass: FloatArray, ratio: FloatArray, x: FloatArray) -> FloatArray:
    """log Σ q·(p/q)^α where single terms (1 + x)^α may overflow although their products with q need not."""
    exponent = alpha * ratio
    huge = exponent > _LINEAR_BELOW
    log_terms = log_mass + exponent
    ordinary = np.exp(log_mass) * _phi(alpha, np.where(huge, 0.0, ratio), np.where(huge, 0.0, x))
    moment = np.where(huge, np.exp(np.minimum(log_terms, 600.0)), ordinary).sum(axis=1)
    peak = log_terms.max(axis=1, keepdims=True)
    log_sum = peak[:, 0] + np.log(np.exp(log_terms - peak).sum(axis=1))
    total: FloatArray = np.where(moment < 1e250, np.log1p(moment), log_sum)
    return total
