"""Tables of the mass and distribution function of discrete noise, on a grid shared by all histograms.

Pr[i wins] = Σ_t f(t − n_i) Π_{j<i} F(t − 1 − n_j) Π_{j>i} F(t − n_j), as a tie goes to the lowest index. Counts are
integers, so log f and log F are tabulated once per count and grid point and only looked up.

Grids, with m the number of classes (each term is log-concave in t):

- Gaussian: at σ ≥ 1.4·√m votes not every integer is summed. The terms are at least as wide as σ/√m, and with steps h
  the sum errs by e^{−2π²(σ/h)²/m}; h = σ/(1.4·√m) leaves 1e-16.
- Laplace: every integer up to where the tail is below 1e-17 of the whole; left tail exact.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from collegium_accounting.errors import ConfigurationError
from collegium_accounting.renyi import FloatArray, positive
from collegium_accounting.units import IntArray

NoiseKind = Literal["gaussian", "laplace", "gumbel", "discrete-gaussian", "discrete-laplace"]

_REACH = 9.5
"""Standard deviations beyond which a Gaussian integrand is below 1e-19 of its peak."""


@dataclass(frozen=True)
class NoiseLaw:
    """Noise on each count: its kind and its scale in votes (σ, or 1/γ)."""

    kind: NoiseKind
    scale: float

    def __post_init__(self) -> None:
        positive(self.scale)

    @property
    def discrete(self) -> bool:
        """Whether ties happen, so that the order of the classes matters."""
        return self.kind.startswith("discrete")


@dataclass(frozen=True)
class ThresholdTestLaw:
    """Pass when max count + N(0, σ₁²) ≥ T; ``discrete`` for the discrete Gaussian of a release."""

    sigma1: float
    threshold: float
    discrete: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma1) and self.sigma1 > 0.0 and math.isfinite(self.threshold)):
            raise ConfigurationError(f"a threshold test needs sigma1 > 0 and a finite threshold; got {self}")

    def log_pass(self, top: IntArray) -> FloatArray:
        """log Pr[pass] per largest count."""
        if self.discrete:
            return _discrete_gaussian_log_sf(np.ceil(self.threshold - top), self.sigma1)
        return log_normal_cdf((top - self.threshold) / self.sigma1)

    def log_fail(self, top: IntArray) -> FloatArray:
        """log Pr[abstain] per largest count."""
        if self.discrete:
            return _discrete_gaussian_log_sf(1.0 - np.ceil(self.threshold - top), self.sigma1)
        return log_normal_cdf((self.threshold - top) / self.sigma1)


@dataclass(frozen=True)
class Tables:
    """Logarithms per count v = 0 … largest + 1 (rows) and grid point t (columns).

    ``density`` includes the weight of the point. ``below`` is log Pr[v + noise < t] and ``upto`` log Pr[v + noise ≤ t].
    """

    density: FloatArray
    below: FloatArray
    upto: FloatArray


@lru_cache(maxsize=32)
def tables(noise: NoiseLaw, largest: int, classes: int) -> Tables:
    """Tables for counts up to ``largest`` (and one vote more) over ``classes`` classes."""
    counts = np.arange(largest + 2, dtype=np.float64)[:, None]
    if noise.kind == "discrete-gaussian":
        return _discrete_gaussian(noise.scale, counts, classes)
    if noise.kind == "discrete-laplace":
        return _discrete_laplace(1.0 / noise.scale, counts, classes)
    raise ConfigurationError(f"there is no table of {noise.kind} noise")


def log_normal_cdf(x: ArrayLike) -> FloatArray:
    """log Pr[N(0, 1) ≤ x] for each entry."""
    from scipy.special import log_ndtr  # takes half a second to load, and most commands need none of it

    return np.asarray(log_ndtr(x), dtype=np.float64)


def gaussian_step(sigma: float, classes: int) -> float:
    """Between points at which integrands of Gaussian noise are looked at."""
    return sigma / (1.4 * math.sqrt(max(classes, 4)))


def gaussian_range(sigma: float, largest: float, classes: int) -> tuple[float, float]:
    """Where such integrands of counts up to ``largest`` begin and end."""
    up = _REACH + math.sqrt(2.0 * math.log(max(classes, 2)))
    return -_REACH * sigma - 1.0, largest + up * sigma + 1.0


def _discrete_gaussian(sigma: float, counts: FloatArray, classes: int) -> Tables:
    low, high = gaussian_range(sigma, counts[-1, 0], classes)
    stride = max(1, math.floor(gaussian_step(sigma, classes)))
    points = np.arange(math.floor(low), math.ceil(high) + stride, stride)
    reach = int(points[-1] - points[0]) + int(counts[-1, 0]) + 2
    support = np.arange(-reach - math.ceil(_REACH * sigma) - 1, reach + 1)
    log_mass = -0.5 * (support / sigma) ** 2
    log_mass -= np.logaddexp.reduce(log_mass)
    log_upto = np.minimum(np.logaddexp.accumulate(log_mass), 0.0)
    offset = points - counts.astype(np.int64) - support[0]
    return Tables(log_mass[offset] + math.log(stride), log_upto[offset - 1], log_upto[offset])


def _discrete_laplace(gamma: float, counts: FloatArray, classes: int) -> Tables:
    reach = math.ceil((40.0 + math.log(classes)) / gamma)
    points = np.arange(-1, int(counts[-1, 0]) + reach)
    x = points - counts
    density = -gamma * np.abs(x) + math.log(math.tanh(gamma / 2.0))
    density[:, 0] -= math.log(-math.expm1(-gamma * classes))
    return Tables(density, _discrete_laplace_log_cdf(x - 1, gamma), _discrete_laplace_log_cdf(x, gamma))


def _discrete_laplace_log_cdf(x: FloatArray, gamma: float) -> FloatArray:
    normal = math.log1p(math.exp(-gamma))
    rising = gamma * np.minimum(x, 0.0) - normal
    return np.where(x <= 0, rising, np.log1p(-np.exp(-gamma * (np.maximum(x, 0.0) + 1.0) - normal)))


def _discrete_gaussian_log_sf(start: FloatArray, sigma: float) -> FloatArray:
    """log Pr[discrete Gaussian ≥ start], summed from the far tail inwards."""
    reach = int(np.abs(start).max(initial=0)) + math.ceil(39.0 * sigma) + 2
    log_mass = -0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2
    log_tail = np.logaddexp.accumulate(log_mass[::-1])[::-1]
    log_sf: FloatArray = np.minimum(log_tail - log_tail[0], 0.0)[start.astype(np.int64) + reach]
    return log_sf
