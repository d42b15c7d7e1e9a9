"""The certified argmax bound from below: real histograms come close to it and never pass it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import ndtr

from collegium.privacy.accounting.argmax.bound import argmax_curve, sampled_argmax_curve
from collegium.privacy.accounting.argmax.lattice import Lattice
from collegium.privacy.accounting.argmax.search import Cells, PlainPsi, SearchProblem
from collegium.privacy.units import Adjacency

ORDERS = np.array([2.0, 8.0, 32.0])
SCALE = {"gaussian": 8.0, "laplace": 5.0, "discrete-gaussian": 3.0, "discrete-laplace": 3.0}
SLACK = 1 + 1e-6


def winner_law(noise: str, scale: float, counts: np.ndarray) -> np.ndarray:
    """Pr[winner], by quadrature or by summation over the integers with ties to the lowest class."""
    if noise == "gumbel":
        weight = np.exp((counts - counts.max()) / scale)
        return weight / weight.sum()
    reach = (10.0 if noise.endswith("gaussian") else 40.0) * scale
    low, high = counts.min() - reach, counts.max() + reach
    if noise.startswith("discrete-"):
        z = np.arange(math.floor(low), math.ceil(high) + 1.0)
        weights = np.ones_like(z)
    else:
        # Panels end at the counts, where Laplace densities have their kinks.
        ends = np.unique(np.concatenate([counts, np.arange(low, high, scale / 2), [high]]))
        nodes, node_weights = np.polynomial.legendre.leggauss(10)
        half = np.diff(ends)[:, None] / 2
        z = (ends[:-1, None] + half + half * nodes).ravel()
        weights = (half * node_weights).ravel()
    u = (z - counts[:, None]) / scale
    kernel = np.exp(-0.5 * u * u) if noise.endswith("gaussian") else np.exp(-np.abs(u))
    if noise.startswith("discrete-"):
        mass = kernel / kernel.sum(axis=1, keepdims=True)
        below = np.cumsum(mass, axis=1)
        strict, level = np.maximum(below - mass, 0.0), below
    elif noise == "gaussian":
        mass, strict = kernel / math.sqrt(2 * math.pi) / scale, ndtr(u)
        level = strict
    else:
        mass, strict = kernel / 2 / scale, np.where(u < 0, 0.5 * np.exp(-np.abs(u)), 1 - 0.5 * np.exp(-np.abs(u)))
        level = strict
    law = np.empty(len(counts))
    for i in range(len(counts)):
        others = [strict[j] if j < i else level[j] for j in range(len(counts)) if j != i]
        law[i] = (weights * mass[i] * np.prod(others, axis=0)).sum()
    return law / law.sum()


def divergences(p: np.ndarray, q: np.ndarray, orders: np.ndarray = ORDERS) -> np.ndarray:
    logs = orders[:, None] * np.log(p) + (1 - orders[:, None]) * np.log(q)
    return np.log(np.exp(logs).sum(axis=1)) / (orders - 1)


def random_pairs(scale: float, adjacency: Adjacency, trials: int, seed: int):  # type: ignore[no-untyped-def]
    """Histograms of 2 to 10 classes with one changed vote, many of them with two or three leaders close together."""
    generator = np.random.default_rng(seed)
    for trial in range(trials):
        classes = 3 if trial % 3 == 0 else int(generator.integers(3, 11))
        counts = generator.integers(0, max(2, int(4 * scale)), classes)
        if trial % 2:
            counts[:] = generator.integers(0, max(2, int(scale)), classes)
            counts[:2] = int(10 * scale) + generator.integers(0, max(2, int(scale)), 2)
        a, b = generator.permutation(classes)[:2] if trial % 4 < 2 else (0, 1)
        counts[a] += 1
        other = counts.copy()
        other[a] -= 1
        if adjacency is Adjacency.REPLACE:
            other[b] += 1
        yield counts.astype(float), other.astype(float)


@pytest.mark.parametrize(
    ("noise", "close"),
    [("gaussian", 0.97), ("laplace", 0.7), ("discrete-gaussian", 0.9), ("discrete-laplace", 0.6), ("gumbel", 0.95)],
)
def test_random_histograms_come_close_and_never_pass(noise: str, close: float) -> None:
    """200 random neighbours of 3 to 10 classes, both directions, orders 2, 8 and 32."""
    scale = SCALE.get(noise, 5.0)
    bound = argmax_curve(noise, scale, ORDERS)
    best = np.zeros(len(ORDERS))
    for counts, other in random_pairs(scale, Adjacency.REPLACE, 200, seed=3):
        p, q = winner_law(noise, scale, counts), winner_law(noise, scale, other)
        found = np.maximum(divergences(p, q), divergences(q, p))
        assert (found <= bound * SLACK).all(), (counts, other, found / bound)
        best = np.maximum(best, found)
    assert best[0] >= close * bound[0]


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "discrete-gaussian", "discrete-laplace", "gumbel"])
def test_an_added_or_removed_vote_never_passes_its_bound(noise: str) -> None:
    scale = SCALE.get(noise, 5.0)
    bound = argmax_curve(noise, scale, ORDERS, Adjacency.ADD_REMOVE)
    for counts, other in random_pairs(scale, Adjacency.ADD_REMOVE, 100, seed=4):
        p, q = winner_law(noise, scale, counts), winner_law(noise, scale, other)
        assert (np.maximum(divergences(p, q), divergences(q, p)) <= bound * SLACK).all()


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "discrete-laplace"])
def test_a_sampled_record_never_passes_its_bound(noise: str) -> None:
    """P₀ against (1 − s)P₀ + sP₁ in both directions, also when the rest of the sample is random."""
    scale, rate = SCALE[noise], 0.2
    bound = sampled_argmax_curve(noise, scale, rate, ORDERS)
    best, previous = np.zeros(len(ORDERS)), None
    for counts, other in random_pairs(scale, Adjacency.REPLACE, 100, seed=5):
        for without, moved in ((counts, other), (other, counts)):
            p0 = winner_law(noise, scale, without)
            mixed = (1 - rate) * p0 + rate * winner_law(noise, scale, moved)
            found = np.maximum(divergences(p0, mixed), divergences(mixed, p0))
            assert (found <= bound * SLACK).all()
            best = np.maximum(best, found)
            if previous is not None and len(previous[0]) == len(p0):
                pair = 0.3 * p0 + 0.7 * previous[0], 0.3 * mixed + 0.7 * previous[1]
                assert (divergences(*pair) <= bound * SLACK).all()
            previous = p0, mixed
    assert best[0] >= 0.55 * bound[0]


@pytest.mark.parametrize(
    ("noise", "scale"), [("gaussian", 8.0), ("laplace", 5.0), ("discrete-gaussian", 3.0), ("discrete-laplace", 3.0)]
)
def test_ten_thousand_positions_stay_below(noise: str, scale: float) -> None:
    """Three classes at random real positions (integers for integer noise): the supremum itself, not only counts."""
    bound = argmax_curve(noise, scale, ORDERS)
    family, discrete = noise.removeprefix("discrete-"), noise.startswith("discrete-")
    lattice = Lattice.build(family, discrete, scale, 30.0, 1.0 / 200.0)
    generator = np.random.default_rng(8)
    spread = 6.0 / lattice.step
    x = np.round(generator.normal(1.0 / lattice.step, spread / 2, 10_000)).astype(np.int64)
    y = np.round(x + generator.normal(0.0, spread / 3, 10_000)).astype(np.int64)
    best = np.zeros(len(ORDERS))
    for tie in (True, False):
        p, q = lattice.log_three(x, y, tie), lattice.log_three(x - lattice.vote, y + lattice.vote, tie)
        assert np.abs(np.exp(p).sum(axis=0) - 1).max() < 1e-9
        for k, order in enumerate(ORDERS):
            moment = np.exp(np.where(q > -300, order * p + (1 - order) * np.maximum(q, -300), -np.inf)).sum(axis=0)
            best[k] = max(best[k], float(np.log(moment.max()) / (order - 1)))
    assert (best <= bound * SLACK).all()
    assert (best[:2] >= bound[:2] * 0.9).all()


@pytest.mark.parametrize(
    ("family", "scale", "order"), [("gaussian", 8.0, 2.0), ("gaussian", 8.0, 20.0), ("laplace", 5.0, 8.0)]
)
def test_an_independent_optimiser_ends_just_below(family: str, scale: float, order: float) -> None:
    """Two leaders and one other class at real positions, by this file's own quadrature and Nelder–Mead."""

    def gain(position: np.ndarray) -> float:
        counts = np.array([*position, 0.0]) * scale
        p, q = (_fixed_rest(family, scale, row) for row in (counts, counts + np.array([-1.0, 1.0, 0.0])))
        return float(divergences(p, q, np.array([order]))[0])

    starts = [(0.8, 0.8), (1.5, 1.5), (0.0, 1.0), (-1.0, 1.0)]
    best = max(
        gain(minimize(lambda z: -gain(z), start, method="Nelder-Mead", options={"maxiter": 80}).x) for start in starts
    )
    bound = float(argmax_curve(family, scale, [order])[0])
    assert bound * 0.99 <= best <= bound


def _fixed_rest(family: str, scale: float, counts: np.ndarray) -> np.ndarray:
    """Pr[a], Pr[b], Pr[rest] where the rest stands at 0 without noise."""
    x, y = counts[0] / scale, counts[1] / scale
    ends = np.unique(np.concatenate([np.arange(0.0, 45.0, 0.5), np.maximum([x, y], 0.0)]))
    nodes, node_weights = np.polynomial.legendre.leggauss(12)
    half = np.diff(ends)[:, None] / 2
    u, weights = (ends[:-1, None] + half + half * nodes).ravel(), (half * node_weights).ravel()

    def density(z: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) if family == "gaussian" else 0.5 * np.exp(-np.abs(z))

    def below(z: np.ndarray) -> np.ndarray:
        tail = 0.5 * np.exp(-np.abs(z))
        return ndtr(z) if family == "gaussian" else np.where(z < 0, tail, 1 - tail)

    first = (weights * density(u - x) * below(u - y)).sum()
    second = (weights * density(u - y) * below(u - x)).sum()
    return np.array([first, second, float(below(np.asarray(-x)) * below(np.asarray(-y)))])


def exact_two_leaders(order: float, scale: float) -> float:
    """A lower bound on the supremum: two level leaders far above all others, Gaussian noise."""
    p, q = ndtr(1 / scale / math.sqrt(2)), ndtr(-1 / scale / math.sqrt(2))
    return math.log(p**order * q ** (1 - order) + q**order * p ** (1 - order)) / (order - 1)


def test_planted_bug_half_the_shift_is_caught() -> None:
    """A factor of 2 in how far a vote moves the counts puts the bound below a real pair."""
    honest = float(argmax_curve("gaussian", 8.0, [2.0])[0])
    planted = float(argmax_curve("gaussian", 16.0, [2.0])[0])
    assert planted < exact_two_leaders(2.0, 8.0) <= honest


def test_planted_bug_one_direction_of_a_sampled_record_is_caught() -> None:
    """At high orders the two directions of a sampled record differ by far more than the tolerance."""
    scale, rate, order = 1.5, 0.1, np.array([3.0])
    bound = sampled_argmax_curve("gaussian", scale, rate, order)
    p0, p1 = winner_law("gaussian", scale, np.array([3.0, 6.0])), winner_law("gaussian", scale, np.array([4.0, 5.0]))
    mixed = (1 - rate) * p0 + rate * p1
    forward, backward = float(divergences(mixed, p0, order)[0]), float(divergences(p0, mixed, order)[0])
    assert forward > 1.2 * backward
    assert forward <= float(bound[0])


@pytest.mark.parametrize("family", ["gaussian", "laplace"])
def test_planted_bug_a_grid_without_margin_is_caught(family: str) -> None:
    """On coarse rectangles the corners alone miss the supremum inside; the certified bound of each does not."""
    scale = 8.0
    lattice = Lattice.build(family, False, scale, 12.0)
    problem = SearchProblem(lattice, True, 1.0 / scale, PlainPsi())
    generator = np.random.default_rng(6)
    low = generator.integers(-100, 300, (300, 2))
    width = generator.integers(4, 120, 300)
    cells = np.stack([low[:, 0], low[:, 0] + width, low[:, 1], low[:, 1] + width], axis=1)
    enclosure = problem.enclose_plane(Cells(cells))
    missed = 0
    for order in (2.0, 16.0):
        alpha = np.full(len(cells), order)
        corner, bound = problem.moments(enclosure, np.arange(len(cells)), alpha, np.full(len(cells), math.inf))
        x, y = ((cells[:, k] + generator.integers(0, width + 1, (40, 300))).ravel() for k in (0, 2))
        p = lattice.log_three(x, y, True)
        q = lattice.log_three(x - lattice.vote, y + lattice.vote, True)
        inside = np.exp(order * p + (1 - order) * q).sum(axis=0).reshape(40, 300).max(axis=0) - 1
        assert (inside <= bound * (1 + 1e-9) + 1e-13).all()
        missed += int((inside > corner * 1.01).sum())
    assert missed > 50
