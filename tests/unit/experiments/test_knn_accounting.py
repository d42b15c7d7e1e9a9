"""The rows on Private-kNN's ε: what the paper's parameters give, and what its worst case is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from collegium_reproduction.experiments import knn_accounting, knn_screening
from collegium_reproduction.experiments.knn_accounting import TABLE_1, Figure4, certified_epsilon, rate_for
from collegium_reproduction.experiments.knn_screening import (
    LOWEST,
    NEIGHBOURS,
    SCREEN,
    analyses,
    epsilon,
    share_of,
    top_cost,
)
from collegium_reproduction.screening import screening_curve
from unit.experiments.conftest import silent

from collegium_accounting.renyi import Conversion

MNIST, SVHN, CIFAR = TABLE_1


def _epsilon(published: knn_accounting.Published, conversion: Conversion, rate: float | None = None) -> float:
    return published.renyi(conversion, rate)


def test_the_four_published_values_of_figure_5_reproduce() -> None:
    curves = analyses(np.full(knn_screening.QUERIES, 210))
    for name, published in (
        ("gaussian", 5.68),
        ("screening", 4.44),
        ("sampled-gaussian", 1.313),
        ("sampled-screening", 1.042),
    ):
        assert epsilon(curves[name]) == pytest.approx(published, abs=0.005)


def test_screening_by_votes_costs_less_than_the_worst_case_and_as_much_at_the_threshold() -> None:
    far = analyses(np.full(knn_screening.QUERIES, LOWEST))
    near = analyses(np.full(knn_screening.QUERIES, int(SCREEN.threshold)))
    assert epsilon(far["votes"]) < 0.6 * epsilon(far["screening"])
    assert epsilon(near["votes"]) == pytest.approx(epsilon(near["screening"]), rel=1e-2)
    assert epsilon(near["votes"]) <= epsilon(near["screening"])
    assert epsilon(share_of(near["votes"], 0)) < epsilon(share_of(near["votes"], 100)) < epsilon(near["votes"])


def test_table_1_does_not_follow_from_its_stated_parameters() -> None:
    assert _epsilon(MNIST, Conversion.CLASSIC) == pytest.approx(1.17, abs=0.02)
    assert _epsilon(SVHN, Conversion.CLASSIC) == pytest.approx(0.19, abs=0.01)
    assert _epsilon(CIFAR, Conversion.CLASSIC) == pytest.approx(4.9, abs=0.1)


def test_the_rate_that_gives_a_claimed_epsilon_does_give_it() -> None:
    rate = rate_for(MNIST)
    assert _epsilon(MNIST, Conversion.CLASSIC, rate) == pytest.approx(MNIST.claimed, rel=2e-3)
    assert rate < MNIST.mechanism.sampling_rate
    assert np.isnan(rate_for(replace(MNIST, claimed=1e6)))


def test_charging_for_the_winner_alone_costs_less_than_for_all_counts() -> None:
    """The exact accountant takes minutes for all queries of a row: `collegium reproduce knn-table-1-accounting`.

    These are so many as in docs/choosing-noise.md, whose test needs the same game: it is played once.
    """
    few = replace(MNIST, screened=200, answered=200)
    assert 0.6 < certified_epsilon(few) / _epsilon(few, Conversion.IMPROVED) < 0.9


def test_no_count_alone_costs_more_than_what_is_charged() -> None:
    orders = knn_screening.ORDERS_6
    bound = screening_curve(SCREEN, LOWEST, NEIGHBOURS, orders).values
    costs = np.stack([top_cost(top, orders).values for top in range(LOWEST, NEIGHBOURS + 1)])
    assert np.array_equal(costs.max(axis=0), bound)


def test_the_worst_case_leaves_the_threshold_at_large_orders_and_is_not_at_k() -> None:
    orders = (2.0, 400.0)
    costs = np.stack([top_cost(top, orders).values for top in range(LOWEST, NEIGHBOURS + 1)])
    worst = LOWEST + costs.argmax(axis=0)
    assert abs(worst[0] - SCREEN.threshold) <= 1
    assert worst[1] < SCREEN.threshold - SCREEN.sigma1
    assert top_cost(NEIGHBOURS, orders).values[1] < 0.9 * costs[:, 1].max()


def test_figure_4_rises_with_queries_and_with_the_sampling_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knn_accounting, "FIGURE_4_RATES", (0.02, 0.1))
    monkeypatch.setattr(knn_accounting, "FIGURE_4_QUERIES", (0, 1000, 6000))
    results = Figure4().run(silent(tmp_path))
    low, high = results["series"]["0.02"], results["series"]["0.1"]
    assert low[0][1:] == [[0.0, 0.0], [0.0, 0.0]]
    for small, large in zip(low[1:], high[1:], strict=True):
        assert small[1][0] < large[1][0]
        assert small[1][0] < small[2][0]
        assert small[1][1] < small[1][0]
    assert low[1][1][0] < low[2][1][0]
    assert "0.1" in Figure4().render(results)
