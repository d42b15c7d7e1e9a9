"""An upper envelope of the exact data-dependent cost of an argmax that depends on the gap alone.

The exact divergence of a histogram from all its neighbours is itself sensitive and not smooth. The
envelope bounds it from above in both directions by a function of the gap between the two largest counts,
which one vote moves by at most 2. Proof: docs/research/publishable-epsilon.md.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from collegium.errors import ConfigurationError, UnsupportedAccounting
from collegium_accounting.divergences.independent import laplace_curve_of_counts
from collegium_accounting.game.winner import RoundLaw, winner_is_searched, winner_profile
from collegium_accounting.renyi import FloatArray, gaussian_curve
from collegium_accounting.units import Adjacency, IntArray, Unit


def gap_envelope(noise: str, scale: float, order: float, votes: int, classes: int) -> FloatArray:
    """Cost of one label at one order for every gap: shape ``[votes + 1]``, non-increasing, in nats.

    For each histogram of ``votes`` votes over ``classes`` classes with gap ≥ g, and each neighbour by one moved
    vote, both Rényi divergences of the argmax are at most entry g.

    Parameters
    ----------
    noise : "gaussian", "laplace", "discrete-laplace", or "discrete-gaussian" with an integer order.
    scale : in votes: σ, or 1/γ.

    Raises
    ------
    UnsupportedAccounting : for another noise, or integer Gaussian noise at an order that is not an integer.
    """
    if votes < 1 or classes < 1:
        raise ConfigurationError(f"an envelope needs at least one vote and one class; got {votes} and {classes}")
    if noise not in ("gaussian", "laplace", "discrete-gaussian", "discrete-laplace"):
        raise UnsupportedAccounting(f"no data-dependent envelope is proven for {noise} noise")
    if noise == "discrete-gaussian" and order != round(order):
        raise UnsupportedAccounting("with integer Gaussian noise the envelope is proven at integer orders alone")
    if noise.endswith("gaussian"):
        cap = float(gaussian_curve(math.sqrt(2.0), scale, (order,)).values[0])
    else:
        cap = _winner_alone(noise, scale, order, classes)
    if classes == 1:
        return np.zeros(votes + 1)
    gaps, others = np.arange(votes + 1), classes - 1
    upset = np.minimum(others * _overtakes(noise, scale, gaps - 2), 1.0)
    lost, squared = _upset_moments(noise, scale, order, gaps, others, upset)
    shift = np.sqrt(upset * squared)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        change = np.where(upset < 1.0, shift / (1.0 - upset), np.inf)
        up, down = np.log1p(change), np.log1p(-np.minimum(change, 1.0))
        kept = np.maximum(np.expm1(order * up) - order * change, np.expm1(order * down) + order * change)
        cost = np.log1p(lost + np.where(np.isfinite(change), kept, np.inf)) / (order - 1.0)
    bound = np.where(np.isfinite(cost), np.minimum(cost, cap), cap)
    # Rounding must not break what the proof of smoothness uses: a larger gap never costs more.
    return np.asarray(np.maximum.accumulate(bound[::-1])[::-1])


def _winner_alone(noise: str, scale: float, order: float, classes: int) -> float:
    """The cost under Laplace noise for any gap, from the exact accountant's δ(ε) of one round.

    For laws P and Q whose ratios lie within e^{±2γ}, E_Q[(P/Q)^α] is at most
    1 + ∫ α(α − 1)·(e^{(α−1)ε} + e^{−αε})·δ(ε) dε over 0 ≤ ε ≤ 2γ, and δ bounds both orders.
    On each step δ is at most what it is at the step's lower end.
    """
    whole = float(laplace_curve_of_counts(1.0 / scale, (order,), Unit()).values[0])
    two = 2 if classes == 2 else None
    if noise == "laplace" or not winner_is_searched(noise, scale, Adjacency.REPLACE, two):
        return whole  # the accountant knows the integer noise of a release alone
    profile = winner_profile(RoundLaw(noise, scale, classes=two), 1)
    steps = np.linspace(0.0, 2.0 / scale, 1001)
    delta = np.array([profile.delta(epsilon) for epsilon in steps[:-1]])
    weights = order * np.diff(np.exp((order - 1.0) * steps)) - (order - 1.0) * np.diff(np.exp(-order * steps))
    return min(whole, math.log1p(float(weights @ delta)) / (order - 1.0))


def gaps_of(counts: IntArray) -> IntArray:
    """Largest count minus the second, per row of ``[queries, classes]``; the count itself for one class."""
    if counts.shape[1] == 1:
        return counts[:, 0]
    top = np.partition(counts, -2, axis=1)[:, -2:]
    return np.asarray(top[:, 1] - top[:, 0], dtype=np.int64)


def _upset_moments(
    noise: str, scale: float, order: float, gaps: IntArray, others: int, upset: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Σ Qᵢ·φ(Pᵢ/Qᵢ) over the labels that are not the winner's, at ``order`` and at order 2."""
    if noise in ("laplace", "discrete-laplace"):
        epsilon = 2.0 / scale
        first, second = (
            max(float(np.expm1(a * r) - a * np.expm1(r)) for r in (epsilon, -epsilon)) for a in (order, 2.0)
        )
        return upset * first, upset * second
    found = []
    for a in (order, 2.0):
        gain, worst = np.exp(a * (a - 1.0) / scale**2), np.zeros(len(gaps))
        for moved in (-2, -1, 0, 1, 2):
            for base in (gaps - moved, gaps):  # the gap under Q when P has it, and when Q has it
                tails = [
                    _overtakes(noise, scale, np.asarray(base + t * moved, dtype=np.float64)) for t in (0.0, 1.0, a)
                ]
                worst = np.maximum(worst, gain * tails[2] - a * tails[1] + (a - 1.0) * tails[0])
        found.append(others * worst)
    return found[0], found[1]


def _overtakes(noise: str, scale: float, lead: FloatArray | IntArray) -> FloatArray:
    """Pr[a class that is ``lead`` votes behind gets level or ahead]."""
    if noise == "gaussian":
        return np.asarray(ndtr(-lead / (scale * np.sqrt(2.0))))
    if noise == "laplace":
        z = np.abs(lead) / scale
        tail = (0.5 + 0.25 * z) * np.exp(-z)
        return np.where(lead >= 0, tail, 1.0 - tail)
    reach = int(np.ceil(40.0 * scale)) + 1
    support = np.arange(-reach, reach + 1)
    mass = np.exp(-np.abs(support) / scale if noise == "discrete-laplace" else -0.5 * (support / scale) ** 2)
    difference = np.convolve(mass / mass.sum(), mass / mass.sum())
    at_least = np.cumsum(difference[::-1])[::-1]
    return np.asarray(at_least[np.clip(np.round(lead).astype(np.int64) + 2 * reach, 0, len(at_least) - 1)])
