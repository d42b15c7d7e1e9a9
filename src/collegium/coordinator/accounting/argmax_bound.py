"""What the argmax of noisy counts costs whatever the counts are, when only the winner is released.

Published accountants charge the whole noisy histogram. The winner alone is a post-processing of a
three-outcome variable (docs/privacy.md), and the supremum of its divergence is certified here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from collegium.coordinator.accounting.argmax_lattice import FAR_BELOW, FloatArray, Lattice
from collegium.coordinator.accounting.argmax_search import Cells, Problem, Region, supremum
from collegium.coordinator.mechanisms.base import Adjacency
from collegium.protocol.renyi import check_orders, discrete_laplace_curve, gaussian_curve, laplace_curve

NOISES = ("gaussian", "laplace", "discrete-gaussian", "discrete-laplace", "gumbel")

TOLERANCE = 0.005
"""Largest relative excess of a certified bound over the supremum that it bounds."""

_LARGEST_TILT = 6.0
_LARGEST_RATIO = 30.0
_NEGLIGIBLE = 46.0


def argmax_curve(noise: str, scale: float, orders: Sequence[float], adjacency: Adjacency = Adjacency.REPLACE) -> FloatArray:
    grid = np.asarray(check_orders(orders))
    return _search(noise, scale, grid, adjacency, TOLERANCE)


def classic(noise: str, scale: float, orders: FloatArray, adjacency: Adjacency) -> FloatArray:
    entries = 2 if adjacency is Adjacency.REPLACE else 1
    grid = tuple(orders)
    if noise in ("gaussian", "discrete-gaussian"):
        return gaussian_curve(math.sqrt(entries), scale, grid).values
    noisy = laplace_curve if noise == "laplace" else discrete_laplace_curve
    return np.minimum(entries * noisy(1, scale, grid).values, pure_curve(entries / scale, orders))


def pure_curve(epsilon: float, orders: FloatArray) -> FloatArray:
    """Any ε-DP release: attained by randomised response, (log(e^{αε} + e^{(1−α)ε}) − log(1 + e^ε))/(α − 1)."""
    return (np.logaddexp(orders * epsilon, (1.0 - orders) * epsilon) - np.logaddexp(0.0, epsilon)) / (orders - 1.0)


class PlainPsi:
    """Rényi moment of P against Q: ψ = r^α − 1 − α(r − 1)."""

    def value(self, ell: FloatArray, alpha: FloatArray) -> FloatArray:
        return np.expm1(alpha * ell) - alpha * np.expm1(ell)

    def slope(self, ell: FloatArray, alpha: FloatArray) -> FloatArray:
        return alpha * np.expm1((alpha - 1.0) * ell)


def _search(noise: str, scale: float, orders: FloatArray, adjacency: Adjacency, tolerance: float) -> FloatArray:
    family, discrete = noise.removeprefix("discrete-"), noise.startswith("discrete-")
    cap = classic(noise, scale, orders, adjacency)
    h = 1.0 / scale
    gaussian = family == "gaussian"
    severity = (orders - 1.0) * h if gaussian else 2.0 * h * (orders - 1.0)
    kept = severity <= (_LARGEST_TILT if gaussian else _LARGEST_RATIO)
    if not kept.any():
        return cap
    kept_orders = orders[kept]
    worst = float(severity[kept].max())
    if gaussian:
        lead = 2.0 * (worst + 9.0 + 2.0 * h + worst)
        reach = max(lead / math.sqrt(2.0) + 8.0 + h, worst * 2 + 10.0 + 2.0 * h)
    else:
        lead = worst + _NEGLIGIBLE + 4.0 * h
        reach = lead + _NEGLIGIBLE + 4.0 * h
    lattice = Lattice.build(family, discrete, scale, reach)
    caps = cap[kept] * (kept_orders - 1.0)
    result = np.zeros(len(kept_orders))
    for tie_to_a in (True, False) if discrete and adjacency is Adjacency.REPLACE else (True,):
        problem = Problem(lattice, tie_to_a, h, PlainPsi(), lambda alpha, first, base, tilt: np.exp(tilt) + (alpha-1.0)*base)
        regions, floor = _regions(problem, lead, kept_orders, adjacency)
        top = supremum(problem, regions, kept_orders, caps, _tilt(problem), tolerance)
        result = np.maximum(result, np.maximum(top, np.log1p(floor)))
    out = cap.copy()
    out[kept] = np.minimum(caps, result) / (kept_orders - 1.0)
    return out


def _tilt(problem: Problem):
    lattice, h = problem.lattice, problem.vote_length
    if lattice.family == "laplace":
        return lambda lead, alpha: np.full(len(alpha), math.inf)
    grid = np.linspace(-60.0, 60.0, 4801)
    beyond = np.array([lattice.log_beyond(z) for z in grid])

    def log_tilt(lead, alpha):
        shift = (alpha - 1.0) * h
        x = lead[0] + shift
        d = lead[1] / 2.0 + shift

        def log_below(z):
            k = np.clip(np.searchsorted(grid, -z, side="right") - 1, 0, len(grid) - 1)
            return np.where(-z < grid[0], 0.0, beyond[k])

        return alpha * (alpha - 1.0) * h * h + np.minimum(log_below(x), math.log(2.0) + log_below(d))

    return log_tilt


def _regions(problem: Problem, lead: float, orders: FloatArray, adjacency: Adjacency):
    lattice, h = problem.lattice, problem.vote_length
    none = np.zeros(len(orders))
    n = lattice.reach
    width = max(1, round(1.0 / lattice.step))
    edges = np.unique(np.concatenate([np.arange(-n, n, width), [n], [-lattice.vote, 0, lattice.vote]]))
    if adjacency is Adjacency.ADD_REMOVE:
        raise NotImplementedError
    lo, hi = edges[:-1], edges[1:]
    xx, yy = np.meshgrid(np.arange(len(lo)), np.arange(len(lo)), indexing="ij")
    box = np.stack([lo[xx.ravel()], hi[xx.ravel()], lo[yy.ravel()], hi[yy.ravel()]], axis=1)
    far = np.full(len(lo), FAR_BELOW)
    bottom = np.full(len(lo), -n)
    strips = np.concatenate([
        np.stack([far, bottom, lo, hi], axis=1),
        np.stack([lo, hi, far, bottom], axis=1),
        np.array([[FAR_BELOW, -n, FAR_BELOW, -n]]),
    ])
    d = math.ceil(lead / lattice.step)
    d_edges = np.unique(np.append(np.arange(-d, d, width), d))
    line = np.stack([d_edges[:-1], d_edges[1:]], axis=1)
    # tails
    reach = n * lattice.step
    beyond = lattice.log_beyond
    shift = (orders - 1.0) * h
    two_low = float(lattice.log_two(np.array([-d - 2 * lattice.vote]), True)[0, 0])
    two_tail = float(lattice.log_two(np.array([-d + 4 * lattice.vote]), True)[0, 0])
    eta = math.exp(beyond(reach - 2 * h) - two_low)
    log_factor = (1.0 - orders) * math.log1p(-eta)
    if lattice.family == "gaussian":
        amp = orders * (orders - 1.0) * h * h
        tau = np.array([beyond(reach - s - 2 * h) for s in shift])
        dom = np.array([math.log(2.0) + beyond(lead / 2.0 - s - 4 * h) for s in shift])
    else:
        amp = 2.0 * h * (orders - 1.0)
        tau = np.full(len(orders), beyond(reach - 2 * h))
        dom = np.full(len(orders), two_tail)
    small = math.exp(two_tail) + math.exp(beyond(reach - 2 * h))
    extra = 2*np.exp(amp + tau) + math.exp(beyond(reach - 2 * h))
    floor = 2 * (np.exp(amp + tau) + np.exp(amp + dom) + (orders - 1) * small) + np.expm1(-orders * math.log1p(-small))
    return [
        Region(Cells(line), problem.enclose_line, log_factor, extra),
        Region(Cells(np.concatenate([box, strips])), problem.enclose_plane, none, none),
    ], floor
