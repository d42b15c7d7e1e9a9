"""What one round of a step releases, as the exact accountant counts it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from collegium.errors import UnsupportedAccounting
from collegium.privacy.accounting.game.winner import RoundLaw

_CLOSENESS = 1e-12
"""How close discrete noise of many units is made to rounded continuous noise: e^{±1e-12}."""


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


Law = RoundLaw | VectorLaw


def discrete_vector(l2: float, sigma: float, entries: int, closeness: float = 0.0) -> VectorLaw:
    """A vector of integers with discrete Gaussian noise.

    A discrete Gaussian of parameter σ is, but for factors e^{±t} per changed entry, continuous noise of variance
    σ² − r² that is then rounded at random to an integer, which commutes with integer shifts; see docs/privacy.md,
    "Whole vectors". A closeness of 1e-12 needs r of one to two units.

    Parameters
    ----------
    l2 : L2 norm by which neighbours differ.
    sigma : parameter of the noise on every entry, in the same unit, of which the entries are whole multiples.
    entries : in how many entries neighbours differ, at most.
    closeness : the noise on an entry is a discrete Gaussian but for factors e^{±closeness} of its probabilities.

    Raises
    ------
    UnsupportedAccounting : noise far below one unit.

    References
    ----------
    Poisson summation as in Canonne, Kamath, Steinke 2020, section 2; Balle and Wang 2018 for the continuous noise.
    """
    r_squared = min(math.log(2.0 * entries / _CLOSENESS) / (2.0 * math.pi**2), sigma * sigma / 2.0)
    j_squared = np.arange(1, 21, dtype=np.float64) ** 2
    eta = 2.0 * float(np.exp(-2.0 * math.pi**2 * r_squared * j_squared).sum())
    if eta >= 0.99:
        raise UnsupportedAccounting(f"discrete noise of {sigma:g} units is not close to continuous noise")
    slack = entries * (math.log1p(eta) - math.log1p(-eta) + closeness)
    return VectorLaw(l2 / math.sqrt(sigma * sigma - r_squared), slack)
