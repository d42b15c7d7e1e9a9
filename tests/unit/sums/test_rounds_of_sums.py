"""Rounds of class sums: what several say together, and that each loses nothing of those before."""

from dataclasses import replace

import numpy as np
import pytest
from support.sums_scene import TASK

from collegium.data import Examples
from collegium.models.codes import Codes, Weights
from collegium.models.features import Features
from collegium.models.kernel_student import KernelStudent
from collegium.models.kernels import KernelMap, KernelSpec
from collegium.models.noisy_sums import NoisySums, Round
from collegium.models.pool_spectrum import PoolSpectrum
from collegium.parties.kinds.class_sums import RecordsOfClasses
from collegium_accounting.mechanisms.class_sums import ONE, bound_squared, code_one

SPEC = KernelSpec(Features("raw"), tuple(range(0, 400, 4)), 500**2)
CENTRES = np.array([[0.2, 0.8, 0.5, 0.5, 0.2, 0.8], [0.8, 0.2, 0.5, 0.5, 0.8, 0.2], [0.5, 0.5, 0.2, 0.8, 0.8, 0.8]])


def drawn(count: int, seed: int, spread: float, moved: float = 0.0) -> Examples:
    """Three classes of six columns, which overlap; ``moved`` shifts all inputs."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, count)
    x = CENTRES[labels] + spread * generator.normal(size=(count, 6)) + moved
    return Examples(np.clip(x, 0, 1).astype(np.float32), labels)


def asked(pool: np.ndarray, own: Examples, rounds: int, sigma: float, seed: int = 0) -> NoisySums:
    """What so many rounds release of these records; ``sigma`` is the noise that one sum of the same ε would have."""
    kernel = KernelMap.of_pool(SPEC, pool, TASK.inputs)
    spectrum, records = PoolSpectrum.of_pool(kernel, pool), RecordsOfClasses(own, TASK)
    noise = sigma * np.sqrt(bound_squared(3) * rounds)
    generator, sums, weights = np.random.default_rng(seed), None, None
    for _ in range(rounds):
        values = records.sums(kernel, weights)
        one = Round(values + np.rint(generator.normal(0.0, noise, len(values))).astype(np.int64), noise, weights)
        sums = NoisySums(SPEC, (one,) if sums is None else (*sums.rounds, one))
        weights = sums.next_weights(spectrum, 3, rounds)
    assert sums is not None
    return sums


def accuracy(student: KernelStudent, test: Examples) -> float:
    return float((student.predict(test.x) == test.y).mean())


def test_where_pool_and_records_differ_rounds_find_what_one_sum_cannot() -> None:
    """The pool is from elsewhere: its covariance is not the records', on which one sum relies."""
    generator = np.random.default_rng(5)
    pool = np.clip(0.5 + 0.08 * generator.normal(size=(400, 6)), 0, 1).astype(np.float32)
    own, test = drawn(2000, 1, 0.3), drawn(2000, 2, 0.3)
    one, eight = (accuracy(asked(pool, own, rounds, 0.01).classifier(pool, TASK), test) for rounds in (1, 8))
    assert eight > one + 0.01


@pytest.mark.bits
def test_where_noise_rules_eight_rounds_are_worth_one() -> None:
    """Noise of σ√8 in each of eight rounds does about as much harm as σ in one: mean over ten draws."""
    pool, own, test = drawn(400, 3, 0.25).x, drawn(600, 4, 0.25), drawn(2000, 5, 0.25)
    found = {
        rounds: [accuracy(asked(pool, own, rounds, 12.0, seed).classifier(pool, TASK), test) for seed in range(10)]
        for rounds in (1, 8)
    }
    assert np.mean(found[8]) > np.mean(found[1]) - 0.03


def test_the_mean_of_eight_rounds_has_the_noise_of_one_sum_of_the_same_epsilon() -> None:
    """Of rounds that differ by their noise alone: measured on 8 × 903 entries; σ√8 were the planted bug."""
    generator, sigma = np.random.default_rng(7), 5.0 * np.sqrt(bound_squared(3))
    weights = Weights.of(np.zeros((SPEC.dimensions, 3)))
    found = []
    for _ in range(8):
        drawn_ = [
            np.rint(generator.normal(0.0, sigma * 8**0.5, 3 * SPEC.dimensions + 1)).astype(np.int64) for _ in range(8)
        ]
        sums = NoisySums(SPEC, tuple(Round(values, sigma * 8**0.5, weights) for values in drawn_), 600.0)
        assert sums._noise() == pytest.approx(sigma, rel=1e-12)
        spectrum = PoolSpectrum(None, np.zeros(100), np.zeros(100), np.eye(100), np.zeros((1, 100)))  # type: ignore[arg-type]
        found.append(sums._mean(spectrum, 3, np.zeros_like))
    unit = ONE * code_one(3) * 3
    # Of three classes whose mean was taken off, two thirds of the variance are left.
    assert float(np.std(found)) * unit == pytest.approx(sigma * (2 / 3) ** 0.5, rel=0.05)


def test_rounds_ask_under_no_weights_where_the_noise_of_all_would_decide_these_and_are_one_sum() -> None:
    """The same, but for rounding, as one sum whose values and noise are their mean's."""
    pool, own = drawn(400, 3, 0.25).x, drawn(600, 4, 0.25)
    spectrum = PoolSpectrum.of_pool(KernelMap.of_pool(SPEC, pool, TASK.inputs), pool)
    eight = asked(pool, own, 8, 400.0)
    assert [one.weights for one in eight.rounds] == [None] * 8
    mean = np.sum([one.values for one in eight.rounds], axis=0) // 8 * 8  # eights of whole numbers are exact
    alike = tuple(replace(one, values=mean // 8) for one in eight.rounds)
    one_sum = replace(eight, rounds=(Round(mean // 8, eight.rounds[0].noise / 8**0.5),))
    assert np.allclose(
        replace(eight, rounds=alike).classifier(pool, TASK).coefficients,
        one_sum.classifier(pool, TASK).coefficients,
        rtol=1e-9,
    )
    needed = spectrum.contributions_needed(float(bound_squared(3)) ** 0.5, 3)
    assert 5.0 * needed < 600 < 0.25 * 400.0 * needed
    assert all(one.weights is not None for one in asked(pool, own, 8, 5.0).rounds[1:])


def test_the_fixed_point_satisfies_the_records_own_regression() -> None:
    """Without noise the mean of the estimates comes to leave little residual: what ridge and shortening explain."""
    pool, own = drawn(400, 3, 0.25).x, drawn(3000, 4, 0.25)
    kernel = KernelMap.of_pool(SPEC, pool, TASK.inputs)
    spectrum, records = PoolSpectrum.of_pool(kernel, pool), RecordsOfClasses(own, TASK)
    sums = asked(pool, own, 8, 1e-6)
    for _ in range(40):
        weights = sums.next_weights(spectrum, 3, 48)
        sums = replace(sums, rounds=(*sums.rounds, Round(records.sums(kernel, weights), 1.0, weights)))

    def residual(weights: Weights | None) -> float:
        summed = kernel.totals(own.x, own.labels(), np.ones(len(own), np.int64), Codes(3, weights))
        return float(np.linalg.norm(summed)) / (ONE * code_one(3) * 3)

    left = residual(sums.next_weights(spectrum, 3, 48))
    assert left < 0.1 * residual(None) and left < 0.5 * residual(asked(pool, own, 1, 1e-6).next_weights(spectrum, 3, 8))


def test_the_mean_of_two_sums_under_the_same_map_has_less_noise() -> None:
    values = [np.array([*range(SPEC.dimensions * 3), 9]) * scale for scale in (25, 50)]
    twice = NoisySums(SPEC, (Round(values[0], 3.0), Round(values[1], 4.0)), 7.0)
    assert twice._noise() == pytest.approx(2.4)
    pool = drawn(400, 3, 0.25).x
    alone = NoisySums(SPEC, (Round((16 * values[0] + 9 * values[1]) // 25, 2.4),), 7.0)
    found = [one.classifier(pool, TASK).coefficients for one in (twice, alone)]
    assert np.allclose(*found, rtol=1e-6)


def test_probabilities_of_several_rounds_are_those_of_a_logistic_regression() -> None:
    pool, own, test = drawn(400, 3, 0.25).x, drawn(2000, 4, 0.25), drawn(2000, 5, 0.25)
    student = asked(pool, own, 8, 0.1).classifier(pool, TASK)
    shares = student.probabilities(test.x)
    scores = student.kernel(test.x) @ student.coefficients / ONE
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    assert student.logistic and np.allclose(shares, powers / powers.sum(axis=1, keepdims=True), atol=2e-4)
    named = shares.max(axis=1)
    assert abs(float(named.mean()) - accuracy(student, test)) < 0.1  # they say about how often they are right
