"""What the mechanisms release follows the law that they are charged for; planted bugs are caught.

Statistical tests fail by chance with probability below 1e-6; sample sizes are stated with each.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from collegium_reproduction.continuous_noise import ContinuousNoise
from collegium_reproduction.neighbouring_laws import levels_of, tables_of, win_log_probabilities
from scipy.stats import chi2

from collegium_accounting.analysis.audit import audit, clopper_pearson
from collegium_accounting.divergences.grids import NoiseLaw
from collegium_accounting.divergences.laws import win_probabilities
from collegium_accounting.mechanisms import SeededNoise, SystemNoise, create, labels

FAILURE = 1e-6


def law_of(histogram, kind, scale):
    if kind == "gumbel":
        score = np.exp(np.array(histogram) / scale)
        return score / score.sum()
    return win_probabilities(np.array([histogram]), NoiseLaw(kind, scale))[0]


def statistic(outcomes, law):
    expected = law * outcomes.size
    observed = np.bincount(outcomes, minlength=law.size)
    return float(((observed - expected) ** 2 / expected).sum())


class Altered:
    """A noise source with a planted bug."""

    private = True

    def __init__(self, alter):
        self._noise = SeededNoise(11)
        self._alter = alter

    def laplace(self, scale, shape):
        return self._alter(lambda s: self._noise.laplace(scale, s), shape)

    def gaussian(self, sigma, shape):
        return self._alter(lambda s: self._noise.gaussian(sigma, s), shape)

    def gumbel_argmax(self, counts, scale):
        return self._noise.gumbel_argmax(counts, scale)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parameters", "kind", "scale"),
    [
        ("lnmax", {"gamma": 0.25}, "discrete-laplace", 4.0),
        ("gnmax", {"sigma": 3.0}, "discrete-gaussian", 3.0),
        ("exponential", {"gamma": 0.25}, "gumbel", 4.0),
    ],
)
@pytest.mark.parametrize("source", ("system", "seeded"))
def test_released_labels_follow_the_law_that_is_accounted_for(name, parameters, kind, scale, source):
    """χ² on 30,000 releases of (10, 10, 8, 5), ties included."""
    histogram = (10, 10, 8, 5)
    noise = SystemNoise() if source == "system" else SeededNoise(7)
    stage = create(name, **parameters).stages[0]
    outcomes = stage.run(np.tile(histogram, (30_000, 1)), noise)
    assert statistic(outcomes, law_of(histogram, kind, scale)) < chi2.isf(FAILURE, len(histogram) - 1)


@pytest.mark.parametrize(
    ("name", "parameters", "kind", "scale"),
    [("lnmax", {"gamma": 0.25}, "laplace", 4.0), ("gnmax", {"sigma": 3.0}, "gaussian", 3.0)],
)
def test_continuous_noise_follows_the_continuous_law(name, parameters, kind, scale):
    """χ² on 100,000 releases."""
    histogram = (10, 8, 8)
    outcomes = create(name, **parameters).stages[0].run(np.tile(histogram, (100_000, 1)), ContinuousNoise(3))
    law = np.array([p for p, m in zip(*_levels(histogram, kind, scale), strict=True) for _ in range(m)])
    assert statistic(outcomes, law) < chi2.isf(FAILURE, 2)


def _levels(histogram, kind, scale):
    noise = NoiseLaw(kind, scale)
    levels = levels_of(np.array([histogram]), noise)
    law = np.exp(win_log_probabilities(levels, tables_of(noise, max(histogram), len(histogram))))[0]
    return law, levels.multiplicity[0]


@pytest.mark.parametrize(
    "alter",
    [
        pytest.param(lambda draw, shape: draw(shape) // 2, id="half the noise"),
        pytest.param(lambda draw, shape: np.broadcast_to(draw((shape[0], 1)), shape), id="noise reused over classes"),
        pytest.param(lambda draw, shape: np.broadcast_to(draw((1, shape[1])), shape), id="noise reused over queries"),
    ],
)
@pytest.mark.parametrize(
    ("name", "parameters", "kind", "scale"),
    [("lnmax", {"gamma": 0.25}, "discrete-laplace", 4.0), ("gnmax", {"sigma": 4.0}, "discrete-gaussian", 4.0)],
)
def test_wrong_noise_is_seen_in_what_is_released(alter, name, parameters, kind, scale):
    """The same χ² test on 30,000 releases."""
    histogram = (10, 10, 8, 5)
    outcomes = create(name, **parameters).stages[0].run(np.tile(histogram, (30_000, 1)), Altered(alter))
    assert statistic(outcomes, law_of(histogram, kind, scale)) > chi2.isf(FAILURE, len(histogram) - 1)


def attacked(name, parameters, noise=None, **options):
    """40 rounds, 200,000 runs on each side; the result is wrong with probability at most 1e-6."""
    source = SeededNoise(1) if noise is None else noise
    return audit(create(name, **parameters), source, teachers=250, rounds=40, runs=200_000, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parameters"), [("lnmax", {"gamma": 0.05}), ("gnmax", {"sigma": 40.0}), ("exponential", {"gamma": 0.05})]
)
def test_an_attack_on_a_sound_mechanism_reaches_half_of_the_stated_epsilon_and_never_passes_it(name, parameters):
    """By its law it is expected at 0.56 or more, and 20,000,000 runs reach 0.88."""
    found = attacked(name, parameters)
    assert found.consistent and found.follows_its_law
    assert 0.5 * found.epsilon_stated <= found.epsilon_lower_bound <= found.epsilon_stated


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parameters"), [("lnmax", {"gamma": 0.05}), ("gnmax", {"sigma": 40.0})])
def test_an_attack_refutes_half_the_noise(name, parameters):
    found = attacked(name, parameters, Altered(lambda draw, shape: draw(shape) // 2))
    assert found.epsilon_lower_bound > found.epsilon_stated and not found.consistent


class TheSameNoiseInEveryRound:
    """A planted bug: a run has its noise drawn once. Its runs are independent of one another."""

    private = True

    def __init__(self):
        self._drawn = {}

    def gaussian(self, sigma, shape):
        if shape not in self._drawn:
            self._drawn[shape] = SeededNoise(3).gaussian(sigma, shape)
        return self._drawn[shape]


@pytest.mark.slow
def test_an_attack_refutes_noise_that_is_used_again_in_the_next_round():
    found = attacked("gnmax", {"sigma": 40.0}, TheSameNoiseInEveryRound())
    assert not found.follows_its_law and not found.consistent


@pytest.mark.slow
def test_an_attack_refutes_ties_for_the_highest_class(monkeypatch):
    """Nobody learns more from that rule, but it is not the one that is accounted for."""
    monkeypatch.setattr(labels, "winners", lambda noisy: noisy.shape[1] - 1 - noisy[:, ::-1].argmax(axis=1))
    found = attacked("gnmax", {"sigma": 40.0})
    assert found.epsilon_lower_bound <= found.epsilon_stated and not found.follows_its_law


def test_audit_of_nzc_finds_more_than_it_claims():
    """(125, 125) against (124, 126), c = 100, scale 20: at least 4.5 is provable; 100,000 runs show over 4."""
    mechanism = create("nzc", constant=100.0, gamma=0.05, accept_no_privacy=True)
    runs = 100_000
    here, there = (
        int((mechanism.stages[0].run(np.tile(h, (runs, 1)), SeededNoise(s)) == 1).sum())
        for h, s in (((124, 126), 1), ((125, 125), 2))
    )
    lower = math.log(clopper_pearson(here, runs, FAILURE)[0] / clopper_pearson(there, runs, FAILURE)[1])
    assert lower > 3.5 > mechanism.claimed_epsilon(1, 1e-5, tuple(range(2, 200)))


def test_clopper_pearson_covers_at_its_stated_rate():
    """20,000 intervals at 5 % each side: more than 1,300 misses on a side has probability below 1e-6."""
    generator = np.random.default_rng(2)
    rate, runs = 0.03, 400
    hits = generator.binomial(runs, rate, 20_000)
    bounds = {int(h): clopper_pearson(int(h), runs, 0.05) for h in np.unique(hits)}
    low = sum(bounds[int(h)][0] > rate for h in hits)
    high = sum(bounds[int(h)][1] < rate for h in hits)
    assert low < 1_300 and high < 1_300
