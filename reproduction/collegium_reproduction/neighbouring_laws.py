"""The law of the noisy argmax of every histogram that neighbours one, from one pass over a grid.

A neighbour takes one vote from a class of level a and gives one to a class of level b (`Levels`). Only
two factors of each integrand change, by ratios u_a(t) and v_b(t), so all pairs (a, b) are one matrix product per level:
base integrand × u_a × v_b, summed over the grid.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from collegium_accounting.divergences.grids import (
    NoiseLaw,
    Tables,
    gaussian_range,
    gaussian_step,
    log_normal_cdf,
    tables,
)
from collegium_accounting.renyi import FloatArray
from collegium_accounting.units import Adjacency, IntArray

_SAFE_LOG_RATIO = 300.0


@dataclass(frozen=True)
class Levels:
    """Histograms of one batch as distinct counts: ``count`` and ``multiplicity``, shape ``[queries, levels]``.

    Under continuous noise equal counts win equally often, and the cost depends on the number of levels. Under discrete
    noise ties go to the lowest index, so each class is its own level.

    Levels of multiplicity 0 are padding. ``classes`` is the number of classes of every histogram.
    """

    count: IntArray
    multiplicity: IntArray
    classes: int


def levels_of(histograms: IntArray, noise: NoiseLaw) -> Levels:
    """Gather equal counts, unless the noise is discrete; ``histograms`` has the shape ``[queries, classes]``."""
    queries, classes = histograms.shape
    if noise.discrete:
        return Levels(histograms, np.ones_like(histograms), classes)
    ordered = -np.sort(-histograms, axis=1)
    starts = np.ones_like(ordered, dtype=bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    level = np.cumsum(starts, axis=1) - 1
    width = int(level.max(initial=0)) + 1
    count = np.zeros((queries, width), dtype=np.int64)
    multiplicity = np.zeros((queries, width), dtype=np.int64)
    row = np.arange(queries)[:, None]
    count[row, level] = ordered
    np.add.at(multiplicity, (np.broadcast_to(row, level.shape), level), 1)
    return Levels(count, multiplicity, classes)


def win_log_probabilities(levels: Levels, table: Tables) -> FloatArray:
    """log Pr[one class of each level wins], shape ``[queries, levels]``, in log space throughout."""
    below, upto = table.below[levels.count], table.upto[levels.count]
    density = table.density[levels.count]
    multiplicity = levels.multiplicity[:, :, None]
    before = np.cumsum(multiplicity * below, axis=1) - multiplicity * below
    after = np.cumsum((multiplicity * upto)[:, ::-1], axis=1)[:, ::-1] - upto
    integrand = density + before + after
    peak = integrand.max(axis=2)
    total: FloatArray = peak + np.log(np.exp(integrand - peak[:, :, None]).sum(axis=2))
    return total


@lru_cache(maxsize=32)
def tables_of(noise: NoiseLaw, largest: int, classes: int) -> Tables:
    """`grids.tables`, of the papers' continuous noise too: ``density`` is then with the weights of a quadrature.

    Each integrand is log-concave. Gaussian: the trapezoid rule. Laplace: kinks only at integers, so Gauss-Legendre on
    unit cells; left of 0 the integrand is a pure exponential and right of the largest count a polynomial in e^{−γt}:
    both exact.
    """
    counts = np.arange(largest + 2, dtype=np.float64)[:, None]
    if noise.kind == "gaussian":
        return _gaussian(noise.scale, counts, classes)
    return _laplace(1.0 / noise.scale, counts, classes) if noise.kind == "laplace" else tables(noise, largest, classes)


def _gaussian(sigma: float, counts: FloatArray, classes: int) -> Tables:
    low, high = gaussian_range(sigma, counts[-1, 0], classes)
    step = gaussian_step(sigma, classes)
    z = (np.arange(low, high + step, step) - counts) / sigma
    density = -0.5 * z * z + math.log(step / (sigma * math.sqrt(2.0 * math.pi)))
    upto = log_normal_cdf(z)
    return Tables(density, upto, upto)


def _laplace(gamma: float, counts: FloatArray, classes: int) -> Tables:
    largest = int(counts[-1, 0])
    cell_nodes, cell_weights = np.polynomial.legendre.leggauss(5)
    pieces = max(1, math.ceil(gamma * classes / 1.5))
    starts = np.arange(largest * pieces) / pieces
    middle = (starts[:, None] + (cell_nodes + 1.0) / (2.0 * pieces)).ravel()
    middle_weights = np.tile(cell_weights / (2.0 * pieces), largest * pieces)
    tail_nodes, tail_weights = np.polynomial.legendre.leggauss((classes + 2) // 2)
    y = (tail_nodes + 1.0) / 2.0
    points = np.concatenate([[0.0], middle, largest - np.log(y) / gamma])
    weights = np.concatenate([[1.0 / (gamma * classes)], middle_weights, tail_weights / (2.0 * gamma * y)])
    z = gamma * (points - counts)
    density = -np.abs(z) + math.log(gamma / 2.0) + np.log(weights)
    upto = np.where(z < 0, z - math.log(2.0), np.log1p(-0.5 * np.exp(-np.abs(z))))
    return Tables(density, upto, upto)


@dataclass(frozen=True)
class Neighbourhood:
    """Laws of a batch of histograms and of all their neighbours.

    Attributes
    ----------
    loses, gains : shape ``[moves]``, the level that loses and the one that gains a vote; ``levels`` for none.
    valid : shape ``[queries, moves]``, whether the move exists in the histogram.
    log_base : shape ``[queries, levels]``, log Pr[one class of the level wins].
    log_ratio : shape ``[queries, moves, levels + 2]``, log Pr'[wins] − log Pr[wins] for an untouched class of
        each level, for the class that loses and for the class that gains.
    """

    loses: IntArray
    gains: IntArray
    valid: NDArray[np.bool_]
    log_base: FloatArray
    log_ratio: FloatArray


def neighbourhood(levels: Levels, noise: NoiseLaw, adjacency: Adjacency) -> Neighbourhood:
    """Base and neighbouring laws for every move that ``adjacency`` allows."""
    loses, gains = _moves(levels.count.shape[1], adjacency)
    valid = _valid(levels, loses, gains)
    if noise.kind == "gumbel":
        log_base, log_ratio = _softmax(levels, 1.0 / noise.scale, loses, gains)
    else:
        table = tables_of(noise, int(levels.count.max(initial=0)), levels.classes)
        if _steepest(table, noise) < _SAFE_LOG_RATIO:
            log_base, log_ratio = _by_products(levels, table, loses, gains)
        else:
            log_base, log_ratio = _one_by_one(levels, table, loses, gains)
    return Neighbourhood(loses, gains, valid, log_base, log_ratio)


def _moves(width: int, adjacency: Adjacency) -> tuple[IntArray, IntArray]:
    level = np.arange(width)
    if adjacency is Adjacency.REPLACE:
        return np.repeat(level, width), np.tile(level, width)
    none = np.full(width, width)
    return np.concatenate([level, none]), np.concatenate([none, level])


def _padded(values: IntArray, fill: int) -> IntArray:
    return np.concatenate([values, np.full((values.shape[0], 1), fill)], axis=1)


def _valid(levels: Levels, loses: IntArray, gains: IntArray) -> NDArray[np.bool_]:
    present = _padded(levels.multiplicity, 1)
    has_vote = _padded(levels.count, 1) > 0
    enough = np.where(loses == gains, 2, 1)
    return (present[:, loses] >= enough) & (present[:, gains] >= 1) & has_vote[:, loses]


def _steepest(table: Tables, noise: NoiseLaw) -> float:
    """Largest log-ratio that a one-vote shift can cause on the grid."""
    if noise.kind == "laplace" or noise.kind == "discrete-laplace":
        return 2.0 / noise.scale
    return 2.0 * float(np.abs(np.diff(table.density[[0, 1, -2, -1]], axis=0)[[0, 2]]).max())


def _by_products(levels: Levels, table: Tables, loses: IntArray, gains: IntArray) -> tuple[FloatArray, FloatArray]:
    """All neighbouring laws as matrix products on the grid."""
    queries, width = levels.count.shape
    ratios = _ShiftRatios.of(table)
    log_base = np.empty((queries, width))
    log_ratio = np.zeros((queries, loses.size, width + 2))
    chunk = max(1, 2_000_000 // (table.density.shape[1] * (width + 1) * 4))
    for start in range(0, queries, chunk):
        part = slice(start, start + chunk)
        some = Levels(levels.count[part], levels.multiplicity[part], levels.classes)
        log_base[part], log_ratio[part] = _products_of_chunk(some, table, ratios, loses, gains)
    return log_base, log_ratio


@dataclass(frozen=True)
class _ShiftRatios:
    """How each factor changes when its count loses or gains one vote; rows by the count before the move."""

    density_loses: FloatArray
    density_gains: FloatArray
    below_loses: FloatArray
    below_gains: FloatArray
    upto_loses: FloatArray
    upto_gains: FloatArray

    @classmethod
    def of(cls, table: Tables) -> "_ShiftRatios":
        def loses(rows: FloatArray) -> FloatArray:
            shifted: FloatArray = np.exp(np.concatenate([rows[:1], rows[:-1]]) - rows)
            return shifted

        def gains(rows: FloatArray) -> FloatArray:
            shifted: FloatArray = np.exp(np.concatenate([rows[1:], rows[-1:]]) - rows)
            return shifted

        same = table.below is table.upto
        upto = loses(table.upto), gains(table.upto)
        below = upto if same else (loses(table.below), gains(table.below))
        return cls(loses(table.density), gains(table.density), *below, *upto)


def _products_of_chunk(
    levels: Levels, table: Tables, ratios: _ShiftRatios, loses: IntArray, gains: IntArray
) -> tuple[FloatArray, FloatArray]:
    count, weight = levels.count, levels.multiplicity[:, :, None]
    width, points = count.shape[1], table.density.shape[1]
    log_base, log_ratio = np.empty(count.shape), np.zeros((len(count), loses.size, width + 2))
    upto = table.upto[count]
    below = upto if table.below is table.upto else table.below[count]
    after = np.cumsum((weight * upto)[:, ::-1], axis=1)[:, ::-1] - upto
    before = np.cumsum(weight * below, axis=1) - weight * below
    u = np.ones((count.shape[0], width + 1, points))
    v = np.ones((count.shape[0], width + 1, points))
    u[:, :width] = ratios.upto_loses[count]
    v[:, :width] = ratios.upto_gains[count]
    for i in range(width):
        integrand = table.density[count[:, i]] + before[:, i] + after[:, i]
        peak = integrand.max(axis=1)
        integrand = np.exp(integrand - peak[:, None])
        total = integrand.sum(axis=1)
        log_base[:, i] = peak + np.log(total)
        moved = np.matmul(u * integrand[:, None, :], v.transpose(0, 2, 1))[:, loses, gains]
        log_ratio[:, :, i] = np.log(moved / total[:, None])
        lost = integrand * ratios.density_loses[count[:, i]]
        gained = integrand * ratios.density_gains[count[:, i]]
        as_loser = np.log(np.matmul(v, lost[:, :, None])[:, :, 0] / total[:, None])
        as_gainer = np.log(np.matmul(u, gained[:, :, None])[:, :, 0] / total[:, None])
        log_ratio[:, loses == i, width] = as_loser[:, gains[loses == i]]
        log_ratio[:, gains == i, width + 1] = as_gainer[:, loses[gains == i]]
        # From the next level on, level i stands before the winner: a tie goes to it.
        u[:, i] = ratios.below_loses[count[:, i]]
        v[:, i] = ratios.below_gains[count[:, i]]
    return log_base, log_ratio


def _one_by_one(levels: Levels, table: Tables, loses: IntArray, gains: IntArray) -> tuple[FloatArray, FloatArray]:
    """Each neighbour as its own histogram, in log space: slow, for noise below about one vote."""
    width = levels.count.shape[1]
    log_base = win_log_probabilities(levels, table)
    log_ratio = np.zeros((levels.count.shape[0], loses.size, width + 2))
    for k, (a, b) in enumerate(zip(loses.tolist(), gains.tolist(), strict=True)):
        # The two moved classes leave their levels for levels of their own, placed just before these
        # so that the order of classes, which decides ties, is kept.
        count, multiplicity = levels.count.copy(), levels.multiplicity.copy()
        slots: list[tuple[int, int]] = [(a, -1)] if a < width else []
        slots += [(b, 1)] if b < width else []
        for level, _ in slots:
            multiplicity[:, level] -= 1
        extra = [np.maximum(levels.count[:, [level]] + step, 0) for level, step in slots]
        position = [level for level, _ in slots]
        wide = Levels(
            np.insert(count, position, np.concatenate(extra, axis=1), axis=1),
            np.insert(np.maximum(multiplicity, 0), position, 1, axis=1),
            levels.classes,
        )
        law = win_log_probabilities(wide, table)
        places = [
            level + sum(p < level or (p == level and s < r) for s, p in enumerate(position))
            for r, level in enumerate(position)
        ]
        others = np.delete(law, places, axis=1)
        log_ratio[:, k, :width] = others - log_base
        for (level, step), place in zip(slots, places, strict=True):
            log_ratio[:, k, width + (step > 0)] = law[:, place] - log_base[:, level]
    return log_base, log_ratio


def _softmax(levels: Levels, gamma: float, loses: IntArray, gains: IntArray) -> tuple[FloatArray, FloatArray]:
    """The exponential mechanism: Pr[i] ∝ e^{γ·n_i}, in closed form."""
    width = levels.count.shape[1]
    score = gamma * (levels.count - levels.count.max(axis=1, keepdims=True))
    log_base = score - np.log((levels.multiplicity * np.exp(score)).sum(axis=1, keepdims=True))
    share = np.concatenate([np.exp(log_base), np.zeros((score.shape[0], 1))], axis=1)
    change = np.log1p(share[:, loses] * np.expm1(-gamma) + share[:, gains] * np.expm1(gamma))
    log_ratio = np.repeat(-change[:, :, None], width + 2, axis=2)
    log_ratio[:, :, width] -= gamma
    log_ratio[:, :, width + 1] += gamma
    return log_base, log_ratio
