"""One round of the exact accountant from below: real histograms come close to its δ and never pass it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collegium_accounting.game.cells import Cells
from collegium_accounting.game.curves import Sampling, cell_curves
from collegium_accounting.game.planes import Plane
from collegium_accounting.game.winner import RoundLaw, winner_profile
from collegium_accounting.units import Adjacency

EPSILONS = np.array([0.0, 0.05, 0.2])
SCALE = {"discrete-gaussian": 4.0, "discrete-laplace": 5.0, "gumbel": 5.0}
SLACK = 1 + 1e-6


def winner_law(noise: str, scale: float, counts: np.ndarray) -> np.ndarray:
    """Pr[winner], in closed form or by summation over the integers with ties to the lowest class."""
    if noise == "gumbel":
        weight = np.exp((counts - counts.max()) / scale)
        return weight / weight.sum()
    reach = (10.0 if noise == "discrete-gaussian" else 40.0) * scale
    z = np.arange(math.floor(counts.min() - reach), math.ceil(counts.max() + reach) + 1.0)
    u = (z - counts[:, None]) / scale
    kernel = np.exp(-0.5 * u * u) if noise == "discrete-gaussian" else np.exp(-np.abs(u))
    mass = kernel / kernel.sum(axis=1, keepdims=True)
    below = np.cumsum(mass, axis=1)
    strict = np.maximum(below - mass, 0.0)
    law = np.empty(len(counts))
    for i in range(len(counts)):
        others = [strict[j] if j < i else below[j] for j in range(len(counts)) if j != i]
        law[i] = (mass[i] * np.prod(others, axis=0)).sum()
    return law / law.sum()


def hockey_stick(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """δ at each of `EPSILONS`."""
    return np.maximum(p - np.exp(EPSILONS)[:, None] * q, 0.0).sum(axis=1)


def bound_of(law: RoundLaw) -> np.ndarray:
    profile = winner_profile(law, 1)
    return np.array([profile.delta(epsilon) for epsilon in EPSILONS])


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


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "close"), [("discrete-gaussian", 0.9), ("discrete-laplace", 0.7), ("gumbel", 0.9)])
def test_random_histograms_come_close_and_never_pass(noise: str, close: float) -> None:
    """200 random neighbours of 3 to 10 classes, both directions."""
    bound, best = bound_of(RoundLaw(noise, SCALE[noise])), np.zeros(len(EPSILONS))
    for counts, other in random_pairs(SCALE[noise], Adjacency.REPLACE, 200, seed=3):
        p, q = winner_law(noise, SCALE[noise], counts), winner_law(noise, SCALE[noise], other)
        found = np.maximum(hockey_stick(p, q), hockey_stick(q, p))
        assert (found <= bound * SLACK).all(), (counts, other, found / bound)
        best = np.maximum(best, found)
    assert best[0] >= close * bound[0]


@pytest.mark.parametrize("noise", SCALE)
def test_an_added_or_removed_vote_never_passes_its_bound(noise: str) -> None:
    bound = bound_of(RoundLaw(noise, SCALE[noise], Adjacency.ADD_REMOVE))
    half = bound_of(RoundLaw(noise, 2 * SCALE[noise], Adjacency.ADD_REMOVE))
    caught = False
    for counts, other in random_pairs(SCALE[noise], Adjacency.ADD_REMOVE, 100, seed=4):
        p, q = winner_law(noise, SCALE[noise], counts), winner_law(noise, SCALE[noise], other)
        found = np.maximum(hockey_stick(p, q), hockey_stick(q, p))
        assert (found <= bound * SLACK).all()
        caught |= bool((found > half).any())
    assert caught, "planted: half the shift is below a real pair"


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["discrete-gaussian", "discrete-laplace"])
def test_a_sampled_record_never_passes_its_bound(noise: str) -> None:
    """P₀ against (1 − s)P₀ + sP₁ in both directions, also when the rest of the sample is random."""
    rate, best, previous = 0.2, np.zeros(len(EPSILONS)), None
    bound = bound_of(RoundLaw(noise, SCALE[noise], sampling_rate=rate))
    for counts, other in random_pairs(SCALE[noise], Adjacency.REPLACE, 100, seed=5):
        first, second = (winner_law(noise, SCALE[noise], one) for one in (counts, other))
        for p0, moved in ((first, second), (second, first)):
            mixed = (1 - rate) * p0 + rate * moved
            found = np.maximum(hockey_stick(p0, mixed), hockey_stick(mixed, p0))
            assert (found <= bound * SLACK).all()
            best = np.maximum(best, found)
            if previous is not None and len(previous[0]) == len(p0):
                pair = 0.3 * p0 + 0.7 * previous[0], 0.3 * mixed + 0.7 * previous[1]
                assert (hockey_stick(*pair) <= bound * SLACK).all()
            previous = p0, mixed
    assert best[0] >= 0.6 * bound[0]


@pytest.mark.bits
@pytest.mark.parametrize("scale", [16.0, 130.0])
def test_planted_bug_a_grid_without_reserve_is_caught(scale: float) -> None:
    """On coarse rectangles the corners alone miss the largest gain inside; with the reserve they do not."""
    generator = np.random.default_rng(6)
    plane = Plane.build(scale, True)
    unit = 1.0 / plane.lattice.step
    low = generator.integers(int(-1.5 * unit), int(4.7 * unit), (300, 2))
    width = generator.integers(int(0.06 * unit) + 2, int(1.5 * unit), 300)
    cells = np.stack([low[:, 0], low[:, 0] + width, low[:, 1], low[:, 1] + width], axis=1)
    grid = np.linspace(0.0, 2.4 / scale, 7)
    curves = cell_curves(plane.enclose(Cells(cells)), Sampling(), grid, True)
    corners = curves.corner_gain.max(axis=0)
    bound = np.minimum(curves.envelope, corners + curves.reserve)
    x, y = ((cells[:, k] + generator.integers(0, width + 1, (40, 300))).ravel() for k in (0, 2))
    p = np.exp(plane.lattice.log_three(x, y, True))
    q = np.exp(plane.lattice.log_three(x - 1, y + 1, True))
    inside = np.maximum(p[..., None] - np.exp(grid) * q[..., None], 0.0).sum(axis=0).reshape(40, 300, -1).max(axis=0)
    assert (inside <= bound * (1 + 1e-9) + 1e-13).all()
    assert int((inside > corners * 1.01).sum()) > 50
