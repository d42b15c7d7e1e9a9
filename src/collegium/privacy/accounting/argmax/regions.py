"""The whole plane of positions as finite searches: a box, its unbounded sides, and what lies beyond.

With B the reach and L the lead, every (x, y) is in one of: the box |x|, |y| ≤ B; x or y below −B, which the
unbounded rectangles hold; max(x, y) > B with |x − y| ≤ L, where M hardly ever wins and two outcomes with a
stated allowance remain; max(x, y) > B with |x − y| > L, where one class wins all but surely. docs/privacy.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from collegium.privacy.accounting.argmax.lattice import FAR_BELOW, FloatArray, Lattice
from collegium.privacy.accounting.argmax.search import Cells, Psi, Region, SearchProblem, supremum
from collegium.privacy.units import Adjacency

LARGEST_TILT = 4.5
"""Gaussian noise: largest (α − 1)/σ that is searched."""

LARGEST_RATIO = 30.0
"""Laplace noise: largest 2γ(α − 1) that is searched."""

_NEGLIGIBLE = 46.0
"""Minus the log of a probability that is too small to matter: e^{−46} = 1e-20."""

_FIRST_CELL = 1.0
_FINEST_PLANE, _FINEST_LINE = 1.0 / 64.0, 1.0 / 1024.0


def certified(
    noise: str,
    scale: float,
    orders: FloatArray,
    adjacency: Adjacency,
    psi: Psi,
    caps: FloatArray,
    tolerance: float,
) -> FloatArray:
    """Upper bounds on the log-moment, per order, over all positions; at most ``caps``, which must hold anyway."""
    family, discrete = noise.removeprefix("discrete-"), noise.startswith("discrete-")
    vote = 1.0 / scale
    if family == "gaussian":
        lead = 2.0 * (2.0 * LARGEST_TILT + 9.5 + 4.0 * vote)
        reach = lead / math.sqrt(2.0) + 9.5 + 4.0 * vote
    else:
        lead = LARGEST_RATIO + _NEGLIGIBLE + 4.0 * vote
        reach = lead + _NEGLIGIBLE + 4.0 * vote
    replace = adjacency is Adjacency.REPLACE
    lattice = Lattice.build(family, discrete, scale, reach, _FINEST_PLANE if replace else _FINEST_LINE)
    result = np.zeros(len(orders))
    for tie_to_a in (True, False) if discrete and replace else (True,):
        problem = SearchProblem(lattice, tie_to_a, vote, psi)
        beyond, log_factor, extra = _allowances(problem, lead, orders)
        none = np.zeros(len(orders))
        if replace:
            regions = [
                Region(_line(lattice, lead), problem.enclose_line, log_factor, extra),
                Region(_plane(lattice), problem.enclose_plane, none, none),
            ]
        else:
            regions = [Region(_line(lattice, reach), problem.enclose_single, none, none)]
        # Integer positions cannot be interpolated: large orders, dear and of little use, are searched less finely.
        loose = tolerance * (1.0 + 0.5 * ((orders - 1.0) * vote) ** 2 * discrete)
        found = supremum(problem, regions, orders, caps, _log_tilt(problem), loose)
        result = np.maximum(result, np.maximum(found, np.log1p(beyond)))
    return np.minimum(caps, result)


def _line(lattice: Lattice, length: float) -> Cells:
    end = min(math.ceil(length / lattice.step), 2 * lattice.half - 4 * lattice.vote)
    edges = _edges(lattice, end, ())
    return Cells(np.stack([edges[:-1], edges[1:]], axis=1))


def _plane(lattice: Lattice) -> Cells:
    """The box and its unbounded sides; edges run along the kinks of Laplace noise."""
    end, vote = lattice.reach, lattice.vote
    xs, ys = _edges(lattice, end, (0, vote)), _edges(lattice, end, (-vote, 0))
    x1, y1 = (grid.ravel() for grid in np.meshgrid(xs[:-1], ys[:-1], indexing="ij"))
    x2, y2 = (grid.ravel() for grid in np.meshgrid(xs[1:], ys[1:], indexing="ij"))
    left = [np.full(len(ys) - 1, FAR_BELOW), np.full(len(ys) - 1, -end), ys[:-1], ys[1:]]
    below = [xs[:-1], xs[1:], np.full(len(xs) - 1, FAR_BELOW), np.full(len(xs) - 1, -end)]
    corner = np.array([[FAR_BELOW, -end, FAR_BELOW, -end]])
    return Cells(np.concatenate([np.stack(side, axis=1) for side in ([x1, x2, y1, y2], left, below)] + [corner]))


def _edges(lattice: Lattice, end: int, extra: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    width = max(1, round(_FIRST_CELL / lattice.step))
    return np.unique(np.concatenate([np.arange(-end, end, width), np.array([end, *extra], dtype=np.int64)]))


def _log_tilt(problem: SearchProblem) -> Callable[[FloatArray, FloatArray], FloatArray]:
    """log of a bound on ∫ p^α q^{1−α} where a wins, for a at most at x and at most d above b (``lead``).

    Gaussian: e^{α(α−1)h²} times Pr[a wins] with a moved up and b down by (α − 1)h. Laplace noise needs none.
    """
    lattice, vote = problem.lattice, problem.vote_length
    if lattice.family == "laplace":
        return lambda lead, alpha: np.full(len(alpha), math.inf)
    grid = np.linspace(0.0, lattice.reach * lattice.step, 2049)
    tail = np.array([lattice.log_beyond(length) for length in grid])

    def below(position: FloatArray) -> FloatArray:
        index = np.searchsorted(grid, -position, side="right") - 1
        return np.where(index < 0, 0.0, tail[np.maximum(index, 0)])

    def log_tilt(lead: FloatArray, alpha: FloatArray) -> FloatArray:
        shift = (alpha - 1.0) * vote
        wins = np.minimum(below(lead[0] + shift), math.log(2.0) + below(lead[1] / 2.0 + shift))
        return np.asarray(alpha * (alpha - 1.0) * vote**2 + wins)

    return log_tilt


def _allowances(problem: SearchProblem, lead: float, orders: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Beyond the reach: the moment minus 1 where one class leads by more than ``lead``; and, within the lead,
    the log of the factor on, and the addition to, the two-outcome moment. docs/privacy.md, "Far from M".
    """
    lattice, vote = problem.lattice, problem.vote_length
    reach, steps = lattice.reach * lattice.step, math.ceil(lead / lattice.step)
    shift = orders * vote
    log_rest = lattice.log_beyond(reach - 2.0 * vote)
    behind = lattice.log_two(np.array([-steps - 4 * lattice.vote, -steps + 4 * lattice.vote]), problem.tie_to_a)
    log_upset = float(behind[0, 1])
    if lattice.family == "gaussian":
        gain = orders * (orders - 1.0) * vote**2
        rest = np.array([lattice.log_beyond(reach - moved - 2.0 * vote) for moved in shift])
        upset = np.array([math.log(2.0) + lattice.log_beyond(lead / 2.0 - moved - 4.0 * vote) for moved in shift])
    else:
        gain = 2.0 * vote * orders
        rest, upset = np.full(len(orders), log_rest), np.full(len(orders), log_upset)
    lost = math.exp(log_rest) + math.exp(log_upset)
    share = math.exp(log_rest - float(behind[0, 0]))
    beyond = 2.0 * (np.exp(gain + rest) + np.exp(gain + upset) + orders * lost) + np.expm1(-orders * math.log1p(-lost))
    return beyond, (1.0 - orders) * math.log1p(-share), 2.0 * np.exp(gain + rest) + math.exp(log_rest)
