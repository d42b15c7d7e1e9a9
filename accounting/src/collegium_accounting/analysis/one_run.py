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
from dataclasses import dataclass

import numpy as np

from collegium_accounting.errors import ConfigurationError
from collegium_accounting.game.gaussian import gaussian_epsilon
from collegium_accounting.renyi import FloatArray

_PASSES, _NOTHING = 4, 1e-9
_RIDGE = 1e-9
"""Of the mean variance: what noise is taken to have at least in every direction."""


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
