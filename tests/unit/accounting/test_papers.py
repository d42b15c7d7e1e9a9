"""Published bounds reproduce where they are right and are not followed where they are wrong."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from collegium_reproduction.paper_bounds import lemma_4_log_q, theorem_3, theorem_6
from collegium_reproduction.secret_epsilons import exact_loss
from dp_accounting import rdp
from scipy.special import logsumexp

from collegium_accounting.divergences.independent import sampled_gaussian_curve, theorem_2
from collegium_accounting.mechanisms import Adjacency, Unit, create
from collegium_accounting.renyi import (
    PAPER_ORDERS,
    WIDE_ORDERS,
    Conversion,
    RenyiCurve,
    discrete_laplace_curve,
    gaussian_curve,
    laplace_curve,
)

INTEGERS = tuple(order for order in WIDE_ORDERS if order == int(order))


def strong_composition(epsilon, times, delta):
    return times * epsilon**2 + epsilon * math.sqrt(2 * times * math.log(1 / delta))


def test_gamma_005_is_laplace_scale_20_and_reproduces_strong_composition():
    assert create("lnmax", gamma=0.05).parameters() == {"gamma": 0.05}
    assert (theorem_2(0.05, (8192.0,), Unit()).values == 0.1).all()
    assert strong_composition(0.1, 100, 1e-5) == pytest.approx(5.80, abs=0.01)
    assert strong_composition(0.1, 1000, 1e-6) == pytest.approx(26.6, abs=0.05)


def test_theorem_3_never_leaves_its_condition():
    """Where q ≥ 1/(e^{2γ} + 1) the formula turns negative at larger γ; the flat bound is returned instead."""
    votes, gamma = [[30, 28]], 1.05
    q = float(np.exp(lemma_4_log_q(votes, gamma))[0])
    assert 1 / (math.exp(2 * gamma) + 1) < q < 0.5
    moment = 1.0
    copied = (1 - q) * ((1 - q) / (1 - math.exp(2 * gamma) * q)) ** moment + q * math.exp(2 * gamma * moment)
    assert copied < 1  # its logarithm is no cost at all: the copied script's mistake
    assert theorem_3(votes, gamma, (moment + 1,))[0, 0] == theorem_2(gamma, (moment + 1,), Unit()).values[0]
    assert (theorem_3(votes, gamma, WIDE_ORDERS) >= 0).all()


def test_eight_moments_cannot_go_below_their_floor():
    nothing = RenyiCurve.zero(PAPER_ORDERS)
    assert nothing.to_epsilon(1e-5, Conversion.CLASSIC).epsilon == pytest.approx(math.log(1e5) / 8)
    assert RenyiCurve.zero(WIDE_ORDERS).to_epsilon(1e-5, Conversion.CLASSIC).epsilon < 0.002


def test_data_dependent_bounds_never_exceed_the_flat_ones():
    votes = np.random.default_rng(0).multinomial(250, np.full(10, 0.1), 50)
    for k in (1, 3):
        assert (theorem_3(votes, 0.05, WIDE_ORDERS, Unit(k)) <= theorem_2(0.05, WIDE_ORDERS, Unit(k)).values).all()
        flat = gaussian_curve(k * math.sqrt(2), 40, WIDE_ORDERS).values
        assert (theorem_6(votes, 40, WIDE_ORDERS, Unit(k)) <= flat * (1 + 1e-12)).all()


def test_gnmax_charges_sensitivity_root_two():
    """Sensitivity 1 in place of √2 would halve the cost."""
    published = create("gnmax", sigma=40.0).stages[0].charge((2.0,), Unit()).values[0]
    assert published == pytest.approx(2 / 40**2)
    reference = dp_accounting.rdp.RdpAccountant([2.0, 8.0])
    reference.compose(dp_accounting.GaussianDpEvent(40 / math.sqrt(2)))
    ours = create("gnmax", sigma=40.0).stages[0].charge((2.0, 8.0), Unit()).values
    np.testing.assert_allclose(ours, reference._rdp, rtol=1e-12)


@pytest.mark.bits
@pytest.mark.parametrize(
    ("rate", "sigma"), [(0.25, 85), (0.01, 1.1), (0.15, 17.7), (0.5, 2.0), (0.001, 0.7), (0.1, 0.3)]
)
def test_sampled_gaussian_agrees_with_dp_accounting(rate, sigma):
    accountant = rdp.RdpAccountant(list(INTEGERS))
    accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma)))
    ours = sampled_gaussian_curve(1, sigma, rate, INTEGERS).values
    np.testing.assert_allclose(ours, np.minimum(accountant._rdp, np.array(INTEGERS) / (2 * sigma**2)), rtol=1e-6)


def sampled_divergences(sigma, rate, orders, step):
    """D_α of (1 − γ)·N(0, σ²) + γ·N(1, σ²) and N(0, σ²), both directions, on multiples of ``step`` (1: discrete)."""
    x = np.arange(-12 * sigma - 8, 12 * sigma + 8, step) if step < 1 else np.arange(-60.0, 61.0)
    log_q = -0.5 * (x / sigma) ** 2
    log_q -= logsumexp(log_q)
    log_p = log_q + np.log1p(rate * np.expm1((x - 0.5) / sigma**2))
    alpha = np.array(orders)[:, None]
    there, back = (logsumexp(alpha * a + (1 - alpha) * b, axis=1) for a, b in ((log_p, log_q), (log_q, log_p)))
    return np.maximum(there, back) / (alpha[:, 0] - 1)


@pytest.mark.parametrize(("sigma", "rate"), [(0.5, 0.3), (0.7, 0.1), (1.5, 0.1), (4.0, 0.5)])
def test_sampled_gaussian_covers_continuous_and_discrete_noise_at_fractional_orders(sigma, rate):
    orders = (1.1, 1.5, 1.9, 2.0, 2.5, 3.0, 3.5, 7.75)
    ours = sampled_gaussian_curve(1, sigma, rate, orders).values
    for step in (1e-3, 1.0):
        exact = sampled_divergences(sigma, rate, orders, step)
        assert (ours >= exact * (1 - 1e-9)).all()
        np.testing.assert_allclose(ours[[3, 5]], exact[[3, 5]], rtol=1e-6)


def test_the_continuous_value_is_no_bound_for_discrete_noise_at_fractional_orders():
    """Planted bug: the integral for continuous noise in place of the chord."""
    continuous, discrete = (sampled_divergences(0.7, 0.1, (1.5,), step)[0] for step in (1e-3, 1.0))
    assert discrete > continuous * 1.0005


@pytest.mark.parametrize("scale", (2.0, 20.0))
@pytest.mark.parametrize("shift", (1, 3))
def test_laplace_curves_are_the_divergence_of_shifted_noise(scale, shift):
    x = np.arange(-int(60 * scale), int(60 * scale) + 1)
    p, q = -np.abs(x) / scale, -np.abs(x - shift) / scale
    p, q = p - np.logaddexp.reduce(p), q - np.logaddexp.reduce(q)
    t = np.linspace(-60 * scale, 60 * scale, 480_001)
    f, g = -np.abs(t) / scale, -np.abs(t - shift) / scale
    f, g = f - np.logaddexp.reduce(f), g - np.logaddexp.reduce(g)
    for order in (1.5, 4.0):
        discrete = np.logaddexp.reduce(order * p + (1 - order) * q) / (order - 1)
        continuous = np.logaddexp.reduce(order * f + (1 - order) * g) / (order - 1)
        assert discrete_laplace_curve(shift, scale, (order,)).values[0] == pytest.approx(discrete, rel=1e-6)
        assert laplace_curve(shift, scale, (order,)).values[0] == pytest.approx(continuous, rel=1e-4)


@pytest.mark.parametrize("name", ("lnmax", "gnmax", "exponential", "confident-gnmax"))
def test_charges_grow_with_votes_and_stay_above_every_exact_loss(name):
    parameters = {
        "lnmax": {"gamma": 0.05},
        "gnmax": {"sigma": 40.0},
        "exponential": {"gamma": 0.05},
        "confident-gnmax": {"sigma1": 150.0, "sigma2": 40.0, "threshold": 150.0},
    }
    mechanism = create(name, **parameters[name])
    votes = np.array([[125, 125, 0], [124, 126, 0], [250, 0, 0], [84, 83, 83], [150, 90, 10]])
    for adjacency in Adjacency:
        one, three = (
            sum(stage.charge(WIDE_ORDERS, Unit(k, adjacency)).values for stage in mechanism.stages) for k in (1, 3)
        )
        assert (three >= one).all()
        for discrete in (False, True):
            loss = exact_loss(mechanism, votes, WIDE_ORDERS, adjacency, discrete=discrete)
            assert (loss <= one * (1 + 1e-6)).all()
