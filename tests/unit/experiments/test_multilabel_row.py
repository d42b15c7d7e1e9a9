"""The row on several labels at once: what a record can move, what τ costs and what it does to the labels."""

from __future__ import annotations

import numpy as np
import pytest

from collegium.coordinator.mechanisms import SeededNoise
from collegium.coordinator.mechanisms.multilabel import MultiLabel
from collegium.protocol.multilabel import RESOLUTION
from collegium.protocol.renyi import Conversion
from collegium.simulations.experiments.multilabel import (
    ATTRIBUTES,
    DIGITS_WITH,
    PAPER,
    TYPICAL_ONES,
    attributes,
    clipped_sums,
    cost,
    measured,
)


def _drawn(rows: slice, columns: slice, value: int = 255) -> np.ndarray:
    image = np.zeros((28, 28, 1), dtype=np.uint8)
    image[rows, columns] = value
    return image


def test_measures_follow_the_ink() -> None:
    thin, thick = _drawn(slice(4, 24), slice(13, 15)), _drawn(slice(4, 24), slice(8, 20))
    low = _drawn(slice(14, 28), slice(13, 15))
    leaning = np.zeros((28, 28, 1), dtype=np.uint8)
    for row in range(4, 24):
        leaning[row, 26 - row] = 255
    ink, width, slant, height = measured(np.stack([thin, thick, low, leaning])).T
    assert ink[1] > ink[0]
    assert (width[0], width[1]) == (2, 12)
    assert slant[3] == pytest.approx(1.0, abs=0.05)
    assert slant[0] == pytest.approx(0.0, abs=0.05)
    assert height[2] > height[0]


def test_attributes_of_a_digit_are_what_their_names_say() -> None:
    images = np.stack([_drawn(slice(4, 24), slice(13, 15))] * 10)
    held = attributes(images, np.arange(10), np.full(4, 1e9))
    for column, digits in enumerate(DIGITS_WITH.values()):
        assert tuple(np.flatnonzero(held[:, column])) == digits
    assert not held[:, len(DIGITS_WITH) :].any()
    assert len(ATTRIBUTES) == 10
    assert held.sum(axis=1).mean() + 2 == pytest.approx(TYPICAL_ONES)


def test_a_record_moves_the_clipped_sums_by_no_more_than_is_charged() -> None:
    rng = np.random.default_rng(3)
    distances = rng.permutation(120)[:, None].astype(np.int64)
    held = rng.integers(0, 2, (120, len(ATTRIBUTES)))
    for tau in (1.0, 3.0, 10.0):
        whole = clipped_sums(distances, held, (tau,), 20, 1.0, 0)[0]
        moved = [
            clipped_sums(np.delete(distances, gone, 0), np.delete(held, gone, 0), (tau,), 20, 1.0, 0)[0] - whole
            for gone in range(120)
        ]
        largest = max(float((change**2).sum()) for change in moved) / RESOLUTION**2
        assert 0 < largest <= 2 * tau


def test_every_query_draws_its_own_sample_at_the_stated_rate() -> None:
    # The sums count the sampled records: 400 queries of 500 records at rate 0.2. A count is binomial with mean 100 and
    # deviation 9; the mean of 400 lies within 6 deviations, 2.7, but with probability below 1e-8.
    distances = np.zeros((500, 400), dtype=np.int64)
    sizes = clipped_sums(distances, np.ones((500, 1), dtype=np.int64), (1.0,), 500, 0.2, 1)[0][:, 0] / RESOLUTION
    assert abs(sizes.mean() - 100) < 2.7
    assert len(np.unique(sizes)) > 20


def test_clipping_costs_less_and_hides_ones_unless_the_threshold_follows() -> None:
    costs = [cost(tau, 50.0, 0.05, 800, 1e-5, Conversion.IMPROVED) for tau in (1.0, 4.0, 10.0)]
    assert costs[0] < costs[1] < costs[2]
    held = np.ones((300, 10), dtype=np.int64)
    sums = clipped_sums(np.zeros((300, 1), dtype=np.int64), held, (3.0,), 300, 1.0, 0)[0]
    half, lowered = (MultiLabel(5.0, 3.0, voters).stages[0].run(sums, SeededNoise(0)) for voters in (300, 150))
    assert not half.any()
    assert lowered.all()


def test_the_rows_of_table_3_cost_less_than_the_paper_says() -> None:
    for (_, sigma, rate, queries, delta, claimed), ours in zip(PAPER, (0.680, 0.676, 0.376, 0.758), strict=True):
        epsilon = cost(10.0, sigma, rate, queries, delta, Conversion.CLASSIC)
        assert epsilon == pytest.approx(ours, abs=0.002)
        assert epsilon < claimed
