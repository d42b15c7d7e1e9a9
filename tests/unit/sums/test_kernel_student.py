"""The classifier of noisy class sums: what noise hides, the structure of the public pool gives back in part."""

from dataclasses import replace

import numpy as np
import pytest
from support.sums_scene import TASK

from collegium.data import Examples
from collegium.models.features import Features
from collegium.models.kernel_student import KernelStudent
from collegium.models.kernels import KernelMap, KernelSpec
from collegium.models.noisy_sums import NoisySums, Round
from collegium.models.pool_shares import of_frequencies, shares_in_classes, threshold
from collegium.models.pool_spectrum import PoolSpectrum
from collegium.parties.kinds.class_sums import RecordsOfClasses
from collegium_accounting.mechanisms.class_sums import bound_squared

SCORES = np.random.default_rng(3).normal(size=(400, 3))
PRIOR = np.array([0.5, 0.3, 0.2])


def _clusters(count: int, seed: int) -> Examples:
    """Three classes that nearly lie apart, of six columns."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, count)
    centres = np.array([[0.2, 0.8, 0.5, 0.5, 0.2, 0.8], [0.8, 0.2, 0.5, 0.5, 0.8, 0.2], [0.5, 0.5, 0.2, 0.8, 0.8, 0.8]])
    return Examples((centres[labels] + 0.2 * generator.normal(size=(count, 6))).astype(np.float32), labels)


@pytest.fixture(scope="module")
def spectrum() -> PoolSpectrum:
    pool = _clusters(600, 1).x
    spec = KernelSpec(Features("raw"), tuple(range(0, 600, 5)), 400**2)
    return PoolSpectrum.of_pool(KernelMap.of_pool(spec, pool, TASK.inputs), pool)


def _student(spectrum: PoolSpectrum, sigma: float, seed: int) -> KernelStudent:
    values = RecordsOfClasses(_clusters(300, 2), TASK).sums(spectrum.kernel)
    noise = sigma * np.sqrt(bound_squared(3))
    noisy = values + np.rint(np.random.default_rng(seed).normal(0.0, noise, len(values))).astype(np.int64)
    spec = KernelSpec(Features("raw"), tuple(range(0, 600, 5)), 400**2)
    return NoisySums(spec, (Round(noisy, noise),)).classifier(_clusters(600, 1).x, TASK, spectrum=spectrum)


@pytest.mark.bits
def test_the_pool_gives_back_what_noise_hides(spectrum: PoolSpectrum) -> None:
    test = _clusters(1000, 4)
    alone = replace(spectrum, vectors=spectrum.vectors[:1])  # a single input shows no structure

    def accuracy(found: PoolSpectrum) -> float:
        return float(np.mean([(_student(found, 12.0, seed).predict(test.x) == test.y).mean() for seed in range(10)]))

    assert accuracy(spectrum) > accuracy(alone) + 0.002


def test_shares_agree_with_scores_as_the_records_classes_do() -> None:
    centred = SCORES - (SCORES @ PRIOR)[:, None]
    for agreement in (0.1, 0.4, 0.7):
        shares = shares_in_classes(SCORES, PRIOR, agreement)
        assert (shares * centred).sum(axis=1).mean() == pytest.approx(agreement, abs=1e-4)
        assert shares.sum(axis=1) == pytest.approx(1.0)


def test_shares_are_the_prior_where_scores_tell_nothing_and_certain_where_they_tell_all() -> None:
    assert shares_in_classes(SCORES, PRIOR, -0.1) == pytest.approx(np.tile(PRIOR, (400, 1)), abs=1e-3)
    assert shares_in_classes(0.0 * SCORES, PRIOR, 0.0) == pytest.approx(np.tile(PRIOR, (400, 1)))
    certain = shares_in_classes(SCORES, PRIOR, 10.0)
    assert (certain.argmax(axis=1) == SCORES.argmax(axis=1)).mean() > 0.98


def test_classes_are_as_frequent_in_the_pool_as_among_the_records() -> None:
    raised = np.exp(SCORES + np.array([2.0, 0.0, -2.0]))  # the first class takes most inputs
    shares = raised / raised.sum(axis=1, keepdims=True)
    assert np.abs(shares.mean(axis=0) - PRIOR).max() > 0.1
    matched = of_frequencies(shares, PRIOR)
    assert matched.mean(axis=0) == pytest.approx(PRIOR, abs=1e-3)
    assert matched.sum(axis=1) == pytest.approx(1.0)
    # Inputs keep their order within a class beside another.
    for rows in (shares, matched):
        assert np.array_equal(np.argsort(rows[:, 0] / rows[:, 1]), np.argsort(shares[:, 0] / shares[:, 1]))


def test_the_threshold_makes_up_for_three_quarters_of_what_a_rare_class_is_named_too_seldom() -> None:
    lead = np.random.default_rng(4).permutation(np.linspace(-0.8, 0.2, 10_001))  # a fifth is named the second class
    at = threshold(lead, 0.24, 0.0)
    assert (lead > at).mean() == pytest.approx(0.2 + 0.75 * 0.04, abs=1e-3)
    assert threshold(-lead, 0.76, 0.0) == pytest.approx(-at)
    assert (lead > threshold(lead, 0.3, 0.0)).mean() == pytest.approx(1.25 * 0.2, abs=1e-3)  # at most a quarter more
    for variance in (0.0, 1.0):
        assert threshold(lead, 0.6, variance) == threshold(lead, 0.5, variance) == 0.0  # not rare


def test_a_threshold_stays_where_chance_explains_how_often_a_class_is_named() -> None:
    lead = np.linspace(-0.8, 0.2, 10_001)
    assert threshold(lead, 0.24, 0.04**2) == 0.0
    assert threshold(lead[::200], 0.24, 0.0) == 0.0  # 51 inputs
    assert threshold(lead - 0.2, 0.1, 0.0) == 0.0  # a class that is named nowhere


def test_ten_thousand_inputs_at_most_take_part_whatever_the_pool() -> None:
    pool = np.tile(_clusters(600, 1).x, (20, 1))
    kernel = KernelMap.of_pool(KernelSpec(Features("raw"), (0, 7, 9), 400**2), pool, TASK.inputs)
    kept = PoolSpectrum.of_pool(kernel, pool).vectors
    assert np.array_equal(kept, (kernel(pool[::2])[:, :-1] / 2**16).astype(np.float32))
