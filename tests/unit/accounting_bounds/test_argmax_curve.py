"""The certified argmax bound as a function: its published values, its caps, its cache and its refusals."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from collegium.errors import ConfigurationError
from collegium.privacy.accounting.argmax import cache as argmax_cache
from collegium.privacy.accounting.argmax.bound import (
    NOISES,
    argmax_curve,
    bounded_range_curve,
    classic_curve,
    sampled_argmax_curve,
)
from collegium.privacy.renyi import WIDE_ORDERS, RenyiCurve
from collegium.privacy.units import Adjacency

pytestmark = pytest.mark.slow

ORDERS = (2.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 16.0, 64.0)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.getbasetemp() / "argmax-cache"
    monkeypatch.setattr(argmax_cache.platformdirs, "user_cache_dir", lambda name: str(folder))
    return folder


def test_gaussian_shares_of_the_published_bound() -> None:
    curve = dict(zip(ORDERS, argmax_curve("gaussian", 40.0, ORDERS), strict=True))
    for order, share in ((2.0, 0.640), (16.0, 0.643), (64.0, 0.704)):
        assert share - 0.0006 <= curve[order] / (order / 1600.0) <= (share + 0.0006) * 1.01


def test_laplace_shares_of_theorem_2() -> None:
    curve = dict(zip(ORDERS, argmax_curve("laplace", 20.0, ORDERS), strict=True))
    for order, share in ((2.0, 0.329), (16.0, 0.300), (64.0, 0.179)):
        assert share - 0.0006 <= curve[order] / (2 * 0.05**2 * order) <= (share + 0.0006) * 1.01


@pytest.mark.parametrize(
    ("noise", "scale", "queries", "epsilon"),
    [
        ("gaussian", 40.0, 1000, 4.16),
        ("gaussian", 40.0, 286, 2.06),
        ("laplace", 20.0, 100, 2.49),
        ("laplace", 20.0, 1000, 9.65),
    ],
)
def test_epsilon_at_delta_1e_5(noise: str, scale: float, queries: int, epsilon: float) -> None:
    curve = RenyiCurve(ORDERS, argmax_curve(noise, scale, ORDERS)) * queries
    assert epsilon - 0.005 <= curve.to_epsilon(1e-5).epsilon <= (epsilon + 0.005) * 1.005


def test_published_bounds_that_it_is_compared_with() -> None:
    orders = np.array(WIDE_ORDERS)
    gaussian = orders / 40.0**2
    laplace = np.minimum(2 * 0.05, 2 * 0.05**2 * orders)
    for values, queries, epsilon in (
        (gaussian, 1000, 5.38),
        (gaussian, 286, 2.64),
        (laplace, 100, 4.75),
        (laplace, 1000, 19.8),
    ):
        curve = RenyiCurve(WIDE_ORDERS, values) * queries
        assert curve.to_epsilon(1e-5).epsilon == pytest.approx(epsilon, rel=0.003)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_never_above_the_published_bound(noise: str, adjacency: Adjacency) -> None:
    orders = np.array([1.1, 2.0, 8.0, 64.0, 4096.0])
    curve = argmax_curve(noise, 6.0, orders, adjacency)
    assert (curve <= classic_curve(noise, 6.0, orders, adjacency) * (1 + 1e-12)).all()
    assert (np.diff(curve) >= -1e-12).all() and (curve > 0).all()


@pytest.mark.parametrize("noise", NOISES)
def test_more_noise_costs_less(noise: str) -> None:
    few, many = argmax_curve(noise, 5.0, [3.0]), argmax_curve(noise, 8.0, [3.0])
    assert many[0] < few[0]


def test_bounded_range_is_the_largest_over_all_positions_of_two_classes() -> None:
    """A soft-max of two classes whose scores move by γ in opposite directions reaches it, and never more."""
    epsilon = 0.7
    for order in (1.5, 3.0, 20.0):
        best = 0.0
        for lead in np.linspace(-6, 6, 24001):
            p, q = 1 / (1 + np.exp(-lead)), 1 / (1 + np.exp(-(lead - epsilon)))
            moment = p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)
            best = max(best, float(np.log(moment) / (order - 1)))
        bound = float(bounded_range_curve(epsilon, np.array([order]))[0])
        assert best <= bound * (1 + 1e-9)
        assert best >= bound * (1 - 1e-6)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_sampling_never_costs_more_and_shrinks_quadratically_at_small_orders(noise: str) -> None:
    orders = (2.0, 8.0)
    plain = argmax_curve(noise, 20.0, orders)
    tenth, hundredth = (sampled_argmax_curve(noise, 20.0, rate, orders) for rate in (0.1, 0.01))
    assert (tenth < plain).all()
    assert 80 < tenth[0] / hundredth[0] < 120


def test_sampling_with_rate_1_is_no_sampling() -> None:
    assert sampled_argmax_curve("laplace", 20.0, 1.0, [2.0]) == pytest.approx(argmax_curve("laplace", 20.0, [2.0]))


def test_a_second_run_reads_what_the_first_one_found(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = argmax_curve("laplace", 11.0, [2.0])
    monkeypatch.setattr(argmax_cache, "_known", {})

    def refuse(*_: object) -> None:
        raise AssertionError("searched again")

    monkeypatch.setattr("collegium.privacy.accounting.argmax.bound.certified", refuse)
    assert argmax_curve("laplace", 11.0, [2.0])[0] == first[0]


def test_a_damaged_cache_file_is_ignored(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = argmax_curve("laplace", 12.0, [2.0])
    for damage in ("", "[[2.0, -1.0]]", '[[2.0, "NaN"]]', json.dumps({"2.0": 0})):
        for file in (own_cache / "argmax").glob("*.json"):
            file.write_text(damage)
        monkeypatch.setattr(argmax_cache, "_known", {})
        assert argmax_curve("laplace", 12.0, [2.0])[0] == first[0]


def test_an_unwritable_cache_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(argmax_cache.platformdirs, "user_cache_dir", lambda name: os.devnull)
    assert argmax_curve("laplace", 13.0, [2.0])[0] > 0


@pytest.mark.parametrize(
    ("noise", "scale", "orders"), [("cauchy", 1.0, [2.0]), ("laplace", 0.0, [2.0]), ("laplace", 1.0, [1.0])]
)
def test_nonsense_is_refused(noise: str, scale: float, orders: list[float]) -> None:
    with pytest.raises(ConfigurationError):
        argmax_curve(noise, scale, orders)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5])
def test_a_sampling_rate_outside_0_to_1_is_refused(rate: float) -> None:
    with pytest.raises(ConfigurationError):
        sampled_argmax_curve("laplace", 2.0, rate, [2.0])
