"""The definitions, evaluated the slow way and sharing no code with the accountant.

Every neighbour is its own histogram, every winning probability its own integral on panels split at each
count, every divergence its own sum in 50-digit arithmetic.
"""

from __future__ import annotations

import itertools
import math
from functools import cache

import mpmath
import numpy as np
from scipy.stats import dlaplace, norm

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def neighbours(histogram, adjacency="replace", every=True):
    """All histograms with one vote moved, or one added or removed.

    Unless ``every``, one per pair of counts touched: without ties, classes of equal count are alike.
    """
    found, seen = set(), set()
    size = len(histogram)
    for a in range(-1, size):
        for b in range(-1, size):
            if a == b or ((a < 0 or b < 0) != (adjacency == "add-remove")):
                continue
            if a >= 0 and histogram[a] == 0:
                continue
            touched = (histogram[a] if a >= 0 else None, histogram[b] if b >= 0 else None)
            if not every and touched in seen:
                continue
            seen.add(touched)
            other = list(histogram)
            if a >= 0:
                other[a] -= 1
            if b >= 0:
                other[b] += 1
            found.add(tuple(int(x) for x in other))
    return sorted(found)


def winning_law(histogram, kind, scale):
    """Probability that each class wins; the lowest index wins ties of discrete noise."""
    counts = np.asarray(histogram, dtype=float)
    if kind == "gumbel":
        score = np.exp((counts - counts.max()) / scale)
        return score / score.sum()
    if kind.startswith("discrete"):
        return _discrete_law(counts, kind, scale)
    span = 45.0 * scale if kind == "laplace" else 12.0 * scale
    edges = np.unique(np.concatenate([counts, [counts.min() - span, counts.max() + span]]))
    width = scale / 2.0
    panels = [np.linspace(lo, hi, max(2, 1 + math.ceil((hi - lo) / width))) for lo, hi in itertools.pairwise(edges)]
    lo = np.concatenate([p[:-1] for p in panels])
    hi = np.concatenate([p[1:] for p in panels])
    t = (lo[:, None] + (hi - lo)[:, None] * (_NODES + 1) / 2).ravel()
    w = ((hi - lo)[:, None] * _WEIGHTS / 2).ravel()
    cdf = [_cdf(t - c, kind, scale) for c in counts]
    law = []
    for i, c in enumerate(counts):
        z = (t - c) / scale
        pdf = np.exp(-np.abs(z)) / (2 * scale) if kind == "laplace" else norm.pdf(z) / scale
        others = np.prod([cdf[j] for j in range(len(counts)) if j != i], axis=0) if len(counts) > 1 else 1.0
        law.append(float((w * pdf * others).sum()))
    return np.array(law)


def _cdf(x, kind, scale):
    if kind == "laplace":
        return np.where(x < 0, 0.5 * np.exp(np.minimum(x, 0) / scale), 1 - 0.5 * np.exp(-np.abs(x) / scale))
    return norm.cdf(x / scale)


def _discrete_law(counts, kind, scale):
    span = math.ceil(45.0 * scale if kind == "discrete-laplace" else 12.0 * scale)
    t = np.arange(int(counts.min()) - span, int(counts.max()) + span + 1)
    support = np.arange(-3 * span - int(np.ptp(counts)), 3 * span + int(np.ptp(counts)) + 1)
    if kind == "discrete-laplace":
        mass = dlaplace.pmf(support, 1 / scale)
        cumulative = dlaplace.cdf(support, 1 / scale)
    else:
        mass = np.exp(-0.5 * (support / scale) ** 2)
        mass /= mass.sum()
        cumulative = np.cumsum(mass)
    law = []
    for i, c in enumerate(counts.astype(int)):
        term = mass[t - c - support[0]].copy()
        for j, d in enumerate(counts.astype(int)):
            if j != i:
                term *= cumulative[t - d - (1 if j < i else 0) - support[0]]
        law.append(float(term.sum()))
    return np.array(law)


def divergence(p, q, order):
    """D_α(P‖Q) of two finite laws, renormalised, straight from the definition in extended precision."""
    p, q = np.asarray(p, dtype=np.longdouble), np.asarray(q, dtype=np.longdouble)
    p, q = p / p.sum(), q / q.sum()
    return float(np.log(np.exp(order * np.log(p) + (1 - order) * np.log(q)).sum()) / (order - 1))


def precise_divergence(p, q, order):
    """The same in 30 digits, for divergences far below the rounding of doubles."""
    with mpmath.workdps(30):
        total = mpmath.fsum(a**order * b ** (1 - mpmath.mpf(order)) for a, b in zip(p, q, strict=True))
        return float(mpmath.log(total) / (mpmath.mpf(order) - 1))


def exact_loss(
    histogram, kind, scale, orders, adjacency="replace", law=winning_law, divergence=divergence, directions="both"
):
    """Largest divergence to a neighbour at each order."""
    base = law(histogram, kind, scale)
    worst = np.zeros(len(orders))
    for other in neighbours(histogram, adjacency, every=kind.startswith("discrete")):
        there = law(other, kind, scale)
        for k, order in enumerate(orders):
            if directions != "reverse":
                worst[k] = max(worst[k], divergence(base, there, order))
            if directions != "forward":
                worst[k] = max(worst[k], divergence(there, base, order))
    return worst


def precise_gaussian_law(histogram, _kind, sigma):
    """Winning probabilities under Gaussian noise in 30 digits; for tiny probabilities and few classes."""
    with mpmath.workdps(30):
        counts = [mpmath.mpf(c) for c in histogram]
        below = cache(lambda t, j: mpmath.ncdf(t, counts[j], sigma))  # the integrals share their points

        def density(t, i):
            value = mpmath.npdf(t, counts[i], sigma)
            for j in range(len(counts)):
                if j != i:
                    value *= below(t, j)
            return value

        low, high = min(counts) - 25 * sigma, max(counts) + 25 * sigma
        points = [low + (high - low) * k / 12 for k in range(13)]
        return [mpmath.quad(lambda t, i=i: density(t, i), points) for i in range(len(counts))]
