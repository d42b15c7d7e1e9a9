"""The row on several labels at once: what a record can move, what τ costs and what it does to the labels."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from collegium_reproduction.clipped_votes import RESOLUTION
from collegium_reproduction.experiments.multilabel import (
    ATTRIBUTES,
    DIGITS_WITH,
    NEIGHBOURS,
    PAPER,
    TYPICAL_ONES,
    attributes,
    clipped_sums,
    epsilons,
    measured,
    mechanism,
    stated_epsilons,
)
from collegium_reproduction.nearest.multilabel_knn import MultiLabelKNN
from collegium_reproduction.nearest.party import SampledRecords

from collegium.data import Examples
from collegium.data.task import ImageInputs
from collegium.models.features import Features
from collegium_accounting.mechanisms import SeededNoise
from collegium_accounting.renyi import WIDE_ORDERS

SMALL = ImageInputs(height=8, width=8)


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


def test_sums_are_over_k_records_of_a_sample_at_the_stated_rate() -> None:
    images = np.random.default_rng(3).integers(0, 256, (400, 8, 8, 1)).astype(np.uint8)
    private, pool = images[:300], images[300:]
    records = SampledRecords(Examples(private, np.full(300, 2**10 - 1)), SMALL, b"k" * 32)
    few = MultiLabelKNN(20, 10, 10.0, 1.0, 0.5)
    sums = clipped_sums(records, few, pool, SMALL, np.arange(30), Features("raw"))
    # All labels of all records are held. A place that the interval of the cut shares may be rounded down by a part.
    assert (np.abs(sums - 20 * RESOLUTION) <= 1).all()
    # More neighbours than are sampled: 30 sizes of 300 coins of 0.5, whose mean lies within 6 deviations of 150.
    all_of_them = MultiLabelKNN(300, 10, 10.0, 1.0, 0.5)
    sizes = clipped_sums(records, all_of_them, pool, SMALL, np.arange(30), Features("raw"))[:, 0] / RESOLUTION
    assert abs(sizes.mean() - 150) < 6 * math.sqrt(75 / 30) and len(np.unique(sizes)) > 5


def test_clipping_costs_less_and_hides_ones_unless_the_threshold_follows() -> None:
    costs = [
        epsilons(mechanism(tau).stages[0].charge(WIDE_ORDERS, mechanism(tau).unit()))[1]
        for tau in (1.0, 4.0, 5.0, 10.0)
    ]
    assert costs[0] < costs[1] < costs[2] == costs[3]
    sums = np.full((1, 10), NEIGHBOURS * 3 * RESOLUTION // 10)
    quiet = (replace(mechanism(3.0, share), sigma=5.0) for share in (0.5, 0.25))
    half, lowered = (made.stages[0].run(sums, SeededNoise(0)) for made in quiet)
    assert half.tolist() == [0]
    assert lowered.tolist() == [2**10 - 1]


def test_the_rows_of_table_3_cost_less_than_the_paper_says() -> None:
    for (*_, sigma, rate, queries, delta, claimed), ours in zip(PAPER, (0.680, 0.676, 0.376, 0.758), strict=True):
        epsilon, _ = stated_epsilons(sigma, rate, queries, delta)
        assert epsilon == pytest.approx(ours, abs=0.002)
        assert epsilon < claimed
