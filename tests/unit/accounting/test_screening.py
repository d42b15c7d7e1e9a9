"""Screening, loss distributions and filters over several orders give the known values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from collegium_reproduction import loss_distributions as pld
from collegium_reproduction.screening import (
    private_knn_curve,
    screening_curve,
    unbounded_screening_curve,
)
from support.renyi_filter import RenyiFilter

from collegium.errors import BudgetExceeded, ConfigurationError
from collegium_accounting.divergences.grids import ThresholdTestLaw
from collegium_accounting.divergences.independent import sampled_gaussian_curve, theorem_2
from collegium_accounting.mechanisms import Unit, create
from collegium_accounting.renyi import (
    WIDE_ORDERS,
    Conversion,
    RenyiCurve,
    gaussian_curve,
)


def test_private_knn_figure_5_reproduces():
    screen, delta = ThresholdTestLaw(85, 210), 1e-5

    def epsilon(curve):
        return (curve * 8192).to_epsilon(delta, Conversion.CLASSIC).epsilon

    fine = tuple(1 + x / 50 for x in range(1, 800))
    assert epsilon(gaussian_curve(1, 85, fine)) == pytest.approx(5.68, abs=0.01)
    assert epsilon(screening_curve(screen, 30, 300, fine)) == pytest.approx(4.44, abs=0.01)
    assert epsilon(sampled_gaussian_curve(1, 85, 0.25, WIDE_ORDERS)) == pytest.approx(1.313, abs=0.002)
    assert epsilon(screening_curve(screen, 30, 300, WIDE_ORDERS, sampling_rate=0.25)) == pytest.approx(1.042, abs=0.002)


def test_private_knn_table_1_costs_117_by_its_stated_parameters():
    mechanism = create("knn", k=300, classes=10, threshold=180, sigma1=75, sigma2=25, sampling_rate=0.15)
    total = private_knn_curve(mechanism, WIDE_ORDERS, 1000, 735)
    assert total.to_epsilon(1e-5, Conversion.CLASSIC).epsilon == pytest.approx(1.17, abs=0.02)


def test_screening_keeps_every_pair_not_only_the_last():
    screen = ThresholdTestLaw(85, 210)
    everything = screening_curve(screen, 30, 300, (8.0,)).values[0]
    last = screening_curve(screen, 299, 300, (8.0,)).values[0]
    assert last < everything <= gaussian_curve(1, 85, (8.0,)).values[0]
    assert unbounded_screening_curve(screen, (8.0,)).values[0] >= everything


def test_threshold_search_reaches_every_count_that_matters():
    """A range ten times as wide finds nothing larger."""
    for sigma in (2.0, 30.0):
        for votes in (1, 3):
            wide = screening_curve(ThresholdTestLaw(sigma, 2000.4), 0, 4000, (2.0, 16.0, 64.0), votes).values
            ours = unbounded_screening_curve(ThresholdTestLaw(sigma, 0.4), (2.0, 16.0, 64.0), votes).values
            assert (ours >= wide * (1 - 1e-12)).all()


def test_sampling_half_the_records_is_between_none_and_all():
    screen = ThresholdTestLaw(20, 40)
    whole = screening_curve(screen, 10, 100, WIDE_ORDERS).values
    half = screening_curve(screen, 10, 100, WIDE_ORDERS, sampling_rate=0.5).values
    nearly_all = screening_curve(screen, 10, 100, WIDE_ORDERS, sampling_rate=1.0 - 1e-12).values
    np.testing.assert_allclose(nearly_all, whole, rtol=1e-9)
    assert (half < whole).all()


def test_loss_distributions_give_the_known_values():
    assert pld.composed_epsilon([(pld.gaussian_loss(40, math.sqrt(2)), 1000)], 1e-5) == pytest.approx(4.98, abs=0.01)
    assert (gaussian_curve(math.sqrt(2), 40, WIDE_ORDERS) * 1000).to_epsilon(1e-5).epsilon == pytest.approx(
        5.38, abs=0.01
    )
    laplace = pld.composed_epsilon([(pld.laplace_loss(0.05, Unit()), 1000)], 1e-5)
    assert laplace < (theorem_2(0.05, WIDE_ORDERS, Unit()) * 1000).to_epsilon(1e-5).epsilon


def test_filter_admits_until_the_budget_and_then_refuses_without_charging():
    charge = gaussian_curve(math.sqrt(2), 40, WIDE_ORDERS)
    order = (charge * 100).to_epsilon(1e-5).order
    single = RenyiCurve((order,), charge.values[[WIDE_ORDERS.index(order)]])
    budget = (single * 100).to_epsilon(1e-5).epsilon
    guard = RenyiFilter(budget * (1 + 1e-12), 1e-5, (order,))
    for _ in range(100):
        guard.charge(single)
    with pytest.raises(BudgetExceeded, match="next charge"):
        guard.charge(single)
    np.testing.assert_allclose(guard.spent.values, single.values * 100)


def test_filter_over_many_orders_pays_for_choosing_among_them():
    charge = gaussian_curve(1, 5, WIDE_ORDERS)
    ordinary = charge.to_epsilon(1e-5).epsilon
    assert not RenyiFilter(ordinary, 1e-5, WIDE_ORDERS).admits(charge)
    assert RenyiFilter(ordinary * 1.5, 1e-5, WIDE_ORDERS).admits(charge)


@pytest.mark.parametrize("values", [(0.1,), (0.1,) * 3, ((0.1, 0.1),)])
def test_a_curve_has_one_value_for_each_order(values):
    with pytest.raises(ConfigurationError, match="a curve over 2 orders needs as many values"):
        RenyiCurve((2.0, 3.0), values)


@pytest.mark.parametrize(("value", "delta"), [(-0.1, 0.0), (math.nan, 0.0), (0.1, -1e-9), (0.1, 1.0), (0.1, math.nan)])
def test_a_curve_pays_nothing_back(value, delta):
    with pytest.raises(ConfigurationError, match=r"non-negative numbers and δ lies in \[0, 1\)"):
        RenyiCurve((2.0, 3.0), (0.1, value), delta)


def test_curves_over_other_orders_are_not_composed():
    with pytest.raises(ConfigurationError, match="different orders"):
        RenyiCurve((2.0, 3.0), (0.1, 0.1)) + RenyiCurve((2.0, 4.0), (0.1, 0.1))


def test_epsilon_is_of_a_delta_that_the_curve_itself_does_not_use_up():
    curve = RenyiCurve((2.0, 3.0), (0.1, 0.1), 1e-6)
    assert curve.to_epsilon(2e-6).epsilon < math.inf == curve.to_epsilon(1e-6).epsilon
    for delta in (0.0, 1.0, -1e-5, math.nan):
        with pytest.raises(ConfigurationError, match="delta must lie in"):
            curve.to_epsilon(delta)
