"""The exact (ε, δ) of the Gaussian mechanism: for releases of whole noisy vectors, where no winner hides anything."""

import math

import numpy as np
from scipy.special import ndtr

from collegium_accounting.errors import ConfigurationError
from collegium_accounting.game.profile import Profile
from collegium_accounting.game.recursion import Values, gaussian_profile, multiples
from collegium_accounting.renyi import FloatArray

_DEVIATIONS = 8.0
_POINTS_PER_DEVIATION = 200


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
    exact = np.maximum.accumulate(np.clip(gaussian_profile(s + 2.0 * slack, mu), 0.0, 1.0)) * math.exp(slack)
    return Profile((Values(float(s[0]), step, np.minimum(1.0, exact * (1.0 + 1e-9) + 1e-15), *_tests(s, mu)),))


def gaussian_epsilons(mu: FloatArray, slack: FloatArray, delta: float) -> FloatArray:
    """ε at ``delta`` of Gaussian mechanisms, exactly but for rounding up.

    Parameters
    ----------
    mu : sensitivity over standard deviation, each above 0.
    slack : as for `gaussian_mechanism_profile`, of the same shape.
    delta : δ, in (0, 1).

    References
    ----------
    Balle and Wang 2018, Theorem 8.
    """
    target = delta * np.exp(-slack)
    low, high = np.zeros_like(mu), mu * mu / 2.0 + mu * 40.0
    for _ in range(80):
        middle = (low + high) / 2.0
        fits = gaussian_profile(-middle, mu) <= target
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    return np.asarray(high * (1.0 + 1e-9) + 2.0 * slack)


def _tests(s: FloatArray, mu: float) -> tuple[FloatArray, FloatArray]:
    """The likelihood-ratio test of each row: how often it rejects under the one and the other data set."""
    return np.asarray(ndtr(s / mu + mu / 2.0)), np.asarray(ndtr(s / mu - mu / 2.0))
