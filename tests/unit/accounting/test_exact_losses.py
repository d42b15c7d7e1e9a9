"""The exact loss is what its definition says, for every noise, and the published bounds stand above it."""

from __future__ import annotations

import math

import independent_evaluation as independent
import numpy as np
import pytest
from collegium_reproduction.exact_losses import exact_divergences
from collegium_reproduction.paper_bounds import theorem_3, theorem_6

from collegium_accounting.divergences.grids import NoiseLaw, ThresholdTestLaw
from collegium_accounting.renyi import WIDE_ORDERS, Conversion, RenyiCurve
from collegium_accounting.units import Adjacency

KINDS = ("gaussian", "laplace", "gumbel", "discrete-gaussian", "discrete-laplace")
ORDERS = (1.5, 2.0, 8.0, 64.0)


def histograms(seed, how_many):
    """2 to 20 classes, 1 to 1,000 teachers, with ties, unanimity and a single teacher."""
    generator = np.random.default_rng(seed)
    found = [(1, 0), (0, 1), (7, 7), (5, 5, 5), (300, 0, 0, 0), (0, 0, 300), (1,) + (0,) * 19, (500, 499, 1)]
    while len(found) < how_many:
        classes = int(generator.integers(2, 6))
        teachers = int(10 ** generator.uniform(0, 3))
        found.append(tuple(generator.multinomial(teachers, generator.dirichlet(np.full(classes, 0.7))).tolist()))
    found[-1] = tuple(np.repeat([40, 3, 0], [2, 6, 12]).tolist())
    found[-2] = tuple(np.repeat([700, 30, 10], [1, 1, 18]).tolist())
    return found


@pytest.mark.bits
@pytest.mark.parametrize("kind", KINDS)
def test_exact_loss_agrees_with_the_definition_on_50_histograms(kind):
    generator = np.random.default_rng(2)
    compared = 0
    for histogram in histograms(1, 50):
        scale = float(generator.uniform(25, 60)) if max(histogram) > 30 else float(generator.uniform(2, 60))
        if kind.startswith("discrete") and len(histogram) > 6:
            histogram = histogram[-6:]
        ours = exact_divergences([histogram], NoiseLaw(kind, scale), ORDERS)[0]
        reference = independent.exact_loss(histogram, kind, scale, ORDERS)
        # Below 1e-9 the definition in doubles has lost its digits; the tiny cases have their own test.
        clear = reference > 1e-9
        compared += int(clear.sum())
        np.testing.assert_allclose(ours[clear], reference[clear], rtol=1e-6)
        np.testing.assert_allclose(ours[~clear], reference[~clear], atol=1e-12)
    assert compared > 100


@pytest.mark.parametrize("kind", ("gaussian", "laplace", "discrete-gaussian", "discrete-laplace"))
def test_exact_loss_when_a_vote_comes_or_goes(kind):
    for histogram in ((20, 5, 0), (3, 3), (60, 40, 40, 1)):
        ours = exact_divergences([histogram], NoiseLaw(kind, 9.0), ORDERS, adjacency=Adjacency.ADD_REMOVE)[0]
        np.testing.assert_allclose(ours, independent.exact_loss(histogram, kind, 9.0, ORDERS, "add-remove"), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("histogram", "sigma"), [((40, 0), 4), ((9, 2, 0), 3), ((4, 4, 3), 0.4), ((60, 1), 1)])
def test_tiny_losses_and_small_noise_agree_with_30_digits(histogram, sigma):
    reference = independent.exact_loss(
        histogram,
        "gaussian",
        sigma,
        (1.5, 4.0),
        law=independent.precise_gaussian_law,
        divergence=independent.precise_divergence,
    )
    ours = exact_divergences([histogram], NoiseLaw("gaussian", sigma), (1.5, 4.0))[0]
    np.testing.assert_allclose(ours, reference, rtol=1e-6, atol=1e-28)


def test_one_class_costs_nothing():
    for kind in KINDS:
        assert exact_divergences([[12]], NoiseLaw(kind, 3.0), ORDERS).max() < 1e-12


def test_both_directions_are_covered_where_the_forward_bound_is_too_small():
    noise = NoiseLaw("gaussian", 4.0)
    both = exact_divergences([[40, 0]], noise, (4.0,))[0, 0]
    forward = exact_divergences([[40, 0]], noise, (4.0,), directions="forward")[0, 0]
    published = theorem_6([[40, 0]], 4.0, (4.0,))[0, 0]
    assert both == pytest.approx(5.3e-9, rel=0.02)
    assert forward <= published < both  # one direction only: the planted bug


@pytest.mark.bits
@pytest.mark.parametrize(("kind", "bound", "noise"), [("laplace", theorem_3, 0.05), ("gaussian", theorem_6, 40.0)])
def test_forward_loss_is_never_above_the_published_bound(kind, bound, noise):
    votes = np.array([h for h in histograms(3, 60) if len(h) > 1 and len(h) < 6], dtype=object)
    for histogram in votes:
        scale = 1 / noise if kind == "laplace" else noise
        forward = exact_divergences([histogram], NoiseLaw(kind, scale), WIDE_ORDERS, directions="forward")
        assert (forward <= bound([histogram], noise, WIDE_ORDERS) * (1 + 1e-9) + 1e-15).all()


@pytest.mark.bits
@pytest.mark.parametrize("kind", KINDS)
def test_loss_grows_with_the_order_and_stays_below_every_classic_bound(kind):
    votes = np.random.default_rng(4).multinomial(250, np.full(10, 0.1), 20)
    flat = {"gaussian": lambda s: np.asarray(WIDE_ORDERS) / s**2}.get(
        kind.removeprefix("discrete-"), lambda s: np.minimum(2 / s, 2 * np.asarray(WIDE_ORDERS) / s**2)
    )
    scales = (10.0, 20.0, 40.0)
    totals = []
    for scale in scales:
        loss = exact_divergences(votes, NoiseLaw(kind, scale), WIDE_ORDERS)
        assert (np.diff(loss, axis=1) >= -1e-12).all()
        assert (loss <= flat(scale) * (1 + 1e-9)).all()
        totals.append(loss.sum(axis=0))
    assert (totals[0] >= totals[1]).all() and (totals[1] >= totals[2]).all()


def test_orders_are_pruned_without_changing_the_largest():
    votes = np.random.default_rng(5).multinomial(100, [0.5, 0.2, 0.2, 0.1], 40)
    noise = NoiseLaw("laplace", 10.0)
    together = exact_divergences(votes, noise, WIDE_ORDERS)
    one_by_one = np.concatenate([exact_divergences(votes, noise, (order,)) for order in WIDE_ORDERS], axis=1)
    np.testing.assert_allclose(together, one_by_one, rtol=1e-9)


def test_order_of_classes_matters_only_where_ties_do():
    histogram = [[30, 20, 10]]
    turned = [[10, 20, 30]]
    for kind in KINDS:
        same = np.allclose(
            exact_divergences(histogram, NoiseLaw(kind, 5.0), ORDERS),
            exact_divergences(turned, NoiseLaw(kind, 5.0), ORDERS),
            rtol=1e-9,
        )
        assert same != kind.startswith("discrete")


@pytest.mark.parametrize("discrete", (False, True))
def test_confident_mechanism_has_one_outcome_more(discrete):
    sigma1, sigma2, threshold = 12.0, 6.0, 30.5
    kind = "discrete-gaussian" if discrete else "gaussian"

    def law(histogram, kind, scale):
        if discrete:
            x = np.arange(-400, 401)
            mass = np.exp(-0.5 * (x / sigma1) ** 2)
            passes = mass[max(histogram) + x >= threshold].sum() / mass.sum()
        else:
            passes = 0.5 * math.erfc((threshold - max(histogram)) / (sigma1 * math.sqrt(2)))
        return np.append(passes * independent.winning_law(histogram, kind, scale), 1 - passes)

    screen = ThresholdTestLaw(sigma1, threshold, discrete)
    for histogram in ((40, 5, 5), (20, 20, 10), (31, 30), (1, 0, 0), (25, 24, 1)):
        ours = exact_divergences([histogram], NoiseLaw(kind, sigma2), ORDERS, screen=screen)[0]
        np.testing.assert_allclose(ours, independent.exact_loss(histogram, kind, sigma2, ORDERS, law=law), rtol=1e-6)


def test_expected_release_cost_is_not_a_bound_for_the_confident_mechanism():
    """Threshold + Pr[answered] × release falls below the true loss at high orders."""
    sigma1, sigma2, threshold = 150.0, 10.0, 280.0
    votes, order = [[130, 120]], 200.0
    screen = ThresholdTestLaw(sigma1, threshold)
    true = exact_divergences(votes, NoiseLaw("gaussian", sigma2), (order,), screen=screen)[0, 0]
    answered = float(np.exp(screen.log_pass(np.array([130])))[0])
    release = exact_divergences(votes, NoiseLaw("gaussian", sigma2), (order,))[0, 0]
    test = order / (2 * sigma1**2)
    assert test + answered * release < true < test + release


@pytest.mark.bits
def test_strong_consensus_costs_what_the_definition_says():
    """Mean gap near 75 %: LNMax by Theorem 3 with eight moments, against the exact loss on a wide grid."""
    generator = np.random.default_rng(6)
    top = np.round(250 * generator.beta(9.0, 1.6, 1000)).astype(int)
    votes = np.array([[t, *generator.multinomial(250 - t, generator.dirichlet(np.ones(9)))] for t in top])
    paper = RenyiCurve(tuple(range(2, 10)), theorem_3(votes, 0.05, range(2, 10)).sum(axis=0))
    exact = RenyiCurve(WIDE_ORDERS, exact_divergences(votes, NoiseLaw("laplace", 20.0), WIDE_ORDERS).sum(axis=0))
    assert exact.to_epsilon(1e-5).epsilon < paper.to_epsilon(1e-5, Conversion.CLASSIC).epsilon / 2
