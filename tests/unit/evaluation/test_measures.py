"""The figures of an evaluation contain the truth as often as they say, noise included."""

from __future__ import annotations

import tracemalloc
from functools import cache

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from support.pages import text_of_page

from collegium.privacy.analysis.evaluation import Measures, measures, records_needed
from collegium.privacy.evaluation_cells import Layout

PEOPLE = 200_000
SIGMA = 12.0
TRIALS = 300


@cache
def population(classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, probabilities and cells of a large population, whose classes are of unequal size."""
    draws = np.random.default_rng(0)
    prior = np.linspace(1.0, 2.0, classes)
    labels = draws.choice(classes, PEOPLE, p=prior / prior.sum())
    scores = draws.normal(size=(PEOPLE, classes)) * 1.5
    scores[np.arange(PEOPLE), labels] += 3.0
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    others = (labels + 1 + draws.integers(0, classes - 1, PEOPLE)) % classes
    return labels, shares, Layout(classes).cells(labels, shares, others)


def measured(
    cells: np.ndarray, classes: int, sigma: float = 0.0, seed: int = 0, noise: float | None = None
) -> Measures:
    counts = np.bincount(cells.ravel(), minlength=Layout(classes).length).astype(float)
    counts += np.random.default_rng(seed).normal(0.0, sigma, len(counts)) if sigma else 0.0
    return measures(counts, (sigma if noise is None else noise) ** 2, tuple(map(str, range(classes))))


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 5])
def test_without_noise_the_figures_are_those_of_scikit_learn(classes: int) -> None:
    labels, shares, cells = population(classes)
    found = measured(cells, classes)
    predicted = shares.argmax(axis=1)
    assert found.accuracy is not None and found.accuracy.value == pytest.approx((predicted == labels).mean())
    assert found.balanced is not None
    assert found.balanced.value == pytest.approx(balanced_accuracy_score(labels, predicted))
    theirs = roc_auc_score(labels, shares[:, 1]) if classes == 2 else roc_auc_score(labels, shares, multi_class="ovr")
    assert found.auroc is not None and found.auroc.value == pytest.approx(theirs, abs=0.012)  # bins make ties
    assert found.records.value == PEOPLE and found.constant_class == str(classes - 1)
    assert found.constant is not None and found.constant.value == pytest.approx((labels == classes - 1).mean())
    assert np.sum(found.confusion) == pytest.approx(PEOPLE)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 5])
def test_intervals_contain_the_truth_as_often_as_they_say(classes: int) -> None:
    """Of 300 draws of 3,000 records with noise, 95 % contain it: fewer than 85 % happen less than once in a million.

    Planted: intervals that leave the noise out contain it less often.
    """
    least = int(binom.ppf(1e-6 / 20, TRIALS, 0.93))  # to first order, so 93 % is what is asked
    assert least >= 0.84 * TRIALS
    truth = measured(population(classes)[2], classes)
    names = ("accuracy", "balanced", "auroc", "calibration_error", "constant")
    hits, without = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    draws = np.random.default_rng(1)
    for trial in range(TRIALS):
        cells = population(classes)[2][draws.integers(0, PEOPLE, 3_000)]
        for noise, counted in ((None, hits), (0.0, without)):
            found = measured(cells, classes, SIGMA, trial, noise)
            for name in names:
                estimate, right = getattr(found, name), getattr(truth, name).value
                counted[name] += estimate is not None and estimate.low <= right <= estimate.high
    assert min(hits.values()) >= least, hits
    assert min(without.values()) < least, without


def test_many_classes_are_measured_in_little_memory() -> None:
    """120 classes have 16,800 cells: a matrix of all of them for each pair of classes had 2 GB."""
    classes, draws = 120, np.random.default_rng(0)
    labels, others = draws.integers(0, classes, (2, 5_000))
    shares = np.where(np.arange(classes) == labels[:, None], 0.8, 0.2 / (classes - 1))
    cells = Layout(classes).cells(labels, shares, np.where(others == labels, (labels + 1) % classes, others))
    tracemalloc.start()
    found = measured(cells, classes)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.accuracy is not None and found.accuracy.value == 1.0 and len(found.recall) == classes
    assert most < 64 * 2**20


def test_counts_that_drown_in_noise_give_no_figure() -> None:
    found = measured(population(2)[2][:40], 2, sigma=60.0)
    assert found.accuracy is None and found.balanced is None and found.auroc is None
    assert found.better_than_constant is None and found.calibration_error is None
    assert found.verdict.startswith("its quality drowned in the noise of the measurement")


def test_a_classifier_that_always_says_the_same_is_no_better_than_the_constant_answer() -> None:
    labels, _, _ = population(2)
    shares = np.tile([0.2, 0.8], (PEOPLE, 1))
    lazy = measured(Layout(2).cells(labels, shares, 1 - labels), 2, SIGMA)
    assert lazy.better_than_constant is False and lazy.accuracy is not None
    assert lazy.auroc is not None and lazy.auroc.value == pytest.approx(0.5, abs=0.01)
    assert lazy.calibration_error is not None and lazy.calibration_error.value == pytest.approx(
        abs(0.825 - 2 / 3), abs=0.01
    )
    assert ": not shown to be better than always answering “1” (66.7 %)" in lazy.verdict
    better = measured(population(2)[2], 2, SIGMA)
    assert better.better_than_constant is True
    assert "; always answering “1” (66.7 %) is worse" in better.verdict and "Weak" not in better.verdict
    weak = better.model_copy(update={"recall": (lazy.recall[0], better.recall[1])})
    assert weak.verdict == f"{better.verdict}. Weak classes: “0” 0.0 %"


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("sigma", [0.5, 12.0, 200.0])
def test_from_as_many_records_as_are_forecast_the_stated_error_is_so_small(classes: int, sigma: float) -> None:
    true, given, *_ = Layout(classes).views()
    right, wrong = (true >= 0) & (true == given), (true >= 0) & (true != given)
    records = records_needed(classes, sigma**2)
    for of, small in ((1.0, True), (0.98, False)):
        cells = of * records * (0.8 * right / right.sum() + 0.2 * wrong / wrong.sum())
        found = measures(cells, sigma**2, tuple(map(str, range(classes)))).accuracy
        assert found is not None and ((found.high - found.low) / 2 <= 0.05 + 1e-9) == small


def test_the_page_says_how_well_accuracy_is_known() -> None:
    assert "With 5,000 records and a noise of 15 records, accuracy is known to about 2 points" in " ".join(
        text_of_page("using-the-student.md").split()
    )
    found = measured(population(2)[2][:5_000], 2, sigma=15.0).accuracy
    assert found is not None and 0.015 < (found.high - found.low) / 2 < 0.025
