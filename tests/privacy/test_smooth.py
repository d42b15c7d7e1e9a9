"""The published data-dependent cost: an upper bound, smooth, and with its own release accounted for."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from functools import cache

import mpmath
import numpy as np
import pytest
from collegium_reproduction.gap_envelope import gap_envelope, gaps_of
from collegium_reproduction.smooth import (
    Secret,
    SmoothRelease,
    envelope_for,
    local_bounds,
    smooth_sensitivity,
    total_cost,
)

from collegium.errors import DataError, UnsupportedAccounting
from collegium_accounting.renyi import RenyiCurve


def histograms(votes: int, classes: int) -> list[tuple[int, ...]]:
    return [h for h in itertools.product(range(votes + 1), repeat=classes) if sum(h) == votes]


def neighbours(histogram: tuple[int, ...]) -> list[tuple[int, ...]]:
    found = []
    for a, b in itertools.permutations(range(len(histogram)), 2):
        if histogram[a]:
            moved = list(histogram)
            moved[a] -= 1
            moved[b] += 1
            found.append(tuple(moved))
    return found


@cache
def winner_law(noise: str, scale: float, histogram: tuple[int, ...]) -> np.ndarray:
    """Pr[winner] by direct summation over a fine grid (continuous) or over the integers (ties to the lowest)."""
    counts = np.array(histogram, dtype=float)
    discrete = noise.startswith("discrete-")
    step = 1.0 if discrete else scale / 400.0
    z = np.arange(-round(12 * scale / step), round((12 * scale + sum(histogram)) / step) + 1) * step
    kernel = (lambda u: np.exp(-0.5 * u * u)) if noise.endswith("gaussian") else (lambda u: np.exp(-np.abs(u)))
    mass = np.stack([kernel((z - c) / scale) for c in counts])
    mass /= mass.sum(axis=1, keepdims=True)
    below = np.cumsum(mass, axis=1)
    strict = below - mass if discrete else below - 0.5 * mass
    level = below if discrete else strict
    law = []
    for i in range(len(counts)):
        product = mass[i].copy()
        for j in range(len(counts)):
            if j != i:
                product *= strict[j] if j < i else level[j]
        law.append(product.sum())
    return np.array(law) / sum(law)


def divergence(p: np.ndarray, q: np.ndarray, order: float) -> float:
    return float(np.log(np.sum(p**order * q ** (1.0 - order))) / (order - 1.0))


@pytest.mark.parametrize(
    ("noise", "scale", "order"),
    [
        ("gaussian", 2.0, 4.0),
        ("gaussian", 3.0, 2.5),
        ("laplace", 2.0, 3.0),
        ("discrete-gaussian", 1.5, 3.0),
        ("discrete-laplace", 1.2, 2.5),
    ],
)
@pytest.mark.parametrize(("votes", "classes"), [(7, 2), (6, 3), (4, 4)])
def test_the_envelope_is_above_the_exact_divergence_in_both_directions(
    noise: str, scale: float, order: float, votes: int, classes: int
) -> None:
    envelope = gap_envelope(noise, scale, order, votes, classes)
    assert (np.diff(envelope) <= 0).all()
    for histogram in histograms(votes, classes):
        law, gap = winner_law(noise, scale, histogram), int(gaps_of(np.array([histogram]))[0])
        for other in neighbours(histogram):
            exact = max(
                divergence(law, winner_law(noise, scale, other), order),
                divergence(winner_law(noise, scale, other), law, order),
            )
            assert exact <= envelope[gap] * (1 + 1e-6) + 1e-12


def exact_loss(noise: str, scale: float, order: float, histogram: tuple[int, ...]) -> float:
    here = winner_law(noise, scale, histogram)
    others = [winner_law(noise, scale, other) for other in neighbours(histogram)]
    return max(max(divergence(here, other, order), divergence(other, here, order)) for other in others)


def test_the_exact_loss_is_not_monotone_in_the_gap() -> None:
    """Why the envelope is released in its place: (5, 1, 0) leads by 4 and costs more than (2, 2, 2)."""
    assert exact_loss("discrete-gaussian", 2.0, 3.0, (5, 1, 0)) > 1.18 * exact_loss(
        "discrete-gaussian", 2.0, 3.0, (2, 2, 2)
    )


def test_one_vote_nearly_doubles_the_exact_loss() -> None:
    """Why it is not smooth with a small β: (8, 0) against (7, 1)."""
    ratio = exact_loss("discrete-gaussian", 1.5, 3.0, (7, 1)) / exact_loss("discrete-gaussian", 1.5, 3.0, (8, 0))
    assert 1.87 < ratio < 1.89


def test_the_envelope_pays_where_teachers_agree() -> None:
    envelope = gap_envelope("gaussian", 40.0, 8.0, 250, 10)
    assert envelope[250] < 0.05 * envelope[0]


def test_no_envelope_is_claimed_where_none_is_proven() -> None:
    with pytest.raises(UnsupportedAccounting):
        gap_envelope("discrete-gaussian", 3.0, 2.5, 5, 3)
    with pytest.raises(UnsupportedAccounting):
        gap_envelope("gumbel", 3.0, 2.0, 5, 3)


def true_local_sensitivities(cost: np.ndarray, votes: int, classes: int) -> dict[tuple[int, ...], list[float]]:
    """Local sensitivity at every distance t, by walking the graph of histograms."""
    everything = histograms(votes, classes)
    value = {h: cost[int(gaps_of(np.array([h]))[0])] for h in everything}
    local = {h: max(abs(value[h] - value[o]) for o in neighbours(h)) for h in everything}
    out = {}
    for start in everything:
        reached, levels = {start}, [local[start]]
        for _ in range(votes):
            reached |= {o for h in reached for o in neighbours(h)}
            levels.append(max(local[h] for h in reached))
        out[start] = levels
    return out


@pytest.mark.parametrize(("votes", "classes"), [(6, 2), (7, 2), (5, 3), (6, 3), (4, 4)])
def test_the_bound_is_above_the_local_sensitivity_at_every_distance_and_smooth(votes: int, classes: int) -> None:
    cost, beta = gap_envelope("laplace", 1.0, 3.0, votes, classes), 0.2
    truth = true_local_sensitivities(cost, votes, classes)
    smooth = {}
    for histogram, levels in truth.items():
        counts = np.array([histogram])
        bounds = local_bounds(np.bincount(gaps_of(counts), minlength=len(cost)), cost)
        padded = [*bounds, *([bounds[-1]] * len(levels))]
        assert all(level <= bound + 1e-15 for level, bound in zip(levels, padded, strict=False))
        smooth[histogram] = smooth_sensitivity(counts, cost, beta).reveal()
        assert smooth[histogram] >= max(math.exp(-beta * t) * level for t, level in enumerate(levels)) - 1e-15
    for histogram, value in smooth.items():
        assert all(smooth[o] <= math.exp(beta) * value * (1 + 1e-12) for o in neighbours(histogram))


@pytest.mark.slow
def test_one_teacher_that_changes_its_vote_in_every_query_is_covered() -> None:
    votes, beta = 4, 0.3
    cost = gap_envelope("gaussian", 1.5, 3.0, votes, 3)
    plane = histograms(votes, 3)
    for first, second in itertools.product(plane, plane):
        here = np.array([first, second])
        f, s = total_cost(here, cost).reveal(), smooth_sensitivity(here, cost, beta).reveal()
        for a, b in itertools.product([first, *neighbours(first)], [second, *neighbours(second)]):
            there = np.array([a, b])
            assert abs(total_cost(there, cost).reveal() - f) <= s + 1e-15
            assert smooth_sensitivity(there, cost, beta).reveal() <= math.exp(beta) * s * (1 + 1e-12)


def test_planted_bug_a_walk_to_smaller_gaps_alone_is_not_smooth() -> None:
    votes, beta = 7, 0.05
    cost = gap_envelope("laplace", 1.0, 3.0, votes, 2)
    last = len(cost) - 1
    drop = cost - cost[np.minimum(np.arange(last + 1) + 2, last)]

    def one_sided(gap: int) -> float:
        return max(math.exp(-beta * t) * drop[max(gap - 2 * t, 0)] for t in range(votes))

    gaps = range(1, votes + 1, 2)
    truth = {g: max(abs(cost[g] - cost[o]) for o in (abs(g - 2), min(g + 2, votes))) for g in gaps}
    assert any(one_sided(g) < truth[g] - 1e-12 for g in gaps) or any(
        one_sided(g + 2) > math.exp(beta) * one_sided(g) * (1 + 1e-9) for g in gaps if g + 2 <= votes
    )


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [math.exp(0.05), math.exp(-0.05), 1.0, math.exp(0.02)])
def test_the_release_costs_no_less_than_the_divergence_between_its_two_gaussians(ratio: float) -> None:
    release = SmoothRelease(beta=0.05, noise=5.0, scale_noise=1e9)
    order, shift = 6.0, min(1.0, ratio)

    def integrand(x: mpmath.mpf) -> mpmath.mpf:
        p = mpmath.npdf(x, 0, release.noise)
        return p**order * mpmath.npdf(x, shift, release.noise * ratio) ** (1 - order)

    exact = float(mpmath.log(mpmath.quad(integrand, [-400, -50, 0, 50, 400])) / (order - 1))
    charged = float(release.charge([order]).values[0])
    assert exact <= charged
    if ratio == math.exp(-0.05):
        assert charged <= exact * 1.01


def test_a_release_costs_infinity_beyond_its_largest_order() -> None:
    release = SmoothRelease(beta=0.05)
    assert math.isinf(release.charge([11.0]).values[0])
    assert math.isfinite(release.charge([10.0]).values[0])


@pytest.mark.slow
def test_the_ceiling_is_above_the_true_cost() -> None:
    """1,000 releases with failure 1e-6 each: a true implementation fails this with probability below 1e-3."""
    generator = np.random.default_rng(5)
    counts = generator.multinomial(50, [0.8, 0.1, 0.1], size=40)
    envelope = envelope_for(counts, "gaussian", 10.0, 8.0)
    truth, release = total_cost(counts, envelope).reveal(), SmoothRelease()
    for _ in range(1000):
        published = release.release_epsilon(counts, envelope, 8.0, [8.0], normal=generator.standard_normal)
        assert published.ceiling >= truth


@pytest.mark.slow
def test_what_a_ceiling_is_worth() -> None:
    """1,000 queries of 250 teachers, mean gap 83 %, noise at its mean: good for LNMax, no use for GNMax."""
    generator = np.random.default_rng(1)
    leads = generator.beta(12, 2, size=1000)
    counts = np.stack([generator.multinomial(250, [lead, *([(1 - lead) / 9] * 9)]) for lead in leads])
    release, epsilons = SmoothRelease(beta=0.04, noise=3.0, scale_noise=10.0), []
    for noise, scale in (("discrete-laplace", 20.0), ("gaussian", 40.0)):
        envelope = envelope_for(counts, noise, scale, 6.0)
        published = release.release_epsilon(counts, envelope, 6.0, [6.0], failure=1e-3, normal=lambda: 0.0)
        labels = RenyiCurve((6.0,), np.array([published.ceiling]))
        epsilons.append((labels + published.charge).to_epsilon(1e-5).epsilon)
    # By the exact accountant, whatever the votes are: 7.77 and 3.87 (docs/privacy.md, "The exact accountant").
    assert epsilons[0] < 6.4
    assert epsilons[1] > 3.88


def test_a_secret_never_shows_itself() -> None:
    secret = total_cost(np.array([[3, 1]]), np.array([7.5, 7.5, 7.25, 7.0, 6.5]))
    assert secret.reveal() == 7.25
    for shown in (repr(secret), str(secret), f"{secret}", f"{secret:.3f}", f"{[secret]}"):
        assert "7.25" not in shown and "<secret>" in shown
    with pytest.raises(TypeError):
        json.dumps(secret)
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert Secret(1.0) != Secret(1.0)


def test_queries_with_different_numbers_of_votes_are_refused() -> None:
    with pytest.raises(DataError):
        envelope_for(np.array([[3, 1], [2, 1]]), "laplace", 2.0, 2.0)
