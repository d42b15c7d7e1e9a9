"""A privacy profile: δ for every ε, from above and as attained, on a grid."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from collegium_accounting.elementary import FloatArray, convolve, exp, interpolate, log, total
from collegium_accounting.errors import ConfigurationError, UnsupportedAccounting
from collegium_accounting.game.recursion import Values, kinks, multiples
from collegium_accounting.renyi import checked_delta

SMALLEST_DELTA = 1e-10
"""Below it the probabilities that were counted as lost are no longer negligible."""


@dataclass(frozen=True)
class Profile:
    """Certified privacy profile of a whole run.

    Parameters
    ----------
    directions : one value function per ordered pair of neighbouring data sets that had to be followed; the
        profile is the largest of them.
    """

    directions: tuple[Values, ...]

    def delta(self, epsilon: float) -> float:
        """The smallest δ that is certified: the run is (ε, δ)-DP for this pair.

        Parameters
        ----------
        epsilon : at least 0.
        """
        if not epsilon >= 0.0:
            raise ConfigurationError(f"epsilon must be at least 0; got {epsilon}")
        # Chords in r = e^ε between grid points; constant where r is larger than all of them.
        r = exp(min(epsilon, _LARGEST_EXPONENT))
        return max(float(interpolate(r, *_knots(values))) for values in self.directions)

    def epsilon(self, delta: float, beside: "Profile | None" = None) -> float:
        """The smallest ε that is certified at this δ, for this alone or together with ``beside``; at least 0.

        Raises
        ------
        ConfigurationError : δ outside (0, 1).
        UnsupportedAccounting : δ below ``SMALLEST_DELTA``, or below what the grid resolves.
        """
        check_delta(delta)
        if beside is not None:
            return max(_epsilon_beside(values, beside, delta) for values in self.directions)
        return max(0.0, *(_epsilon(values, delta) for values in self.directions))

    def attained(self, delta: float) -> float:
        """An ε that a concrete adaptive policy and test force at this δ: no smaller ε is true of the game.

        The policy chooses real positions, or limits of them. It is a lower bound for the three-outcome game, and
        for a run with the given number of votes where its positions occur.
        """
        check_delta(delta)
        best = 0.0
        for values in self.directions:
            some = values.alpha > delta
            with np.errstate(divide="ignore"):
                found = log((values.alpha[some] - delta) / values.beta[some])
            best = max(best, float(found.max(initial=0.0)))
        return best

    def digest(self) -> str:
        """Tells profiles apart, for whoever keeps what follows from one."""
        parts = [array.tobytes() for v in self.directions for array in (np.array([v.start, v.step]), v.upper)]
        return hashlib.sha256(b"".join(parts)).hexdigest()

    def compose(self, other: "Profile") -> "Profile":
        """The profile of both runs, however their rounds are interleaved and chosen.

        Every run is dominated by the pair of laws whose hockey-stick divergences are its profile, and interactive
        mechanisms compose concurrently as their dominating pairs do (Vadhan and Zhang 2023, "Concurrent composition
        theorems for differential privacy", STOC). Chords and truncation round up. The attained value is that of
        one of the parts alone.
        """
        pairs = [(first, second) for first in self.directions for second in other.directions]
        return Profile(tuple(_convolved(first, second) for first, second in pairs))


def compose(profiles: Sequence[Profile]) -> Profile:
    """All ``profiles`` together; see ``Profile.compose``.

    Raises
    ------
    ConfigurationError : nothing to compose.
    """
    if not profiles:
        raise ConfigurationError("there is no profile to compose: name at least one")
    return reduce(Profile.compose, profiles)


def _epsilon_beside(values: Values, beside: Profile, delta: float) -> float:
    """ε at ``delta`` of rounds with these ``values`` and of ``beside``: the composition of both, at one δ.

    With D the loss of the pair that dominates ``beside``, δ(ε) = E[V(e^{ε − D})], solved for ε by halving; chords in r
    lie above V.
    """
    found = 0.0
    r, upper = _knots(values)
    for other in beside.directions:
        masses, s = kinks(other.upper, other.step), _grid(other)

        def together(
            epsilon: float, masses: FloatArray = masses, s: FloatArray = s, lost: float = other.upper[0]
        ) -> float:
            exponent = np.minimum(epsilon + s, _LARGEST_EXPONENT)
            return float(lost + total(masses * interpolate(exp(exponent), r, upper))) * (1.0 + 1e-9)

        low, high = 0.0, -float(s[0] + values.start)
        if together(high) > delta:
            raise UnsupportedAccounting(f"δ = {delta:g} is below what these profiles resolve; ask for a larger delta")
        while high - low > 1e-9 * high:
            middle = (low + high) / 2.0
            low, high = (middle, high) if together(middle) > delta else (low, middle)
        found = max(found, high if together(0.0) > delta else 0.0)
    return found


def check_delta(delta: float) -> None:
    """Refuse a δ that no profile here can answer."""
    if checked_delta(delta) < SMALLEST_DELTA:
        raise UnsupportedAccounting(
            f"the exact accountant holds to δ = {SMALLEST_DELTA:g}; for δ = {delta:g} use the Rényi accountant"
        )


def _grid(values: Values) -> FloatArray:
    return values.start + multiples(0, len(values.upper) - 1, values.step)


def _knots(values: Values) -> tuple[FloatArray, FloatArray]:
    """r = e^ε, ascending from 0, and δ there. Where e^ε passes double precision, δ is at most that of the last one."""
    s = _grid(values)
    held = s >= -_LARGEST_EXPONENT
    return np.insert(exp(-s[held][::-1]), 0, 0.0), np.insert(values.upper[held][::-1], 0, 1.0)


def _epsilon(values: Values, delta: float) -> float:
    above = int(np.searchsorted(values.upper, delta, side="right"))
    if above == 0:
        raise UnsupportedAccounting(
            f"δ = {delta:g} is below what this profile resolves ({values.upper[0]:.2g}); ask for a larger delta"
        )
    s = _grid(values)[above - 1 : above + 1]
    past = max(0.0, -float(s[0]) - _LARGEST_EXPONENT)
    r = exp(-s - past)  # in units of e^past, as double precision may not hold e^ε
    if above == len(values.upper):
        low, high, r = values.upper[-1], 1.0, np.append(r, 0.0)
    else:
        low, high = values.upper[above - 1], values.upper[above]
    share = (delta - low) / (high - low) if high > low else 0.0
    found = r[0] + share * (r[1] - r[0])
    return float(log(found)) + past if found > 0.0 else -math.inf


def _resampled(values: Values, step: float) -> tuple[int, FloatArray]:
    """The value function at multiples of ``step``: chords through a chord's points are above it again."""
    first = math.ceil(values.start / step - 1e-9)
    s = multiples(first, -first, step)
    return first, interpolate(exp(np.minimum(-s, _LARGEST_EXPONENT)), *_knots(values))


def in_double_precision(terms: int) -> float:
    """By what share of the larger one the difference of two running sums of so many terms may be off.

    A sum of n positive terms is right to n·2^−53 of itself in the order in which it is computed (Higham 2002, section
    4.2), its terms are sums of no more products each, and exponentials of at most 600 are right to 600·2^−53.
    """
    return _ROUNDING * math.ceil(terms / 1000)


def _convolved(one: Values, two: Values) -> Values:
    """Loss distributions on one grid, convolved: the loss −sⱼ has the probability dⱼ, an infinite one what is left."""
    step = min(one.step, two.step)
    (first_one, value_one), (first_two, value_two) = _resampled(one, step), _resampled(two, step)
    masses = [kinks(value_one, step), kinks(value_two, step)]
    both = convolve(masses[0], masses[1])
    lost = value_one[0] + value_two[0] - value_one[0] * value_two[0]
    start = (first_one + first_two) * step
    s = start + step * np.arange(len(both))
    # δ(ε) = lost + Σ over losses ℓ = −s above ε of p·(1 − e^{ε − ℓ}), at ε = −s again.
    below = np.insert(np.cumsum(both)[:-1], 0, 0.0)
    weighted = np.insert(np.cumsum(both * exp(s - s[-1]))[:-1], 0, 0.0)
    # Nothing is subtracted where e^{ε} passes double precision: δ is then bounded by Pr[ℓ > ε], from above still.
    weighted *= np.where(s[-1] - s <= _LARGEST_EXPONENT, exp(np.minimum(s[-1] - s, _LARGEST_EXPONENT)), 0.0)
    upper = np.clip(lost + np.maximum(below - weighted, 0.0) + in_double_precision(len(both)) * below, 0.0, 1.0)
    better = one if Profile((one,)).attained(1e-5) >= Profile((two,)).attained(1e-5) else two
    alpha = np.zeros(len(upper))
    beta = np.ones(len(upper))
    alpha[: len(better.alpha)], beta[: len(better.beta)] = better.alpha, better.beta
    return Values(start, step, np.maximum.accumulate(upper), alpha, beta)


_LARGEST_EXPONENT = 600.0
"""Of e, in sums of losses: what is lost below the smallest double is no more than 1e-60 times as large."""

_ROUNDING = 1e-12
"""Reserve for double precision for every 1,000 terms of two sums that are subtracted."""
