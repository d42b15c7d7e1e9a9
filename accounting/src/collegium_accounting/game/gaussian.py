"""The exact (ε, δ) of the Gaussian mechanism: for releases of whole noisy vectors, where no winner hides anything."""

import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from collegium_accounting.elementary import FloatArray, exp, normal_cdf
from collegium_accounting.errors import ConfigurationError
from collegium_accounting.game.profile import Profile
from collegium_accounting.game.recursion import Values, gaussian_profile, multiples

_DEVIATIONS = 8.0
_POINTS_PER_DEVIATION = 200

_PARTS = np.arange(1.0, 257.0) / 256.0
"""Where an interval that holds ε is looked at in one step."""
_STEPS = 7
"""After so many the interval is as short as double precision tells."""


def gaussian_mechanism_profile(mu: float, slack: float = 0.0) -> Profile:
    """δ(ε) of continuous Gaussian noise on a vector.

    Parameters
    ----------
    mu : L2 norm by which neighbours differ, in standard deviations of the noise on every entry. Vectors chosen
        adaptively are together one vector, whose μ² is the sum of theirs.
    slack : the probabilities of what is released differ from these by factors e^{±slack}, for all vectors together.

    Returns
    -------
    Profile
        Exact but for rounding up between grid points; attained by one pair of neighbours.

    Raises
    ------
    ConfigurationError : a μ that is not positive.

    References
    ----------
    Balle and Wang 2018, "Improving the Gaussian mechanism", Theorem 8; composition: Dong, Roth, Su 2022, Corollary 2.
    """
    if not (math.isfinite(mu) and mu > 0.0):
        raise ConfigurationError(f"a Gaussian mechanism needs a positive μ; got {mu}")
    step = mu / _POINTS_PER_DEVIATION
    half = math.ceil((_DEVIATIONS * mu + 0.5 * mu * mu + 2.0 * slack) / step)
    s = multiples(-half, half, step)
    # P(A) − e^ε·Q(A) ≤ e^slack·(P′(A) − e^{ε − 2·slack}·Q′(A)) for the laws P′ and Q′ of the continuous noise.
    exact = np.maximum.accumulate(np.clip(gaussian_profile(s + 2.0 * slack, mu), 0.0, 1.0)) * exp(slack)
    return Profile((Values(float(s[0]), step, np.minimum(1.0, exact * (1.0 + 1e-9) + 1e-15), *_tests(s, mu)),))


def gaussian_epsilon(mu: float, slack: float, delta: float) -> float:
    """ε at ``delta`` of a Gaussian mechanism, exactly but for rounding up.

    Parameters
    ----------
    mu, slack : as for `gaussian_mechanism_profile`.
    delta : δ, in (0, 1).

    References
    ----------
    Balle and Wang 2018, Theorem 8.
    """
    target = delta * float(exp(-slack))
    low, high = 0.0, mu * mu / 2.0 + mu * 40.0
    for _ in range(_STEPS):
        parts = low + (high - low) * _PARTS
        fits = gaussian_profile(-parts, mu) <= target
        fits[-1] = True
        first = int(np.argmax(fits))
        low, high = float(parts[first - 1]) if first else low, float(parts[first])
    return high * (1.0 + 1e-9) + 2.0 * slack


@lru_cache
def largest_mu(epsilon: float, delta: float) -> float:
    """The μ of the Gaussian mechanism that just stays within (ε, δ); a run's start asks for it nine times."""
    low, high = -25.0, 10.0
    while high - low > 1e-12:  # of log μ
        middle = (low + high) / 2.0
        fits = float(gaussian_profile(np.array([-epsilon]), float(exp(middle)))[0]) <= delta
        low, high = (middle, high) if fits else (low, middle)
    return float(exp(low))


def epsilon_beside(spent: Iterable[float], epsilon: float, delta: float) -> float:
    """The ε of Gaussian noise that costs ``epsilon`` together with mechanisms of these μ, at ``delta``; 0 for none."""
    squared = largest_mu(epsilon, delta) ** 2 - sum(mu**2 for mu in spent)
    return gaussian_mechanism_profile(math.sqrt(squared)).epsilon(delta) if squared > 0.0 else 0.0


def _tests(s: FloatArray, mu: float) -> tuple[FloatArray, FloatArray]:
    """The likelihood-ratio test of each row: how often it rejects under the one and the other data set."""
    # No smaller than a double tells: a test that errs more often attains less, and one that never errs would attain ∞.
    return normal_cdf(s / mu + mu / 2.0), np.maximum(normal_cdf(s / mu - mu / 2.0), np.finfo(np.float64).tiny)
