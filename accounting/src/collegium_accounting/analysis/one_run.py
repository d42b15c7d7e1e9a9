"""A lower bound on ε from one run, into which each of many records, the canaries, came by a fair coin.

The vectors of all rounds are S = Σᵢ bᵢ·vᵢ + N, with bᵢ ∈ {0, 1} the coins and vᵢ what canary i contributes. Whoever
tossed the coins knows w = Σᵢ (bᵢ − ½)·vᵢ and h = ½·Σᵢ vᵢ, and so how strongly S = a·(w + h) + N points along w, against
the noise in all other directions. What lies along h, of each round, is left out of S and of w: the coins do not show in
it. Where records come through as they should, a is 1. Where they are counted twice, or are too
long, it is more; where the noise is smaller than stated, a·w stands out more. With C the covariance of the noise
between rounds, t = ⟨w, S⟩/|w|, both in the metric C⁻¹, has a noncentral t distribution with noncentrality
a·|w|, whatever the directions of the vᵢ are: they need not be orthogonal, since the coins are known. Its quantile
bounds a from below, and a·|vᵢ| is the μ of the Gaussian mechanism that protects canary i. On average over the coins
|w|² is m/4 times |vᵢ|² for m canaries, so that the bound on μ is about μ − 3.3/√m.

C is estimated from what is left of S beside w. Noise that was used again in another round shows in C as a direction
without noise, in which the canaries are seen as they are. With one round the bound is exact for independent normal
noise of any variance; with T rounds and L entries a round, C is known to one part in √L.

What it does not see: how noise was drawn, if only it is normal and independent between entries; entries of one vector
that have the same noise; and anything about records that are not as the canaries are.

References
----------
Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023.
Andrew, Kairouz, Oh, Oprea, McMahan and Suriyakumar, "One-shot empirical privacy estimation for federated learning",
ICLR 2024: Gaussian canaries and the cosine along them.
Mahloujifar, Melis and Chaudhuri, "Auditing f-differential privacy in one run", ICML 2025: bounds by the numbers of
right guesses, for any mechanism, such as one that is bad once in twenty runs. The bound here is for normal noise alone,
and closer.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from collegium_accounting.divergences.grids import NoiseLaw, ThresholdTestLaw
from collegium_accounting.divergences.laws import win_probabilities
from collegium_accounting.errors import ConfigurationError, UnsupportedAccounting
from collegium_accounting.game.gaussian import gaussian_epsilon
from collegium_accounting.mechanisms.gaussian_stage import GaussianLabels
from collegium_accounting.mechanisms.labels import ArgMax, LabelMechanism, LabelStage, Threshold
from collegium_accounting.renyi import FloatArray
from collegium_accounting.units import IntArray

_PASSES, _NOTHING = 4, 1e-9
_RIDGE = 1e-9
"""Of the mean variance: what noise is taken to have at least in every direction."""

_WEIGHTS = 8
_TELLS = 0.1
"""Outcomes count that tell this part of what the most telling one tells, by their Fisher information."""

_LEAST_PARTS, _MOST_PARTS = 1.0 / 16.0, 8.0
_FRESH = 999
_MOST_EPSILON = 64.0
_ROWS_AT_ONCE = 64


@dataclass(frozen=True)
class Strength:
    """How strongly the canaries show in what was released.

    Parameters
    ----------
    mu : their Gaussian mechanism has at least this μ, but for the stated probability.
    estimate : of that μ.
    noise : standard deviation of the noise that was found in each round.
    """

    mu: float
    estimate: float
    noise: FloatArray


def epsilon_of(mu: float, delta: float) -> float:
    """ε at ``delta`` of the Gaussian mechanism of this μ; 0 where that is 0."""
    return gaussian_epsilon(mu, 0.0, delta) if mu > 0.0 else 0.0


def strength(
    released: FloatArray, halves: FloatArray, coined: FloatArray, products: FloatArray, failure: float = 0.05
) -> Strength:
    """Bound from below how strongly canaries show.

    Parameters
    ----------
    released : S, ``[rounds, entries]``.
    halves : h, half of what all canaries contribute, of the same shape.
    coined : w, the sum of the canaries' contributions, each times ½ if it was in and −½ if not; of the same shape.
    products : the mean over the canaries of ⟨vᵢ of one round, vᵢ of another⟩, ``[rounds, rounds]``.
    failure : the probability with which the bound may be wrong.

    Raises
    ------
    ConfigurationError
        If there are no canaries on both sides of the coin, or too few entries to know the noise by.

    Examples
    --------
    >>> import numpy as np
    >>> noise, coins = np.random.default_rng(0).normal(scale=2.0, size=(1, 4000)), np.resize([[0.5, -0.5]], (1, 4000))
    >>> halves = np.full((1, 4000), 0.5)  # each canary has an entry of its own
    >>> found = strength(halves + coins + noise, halves, coins, np.ones((1, 1)))
    >>> found.mu < 0.5 < 1.2 * found.mu
    True
    """
    rounds, entries = released.shape
    freedom = entries - rounds - 1
    released, coined = _beside(released, halves), _beside(coined, halves)
    if freedom < 1 or not np.abs(coined).max() > _NOTHING * np.abs(halves).max():
        raise ConfigurationError("an audit of a run needs canaries on both sides of the coin, and more entries")
    inverse = np.eye(rounds)
    for _ in range(_PASSES):
        weighed = inverse @ coined
        squared = float((weighed * coined).sum())
        along = float((weighed * released).sum()) / squared
        rest = released - along * coined
        covariance = rest @ rest.T / (entries - 2)
        covariance += np.eye(rounds) * (_RIDGE * float(np.trace(covariance)) / rounds + np.finfo(np.float64).tiny)
        inverse = np.linalg.inv(covariance)
    weighed = inverse @ coined
    whole = math.sqrt(float((weighed * coined).sum()))
    seen = float((weighed * released).sum()) / whole
    of_one = math.sqrt(float((inverse * products).sum())) / whole
    return Strength(of_one * _least_mean(seen, freedom, failure), of_one * seen, np.sqrt(np.diag(covariance)))


def _beside(rows: FloatArray, others: FloatArray) -> FloatArray:
    """Each row without what of it lies along the other of its place."""
    squared = np.maximum((others * others).sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    return np.asarray(rows - others * ((rows * others).sum(axis=1, keepdims=True) / squared))


def _least_mean(seen: float, freedom: int, failure: float) -> float:
    """The smallest noncentrality, at least 0, under which a t of ``seen`` or more has probability ``failure``."""
    from scipy.special import nctdtr, ndtri  # takes half a second to load

    if not seen > 0.0 or nctdtr(freedom, 0.0, seen) <= 1.0 - failure:
        return 0.0
    if seen > 30.0:  # the distribution is normal to the digits that matter, and the function below gives up
        return seen - float(ndtri(1.0 - failure)) * math.sqrt(1.0 + seen * seen / (2.0 * freedom))
    low, high = 0.0, seen
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if nctdtr(freedom, middle, seen) > 1.0 - failure else (low, middle)
    return low


@dataclass(frozen=True)
class LabelNoise:
    """What outcomes of single queries say of the noise that was on them; parts are of the noise that is stated.

    Parameters
    ----------
    most : no more noise than this, but for the stated probability; infinite where the outcomes do not say.
    estimate : the noise under which as many outcomes are as expected.
    shared : whether what the noise did to one query tells what it did to another.
    """

    most: float
    estimate: float
    shared: bool


def label_noise(
    seen: IntArray, likely: Callable[[float], FloatArray], groups: tuple[IntArray, ...] = (), failure: float = 0.05
) -> LabelNoise:
    """Bound the noise from above by outcomes of queries whose counts are known.

    A query's expected outcome is the likeliest under the stated noise, and less likely under more noise. How many come
    as expected, each weighed by what it tells, has a known law under every amount of noise, so that the bound is exact
    for fresh noise of the stated form. Noise that queries share moves their outcomes the same way: the sum of products
    of residuals within groups then passes what it is in 1 - failure/10 of 999 runs with fresh noise as estimated.

    Parameters
    ----------
    seen : the outcome of each query, ``[queries]``.
    likely : the probability of each outcome, ``[queries, outcomes]``, under so many parts of the stated noise.
    groups : ways to divide the queries, ``[queries]`` each, into those that might share their noise.
    failure : the probability with which the bound may be wrong, or fresh noise be taken for shared noise.
    """
    low, stated, high = (likely(parts) for parts in (0.95, 1.0, 1.05))
    expected = stated.argmax(axis=1)
    rows = np.arange(len(seen))
    right, usual = seen == expected, stated[rows, expected]
    moved, varies = np.abs(low - high)[rows, expected], np.maximum(usual * (1.0 - usual), _NOTHING)
    telling = np.where(moved**2 / varies >= _TELLS * (moved**2 / varies).max(initial=0.0), moved / varies, 0.0)
    weights = np.rint(_WEIGHTS * telling / max(float(telling.max(initial=0.0)), _NOTHING)).astype(np.int64)

    def at_least(parts: float) -> float:
        """The probability of so many that come as expected, or more."""
        law = np.ones(1)
        for weight, chance in zip(weights, likely(parts)[rows, expected], strict=True):
            came = np.concatenate([np.zeros(weight), law * chance])
            came[: len(law)] += law * (1.0 - chance)
            law = came
        return float(law[int(weights[right].sum()) :].sum())

    def most(probability: float) -> float:
        low, high = _LEAST_PARTS, _MOST_PARTS
        if at_least(high) > probability:
            return math.inf
        for _ in range(16):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if at_least(middle) > probability else (low, middle)
        return high

    estimate = min(most(0.5), _MOST_PARTS)
    fresh = likely(estimate)
    random, products = np.random.default_rng(), [_products(seen, fresh, groups)]
    for _ in range(_FRESH if groups else 0):
        drawn = (random.random((len(seen), 1)) > np.cumsum(fresh, axis=1)[:, :-1]).sum(axis=1)
        products.append(_products(drawn, fresh, groups))
    above = (np.array(products[1:]) >= products[0]).sum(axis=0) + 1
    shared = bool(groups) and bool((above <= failure / (10.0 * len(groups)) * (_FRESH + 1)).any())
    return LabelNoise(most(0.9 * failure), estimate, shared)


def _products(seen: IntArray, fresh: FloatArray, groups: tuple[IntArray, ...]) -> list[float]:
    """For each way to divide the queries, the products of residuals of two that share a group, added up."""
    residuals = -fresh
    residuals[np.arange(len(seen)), seen] += 1.0
    found = []
    for group in groups:
        sums = np.zeros((int(group.max()) + 1, fresh.shape[1]))
        np.add.at(sums, group, residuals)
        found.append(float((sums * sums).sum() - (residuals * residuals).sum()))
    return found


def outcomes_of(
    mechanism: LabelMechanism, stage: LabelStage, scale: float | None = None
) -> Callable[[IntArray, float], FloatArray]:
    """How likely each outcome of a stage is: of counts ``[queries, classes]`` and parts of the noise, by outcome.

    ``scale`` is that of the noise on every count, where it is not the mechanism's own. Outcomes are classes or, of a
    threshold, whether it is reached. Raises UnsupportedAccounting where the law of the noise is not known.
    """
    rule = stage.rule if isinstance(stage, GaussianLabels) else None
    law = NoiseLaw("discrete-gaussian", stage.noise_on_entries) if rule is not None else mechanism.noise_law(True)
    if law is None or not isinstance(rule, ArgMax | Threshold | None):
        raise UnsupportedAccounting(f"{mechanism.name} states no law of its noise by which labels could be audited")
    stated = scale or law.scale

    def likely(counts: IntArray, parts: float) -> FloatArray:
        if isinstance(rule, Threshold):
            numbers = counts if stage.added.parties else rule.compared(counts)
            test = ThresholdTestLaw(stated * parts, rule.threshold, discrete=True)
            missed = np.exp(test.log_fail(numbers).sum(axis=1))
            return np.stack([missed, 1.0 - missed], axis=1)
        rows, which = np.unique(counts - counts.min(axis=1, keepdims=True), axis=0, return_inverse=True)
        noise = NoiseLaw(law.kind, stated * parts)
        blocks = (rows[at : at + _ROWS_AT_ONCE] for at in range(0, len(rows), _ROWS_AT_ONCE))
        return np.concatenate([win_probabilities(block, noise) for block in blocks])[which.reshape(-1)]

    return likely


def epsilon_of_outcomes(first: float, second: float, queries: int, delta: float) -> float:
    """ε at ``delta`` of an outcome that comes so likely with two neighbours, after as many independent queries."""
    from scipy.stats import binom

    counts, found = np.arange(queries + 1), 0.0
    for one, other in ((first, second), (second, first)):
        here, there = binom.pmf(counts, queries, one), binom.pmf(counts, queries, other)
        low, high = 0.0, _MOST_EPSILON
        for _ in range(50):
            middle = (low + high) / 2.0
            more = float(np.maximum(here - math.exp(middle) * there, 0.0).sum()) > delta
            low, high = (middle, high) if more else (low, middle)
        found = max(found, low)
    return found
