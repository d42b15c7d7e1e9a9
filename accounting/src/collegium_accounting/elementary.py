"""Elementary functions whose every bit is the same on every machine.

Sums, differences, products, quotients and square roots of double precision are exactly rounded by IEEE 754, each
elementwise operation of numpy is one of them, and scaling by a power of two is exact. Exponentials and logarithms are
not: the C library, and numpy's vector code, give other last bits on another processor, and so do dot products and
matrix products, whose order of summation is the library's. What is certified is computed with this module alone, so
that two machines agree to the last digit. Errors are a few units of the last place, as the tests say.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""log 2 in two parts, of which the first has zeros at its end: its products with whole numbers are exact."""

_OF_EXP = tuple(1.0 / math.factorial(n) for n in range(14, 1, -1))
_OF_LOG = tuple(2.0 / n for n in range(25, 1, -2))
_OF_ROOT_2PI = 0.3989422804014327

_OF_TAIL = (
    *(1.1670525350882472, -0.1610195767134654, -0.028002821825452974, 0.03167452189239266, -0.012103231162345369),
    *(0.0027056129762167095, -0.00029931636202703166, -1.716686526879361e-05, 1.0178489264109868e-05),
    *(-4.894829570004192e-07, -2.844006500151048e-07, 3.0766283713811506e-08, 9.180378674469537e-09),
    *(-1.2756102213808737e-09, -3.660279376104134e-10, 4.5926359348595205e-11, 1.7189314687646526e-11),
    *(-1.2726833698700693e-12, -8.668081913316188e-13, 1.1061557204136741e-15, 4.2750210770103334e-14),
    *(3.790937692263904e-15, -1.8474103010592332e-15, -4.0419094130708177e-16, 5.340854385017358e-17),
    2.941479937590055e-17,
)
"""Chebyshev coefficients of (1 + x)·R(x) in t = (x − 4)/(x + 4), R as in `tail_ratio`."""


def _reduced(x: ArrayLike) -> tuple[FloatArray, NDArray[np.int32]]:
    """e^r − 1 and k with x = r + k·log 2 and |r| ≤ ½·log 2."""
    clipped = np.clip(np.asarray(x, dtype=np.float64), -1100.0, 1100.0)
    k = np.rint(clipped * _LOG2_E)
    r = (clipped - k * _LN2_HIGH) - k * _LN2_LOW
    total = np.full_like(r, _OF_EXP[0])
    for coefficient in _OF_EXP[1:]:
        total *= r
        total += coefficient
    return r + r * r * total, k.astype(np.int32)


def exp(x: ArrayLike) -> FloatArray:
    """e^x, of the shape of ``x``."""
    with np.errstate(all="ignore"):
        small, k = _reduced(x)
        return np.asarray(np.ldexp(1.0 + small, k))


def expm1(x: ArrayLike) -> FloatArray:
    """e^x − 1, precise near 0."""
    with np.errstate(all="ignore"):
        small, k = _reduced(x)
        return np.where(k > 60, np.ldexp(1.0 + small, k), np.ldexp(small, k) + (np.ldexp(1.0, k) - 1.0))


def log(x: ArrayLike) -> FloatArray:
    """The natural logarithm; −∞ of 0, NaN below."""
    values = np.asarray(x, dtype=np.float64)
    with np.errstate(all="ignore"):
        part, exponent = np.frexp(values)
        low = part < math.sqrt(0.5)
        k = np.asarray(exponent - low, dtype=np.float64)
        f = np.where(low, 2.0 * part, part) - 1.0  # log(1 + f) = 2·artanh(f/(2 + f))
        s = f / (2.0 + f)
        z = s * s
        total = np.full_like(z, _OF_LOG[0])
        for coefficient in _OF_LOG[1:]:
            total *= z
            total += coefficient
        half = 0.5 * f * f
        found = np.asarray(k * _LN2_HIGH - ((half - (s * (half + z * total) + k * _LN2_LOW)) - f))
    found[values == 0.0] = -np.inf
    found[values == np.inf] = np.inf
    found[values < 0.0] = np.nan
    return found


def log1p(x: ArrayLike) -> FloatArray:
    """log(1 + x), precise near 0."""
    values = np.asarray(x, dtype=np.float64)
    above = 1.0 + values
    finite = (above > 0.0) & (above < np.inf)
    with np.errstate(invalid="ignore"):  # what the addition rounded away is returned to first order
        return log(above) + np.divide(values - (above - 1.0), above, out=np.zeros_like(above), where=finite)


def logaddexp(x: ArrayLike, y: ArrayLike) -> FloatArray:
    """log(e^x + e^y); neither is +∞."""
    high, low = np.maximum(x, y), np.minimum(x, y)
    apart = np.subtract(low, high, out=np.full_like(high, -np.inf), where=low > -np.inf)
    return np.asarray(high + log1p(exp(apart)))


def tail_ratio(x: ArrayLike) -> FloatArray:
    """R(x) = Pr[Z > x] over the density at x, of a standard normal Z; for x ≥ 0 (Mills' ratio)."""
    values = np.asarray(x, dtype=np.float64)
    t = 2.0 - 16.0 / (values + 4.0)  # twice (x − 4)/(x + 4)
    before, last = np.zeros_like(t), np.zeros_like(t)
    for coefficient in _OF_TAIL[:0:-1]:
        before, last = last, t * last - before + coefficient
    return np.asarray((0.5 * t * last - before + _OF_TAIL[0]) / (1.0 + values))


def normal_density(x: ArrayLike) -> FloatArray:
    """The density of the standard normal distribution."""
    values = np.asarray(x, dtype=np.float64)
    return exp(-0.5 * values * values) * _OF_ROOT_2PI


def normal_cdf(x: ArrayLike) -> FloatArray:
    """Pr[Z ≤ x] of a standard normal Z, with relative precision where it is small."""
    values = np.asarray(x, dtype=np.float64)
    tail = normal_density(values) * tail_ratio(np.abs(values))
    return np.where(values <= 0.0, tail, 1.0 - tail)


def total(values: FloatArray) -> FloatArray:
    """Sums along the last axis, from its first entry to its last; shape without that axis."""
    if not values.shape[-1]:
        return np.zeros(values.shape[:-1])
    return np.asarray(np.add.accumulate(values, axis=-1)[..., -1])


def interpolate(x: ArrayLike, knots: FloatArray, values: FloatArray) -> FloatArray:
    """Chords through (``knots``, ``values``), constant beyond the ends; ``knots`` ascend. As numpy.interp, portably."""
    points = np.clip(np.asarray(x, dtype=np.float64), knots[0], knots[-1])
    left = np.clip(np.searchsorted(knots, points, side="right") - 1, 0, max(len(knots) - 2, 0))
    right = np.minimum(left + 1, len(knots) - 1)
    width = knots[right] - knots[left]
    share = np.divide(points - knots[left], width, out=np.zeros_like(points), where=width > 0.0)
    return np.asarray(np.where(share < 1.0, values[left] + share * (values[right] - values[left]), values[right]))


def convolve(first: FloatArray, second: FloatArray) -> FloatArray:
    """Σ firstᵢ·secondⱼ over i + j, added in the order of i."""
    added = np.zeros(len(first) + len(second) - 1)
    for k in np.flatnonzero(first).tolist():
        added[k : k + len(second)] += first[k] * second
    return added
