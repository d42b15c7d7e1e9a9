"""Exact data-dependent loss: the largest Rényi divergence to any neighbouring histogram, in both directions.

It is the definition (Private-kNN 2020, Definition 6) that Theorem 3 of PATE and Theorem 6 of the 2018
paper only bound, and only in one direction. The value depends on the votes: it is itself secret.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collegium_accounting.divergences.grids import NoiseLaw, ThresholdTestLaw
from collegium_accounting.renyi import FloatArray, check_orders
from collegium_accounting.units import Adjacency, IntArray, checked_counts
from collegium_reproduction.neighbouring_laws import Levels, Neighbourhood, levels_of, neighbourhood

_SERIES_BELOW = 1e-3
_LINEAR_BELOW = 500.0


def renyi_divergences(log_q: FloatArray, log_ratio: FloatArray, weight: FloatArray, orders: FloatArray) -> FloatArray:
    """D_α(P‖Q) for many pairs of finite laws, no digits lost where they are almost equal.

    With x = p/q − 1 per outcome, Σ q·x = 0, so the moment is Σ q·(p/q)^α = 1 + Σ q·φ(x) with
    φ(x) = (1 + x)^α − 1 − αx ≥ 0: every term is positive and nothing cancels, however small the divergence.

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


Directions = Literal["both", "forward", "reverse"]

_COARSE_STRIDE = 6
_CHUNK_ENTRIES = 3_000_000


def exact_divergences(
    counts: ArrayLike,
    noise: NoiseLaw,
    orders: Sequence[float],
    *,
    adjacency: Adjacency = Adjacency.REPLACE,
    screen: ThresholdTestLaw | None = None,
    directions: Directions = "both",
) -> FloatArray:
    """Rényi loss of the noisy argmax on each histogram, in nats.

    Parameters
    ----------
    counts : vote counts, shape ``[queries, classes]``.
    noise : the noise on each count. With discrete noise the lowest index wins a tie, as in a release.
    orders : Rényi orders, ascending.
    adjacency : which histograms are neighbours (one vote moved, or one added or removed).
    screen : the threshold of a confident mechanism; the outcome "no label" is then one more outcome.
    directions : "both" is the privacy loss; "forward" is D(M(d)‖M(d′)) alone, as the papers bound it.

    Returns
    -------
    Shape ``[queries, orders]``. Equal histograms are computed once.
    """
    histograms = checked_counts(counts)
    grid = np.asarray(check_orders(orders))
    canonical = histograms if noise.discrete else np.sort(histograms, axis=1)
    distinct, inverse = np.unique(canonical, axis=0, return_inverse=True)
    result = np.zeros((distinct.shape[0], grid.size))
    levels = levels_of(distinct, noise)
    moves = (levels.count.shape[1] + 1) ** 2
    step = max(1, _CHUNK_ENTRIES // (2 * moves * (levels.count.shape[1] + 3)))
    for start in range(0, distinct.shape[0], step):
        part = Levels(levels.count[start : start + step], levels.multiplicity[start : start + step], levels.classes)
        around = neighbourhood(part, noise, adjacency)
        pairs = _pairs(part, around, screen, directions)
        result[start : start + step] = _largest(pairs, part.count.shape[0], grid)
    return result[inverse.reshape(-1)]


@dataclass(frozen=True)
class _Pairs:
    """Pairs of laws (P, Q): ``query`` says whose, the rest is as renyi_divergences wants it."""

    query: IntArray
    log_q: FloatArray
    log_ratio: FloatArray
    weight: FloatArray

    def where(self, chosen: NDArray[np.bool_]) -> "_Pairs":
        return _Pairs(self.query[chosen], self.log_q[chosen], self.log_ratio[chosen], self.weight[chosen])

    def divergences(self, orders: FloatArray) -> FloatArray:
        return renyi_divergences(self.log_q, self.log_ratio, self.weight, orders)


def _pairs(levels: Levels, around: Neighbourhood, screen: ThresholdTestLaw | None, directions: Directions) -> _Pairs:
    width = levels.count.shape[1]
    query, move = np.nonzero(around.valid)
    loses, gains = around.loses[move], around.gains[move]
    row = np.arange(query.size)
    weight = np.zeros((query.size, width + 3))
    weight[:, :width] = levels.multiplicity[query]
    for column, moved in ((width, loses), (width + 1, gains)):
        real = moved < width
        weight[row[real], moved[real]] -= 1.0
        weight[real, column] = 1.0
    log_base = np.zeros((query.size, width + 3))
    padded = np.concatenate([around.log_base, np.zeros((around.log_base.shape[0], 1))], axis=1)
    log_base[:, :width] = around.log_base[query]
    log_base[:, width], log_base[:, width + 1] = padded[query, loses], padded[query, gains]
    log_ratio = np.zeros((query.size, width + 3))
    log_ratio[:, : width + 2] = around.log_ratio[query, move]
    if screen is not None:
        top, top_after = _highest(levels, query, loses, gains)
        # Every label needs the threshold passed as well; the last outcome is the abstention.
        passes, fails = screen.log_pass(top), screen.log_fail(top)
        log_base[:, :-1] += passes[:, None]
        log_ratio[:, :-1] += (screen.log_pass(top_after) - passes)[:, None]
        log_base[:, -1], log_ratio[:, -1] = fails, screen.log_fail(top_after) - fails
        weight[:, -1] = 1.0
    forward = _Pairs(query, log_base + log_ratio, -log_ratio, weight)
    reverse = _Pairs(query, log_base, log_ratio, weight)
    if directions != "both":
        return forward if directions == "forward" else reverse
    return _Pairs(
        np.concatenate([query, query]),
        np.concatenate([forward.log_q, reverse.log_q]),
        np.concatenate([forward.log_ratio, reverse.log_ratio]),
        np.concatenate([weight, weight]),
    )


def _highest(levels: Levels, query: IntArray, loses: IntArray, gains: IntArray) -> tuple[IntArray, IntArray]:
    """The largest count before each move and after it, shape ``[pairs]`` each."""
    row = np.arange(levels.count.shape[0])
    top_level = np.where(levels.multiplicity > 0, levels.count, -1).argmax(axis=1)
    top = levels.count[row, top_level]
    at_top = (levels.multiplicity * (levels.count == top[:, None])).sum(axis=1)
    count = np.concatenate([levels.count, np.full((row.size, 1), -2)], axis=1)
    from_top = count[query, loses] == top[query]
    to_top = count[query, gains] == top[query]
    falls = from_top & (at_top[query] == 1) & (count[query, gains] != top[query] - 1)
    return top[query], top[query] + to_top.astype(np.int64) - falls


def _largest(pairs: _Pairs, queries: int, grid: FloatArray) -> FloatArray:
    """Largest divergence per query and order over its pairs.

    (α − 1)·D_α is convex in α and zero at α = 1. On a coarse grid of orders that bounds every pair from
    above (chords) and the largest from below (chords extended), which rules most pairs out before the
    fine grid is computed; no pair that could be the largest anywhere is dropped.
    """
    result = np.zeros((queries, grid.size))
    if pairs.query.size == 0:
        return result
    if grid.size > 2 * _COARSE_STRIDE:
        coarse = np.unique(np.concatenate([np.arange(0, grid.size, _COARSE_STRIDE), [grid.size - 1]]))
        values = pairs.divergences(grid[coarse])
        np.maximum.at(result, (pairs.query[:, None], coarse[None, :]), values)
        pairs = pairs.where(_may_lead(pairs.query, values, grid, coarse, queries))
    values = pairs.divergences(grid)
    np.maximum.at(result, (pairs.query[:, None], np.arange(grid.size)[None, :]), values)
    return result


def _may_lead(
    query: IntArray, values: FloatArray, grid: FloatArray, coarse: IntArray, queries: int
) -> NDArray[np.bool_]:
    s = np.concatenate([[0.0], grid[coarse] - 1.0])
    moment = np.concatenate([np.zeros((values.shape[0], 1)), values * s[1:]], axis=1)
    keep = np.zeros(values.shape[0], dtype=bool)
    for k in range(1, s.size - 1):
        inner = grid[coarse[k - 1] + 1 : coarse[k]] - 1.0
        if inner.size == 0:
            continue
        slope = [(moment[:, j + 1] - moment[:, j]) / (s[j + 1] - s[j]) for j in range(k - 1, min(k + 2, s.size - 1))]
        low = moment[:, [k]] + slope[0][:, None] * (inner - s[k])
        if len(slope) > 2:
            low = np.maximum(low, moment[:, [k + 1]] - slope[2][:, None] * (s[k + 1] - inner))
        lead = np.full((queries, inner.size), -np.inf)
        np.maximum.at(lead, query, low)
        high = moment[:, [k]] + slope[1][:, None] * (inner - s[k])
        keep |= (high >= lead[query] * (1.0 - 1e-9)).any(axis=1)
    return keep
