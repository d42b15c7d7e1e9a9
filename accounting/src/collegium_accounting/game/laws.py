"""What one round of a step releases, and what rounds of several steps cost together at one δ.

Every step of a mechanism states one of three laws for a privacy unit, from the closest accounting to the loosest:

* `RoundLaw`: only a winner or the outcome of a threshold test is released; the game of this package accounts for it.
* `VectorLaw`: a whole vector with Gaussian noise is released, by its exact (ε, δ).
* `RenyiLaw`: anything else of which a Rényi curve is known.
"""

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from collegium_accounting.divergences.independent import (
    laplace_curve_of_counts,
    published_range_curve,
    sampled_gaussian_curve,
)
from collegium_accounting.elementary import exp, expm1, log, log1p
from collegium_accounting.errors import UnsupportedAccounting
from collegium_accounting.game.gaussian import gaussian_epsilon, gaussian_mechanism_profile
from collegium_accounting.game.profile import Profile, check_delta, compose
from collegium_accounting.game.recursion import Values, multiples
from collegium_accounting.game.winner import RoundLaw, winner_epsilons, winner_is_known, winner_profile
from collegium_accounting.renyi import WIDE_ORDERS, RenyiCurve
from collegium_accounting.units import Adjacency, Unit

_CLOSENESS = 2e-5
"""How close discrete noise is made to rounded continuous noise: the slack of a round over its μ²."""

_MOST_GIVEN_AWAY = 0.125
"""Of the variance, for that closeness. It makes μ 7 % larger; a Rényi curve costs about 8 % of ε."""


@dataclass(frozen=True)
class VectorLaw:
    """One release of a vector with Gaussian noise.

    Parameters
    ----------
    mu : the L2 norm by which neighbours differ, over the noise's standard deviation. Rounds add up as squares.
    slack : the release is, but for factors e^{±slack} of every probability, a post-processing of that one; 0 for
        continuous noise. Rounds add up.
    """

    mu: float
    slack: float = 0.0


@dataclass(frozen=True)
class RenyiLaw:
    """A release of which only a Rényi curve is known, that bounds both directions.

    Parameters
    ----------
    values : Rényi divergence at each of `WIDE_ORDERS`, in nats; infinite where nothing is known.
    delta : probability with which the bound may fail altogether.
    """

    values: tuple[float, ...]
    delta: float = 0.0

    @classmethod
    def of(cls, curve: RenyiCurve) -> "RenyiLaw":
        """The law of one release that costs ``curve``, which is on `WIDE_ORDERS`."""
        return cls(tuple(curve.values.tolist()), curve.delta)


Law = RoundLaw | VectorLaw | RenyiLaw


@lru_cache(maxsize=1024)
def discrete_vector(l2: float, sigma: float, entries: int, closeness: float = 0.0) -> Law:
    """A vector of integers with discrete Gaussian noise.

    A discrete Gaussian of parameter σ is, but for factors e^{±t} per changed entry, continuous noise of variance
    σ² − r² that is then rounded at random to an integer, which commutes with integer shifts; see "Whole
    vectors" in docs/research/exact-accountant.md. r is about one unit; where that is much of σ, the law is the
    Rényi curve.

    Parameters
    ----------
    l2 : L2 norm by which neighbours differ.
    sigma : parameter of the noise on every entry, in the same unit, of which the entries are whole multiples.
    entries : in how many entries neighbours differ, at most.
    closeness : the noise on an entry is a discrete Gaussian but for factors e^{±closeness} of its probabilities.

    References
    ----------
    Poisson summation as in Canonne, Kamath, Steinke 2020, section 2; Balle and Wang 2018 for the continuous noise.
    """
    closest = float(log(4.0 * entries * sigma * sigma / (_CLOSENESS * l2 * l2))) / (2.0 * math.pi * math.pi)
    r_squared = max(closest, 0.0)
    j_squared = np.arange(1, 21, dtype=np.float64) ** 2
    eta = 2.0 * math.fsum(exp(-2.0 * math.pi * math.pi * r_squared * j_squared))
    if r_squared > _MOST_GIVEN_AWAY * sigma * sigma or eta >= 0.99:  # the Rényi curve is closer (Theorem 14)
        curve = sampled_gaussian_curve(l2, sigma, 1.0, WIDE_ORDERS)
        alpha = np.asarray(WIDE_ORDERS)
        excess = entries * closeness * (2.0 * alpha - 1.0) / (alpha - 1.0)
        return RenyiLaw.of(RenyiCurve(WIDE_ORDERS, curve.values + excess))
    slack = entries * (float(log1p(eta) - log1p(-eta)) + closeness)
    return VectorLaw(l2 / math.sqrt(sigma * sigma - r_squared), slack)


def coarser(law: RoundLaw) -> VectorLaw | RenyiLaw:
    """What the whole noisy counts, of which ``law`` releases the winner, cost; by published bounds."""
    if not law.noise.endswith("gaussian") or law.sampling_rate < 1.0:
        return _curve_of_counts(law)
    entries = _moved(law)
    found = discrete_vector(math.sqrt(entries), law.scale, entries)
    assert not isinstance(found, RoundLaw)  # it releases the whole vector
    return found


def _curve_of_counts(law: RoundLaw) -> RenyiLaw:
    """The Rényi curve of the whole noisy counts, the noise being continuous or discrete."""
    if law.noise.endswith("gaussian"):
        return RenyiLaw.of(sampled_gaussian_curve(math.sqrt(_moved(law)), law.scale, law.sampling_rate, WIDE_ORDERS))
    curve = published_range_curve if law.noise == "gumbel" else laplace_curve_of_counts
    return RenyiLaw.of(curve(1.0 / law.scale, WIDE_ORDERS, Unit(1, law.adjacency)))


def _moved(law: RoundLaw) -> int:
    """How many counts one vote changes by one."""
    return 2 if law.adjacency is Adjacency.REPLACE else 1


def together(laws: Iterable[Law]) -> VectorLaw | RenyiLaw:
    """One round of every one of ``laws`` as one law, without playing games."""
    counts: dict[Law, int] = {}
    for law in laws:
        loose = coarser(law) if isinstance(law, RoundLaw) else law
        counts[loose] = counts.get(loose, 0) + 1
    (mu, slack), curve = _vectors(counts), _curve(counts)
    if mu and not (curve.values.any() or curve.delta):
        return VectorLaw(mu, slack)
    return RenyiLaw.of(curve + _vector_curve(mu, slack))


def block_epsilon(rounds: Mapping[Law, int], delta: float, limits: Mapping[Law, int] | None = None) -> float:
    """ε of so many rounds of each law, chosen adaptively and interleaved in any way.

    Parameters
    ----------
    rounds : rounds of each law.
    delta : δ of the guarantee.
    limits : the most rounds of each law, for the grid that is computed once for all numbers up to them.

    Returns
    -------
    The smallest ε that is certified; infinite where nothing finite is known.

    References
    ----------
    docs/research/exact-accountant.md, "The exact accountant" (composition) and "Whole vectors".
    """
    played = {law: count for law, count in rounds.items() if count}
    most = {law: max(count, (limits or {}).get(law, 0)) for law, count in played.items()}
    return _block_epsilon(frozenset(played.items()), frozenset(most.items()), delta)


@lru_cache(maxsize=4096)
def _block_epsilon(rounds: frozenset[tuple[Law, int]], limits: frozenset[tuple[Law, int]], delta: float) -> float:
    played, most = dict(rounds), dict(limits)
    if not played:
        return 0.0
    winners = {law: count for law, count in played.items() if isinstance(law, RoundLaw)}
    if not winners:
        return _coarse_epsilon(played, delta)
    found = math.inf
    for loosely in (coarser, _curve_of_counts):
        counts: dict[Law, int] = {law: count for law, count in played.items() if law not in winners}
        for law, count in winners.items():
            counts[loosely(law)] = counts.get(loosely(law), 0) + count
        found = min(found, _coarse_epsilon(counts, delta))
    try:
        check_delta(delta)  # before a game is played that has no answer for it
        if len(winners) == 1:
            ((law, count),) = winners.items()
            others = {other: number for other, number in played.items() if other != law}
            beside = block_profile(others, delta) if others else None
            # The table's last entry. Where both must be computed, the table is: others may be asked for next.
            if count == most[law] and (beside is not None or winner_is_known(law, count)):
                return min(found, winner_profile(law, count).epsilon(delta, beside))
            return min(found, float(winner_epsilons(law, most[law], delta, beside)[count]))
        return min(found, block_profile(played, delta).epsilon(delta))
    except UnsupportedAccounting:
        return found


def block_profile(rounds: Mapping[Law, int], delta: float) -> Profile:
    """δ(ε) of so many rounds of each law together, close near ``delta``.

    Raises
    ------
    UnsupportedAccounting : where a law has no finite cost, or nothing is certified near ``delta``.
    """
    check_delta(delta)
    profiles = [winner_profile(law, count) for law, count in rounds.items() if isinstance(law, RoundLaw) and count]
    mu, slack = _vectors(rounds)
    if mu:
        profiles.append(gaussian_mechanism_profile(mu, slack))
    curve = _curve(rounds)
    if curve.values.any() or curve.delta:
        profiles.append(_renyi_profile(curve))
    return compose(profiles)


def _coarse_epsilon(rounds: Mapping[Law, int], delta: float) -> float:
    """ε of laws that are no winners': in closed form where they are all of one kind."""
    if math.fsum(count * law.delta for law, count in rounds.items() if isinstance(law, RenyiLaw)) >= delta:
        return math.inf
    (mu, slack), curve = _vectors(rounds), _curve(rounds)
    vectors, others = mu > 0.0, bool(curve.values.any() or curve.delta)
    if vectors and not others:
        return gaussian_epsilon(mu, slack, delta)
    if not vectors:
        return curve.to_epsilon(delta).epsilon
    alone = math.inf
    if np.isfinite(curve.values).any():
        alone = (curve + _vector_curve(mu, slack)).to_epsilon(delta).epsilon
        with suppress(UnsupportedAccounting):
            alone = min(alone, block_profile(rounds, delta).epsilon(delta))
    return alone


def _vectors(rounds: Mapping[Law, int]) -> tuple[float, float]:
    """All Gaussian vectors as one: μ and slack."""
    counts = [(law, count) for law, count in rounds.items() if isinstance(law, VectorLaw)]
    squared = math.fsum(count * law.mu * law.mu for law, count in counts)
    return math.sqrt(squared), math.fsum(count * law.slack for law, count in counts)


def _vector_curve(mu: float, slack: float) -> RenyiCurve:
    alpha = np.asarray(WIDE_ORDERS)
    return RenyiCurve(WIDE_ORDERS, 0.5 * alpha * mu * mu + slack * (2.0 * alpha - 1.0) / (alpha - 1.0))


def _curve(rounds: Mapping[Law, int]) -> RenyiCurve:
    total = RenyiCurve.zero(WIDE_ORDERS)
    for law, count in rounds.items():
        if isinstance(law, RenyiLaw):
            total = total + RenyiCurve(WIDE_ORDERS, np.array(law.values), law.delta) * count
    return total


def _renyi_profile(curve: RenyiCurve) -> Profile:
    """δ at every ε by Canonne, Kamath, Steinke 2020, Proposition 12; below ε = 0 by exchanging the data sets."""
    alpha, values = np.asarray(curve.orders), curve.values
    if not np.isfinite(values).any():
        raise UnsupportedAccounting("a release without a finite Rényi curve has no profile")
    far = float((values + 30.0 / (alpha - 1.0)).min())
    step = far / 2000.0
    s = multiples(-2000, 2000, step)
    with np.errstate(over="ignore"):
        log_delta = (alpha - 1.0) * (values - np.abs(s)[:, None] + log1p(-1.0 / alpha)) - log(alpha)
        near = np.minimum(1.0, exp(log_delta.min(axis=1)))
    upper = np.where(s > 0.0, -expm1(-s) + exp(-s) * near, near) + curve.delta
    upper = np.maximum.accumulate(np.minimum(1.0, upper))
    return Profile((Values(float(s[0]), step, upper, np.zeros(len(s)), np.ones(len(s))),))
