"""What the argmax of noisy counts costs whatever the counts are, when only the winner is released.

Published accountants charge the whole noisy histogram. The winner alone is a post-processing of a
three-outcome variable, whose largest divergence is certified by branch and bound: docs/privacy.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from collegium.errors import ConfigurationError
from collegium.privacy.accounting.argmax.cache import remembered
from collegium.privacy.accounting.argmax.lattice import FloatArray
from collegium.privacy.accounting.argmax.regions import LARGEST_RATIO, LARGEST_TILT, certified
from collegium.privacy.accounting.argmax.search import BackwardSampledPsi, ForwardSampledPsi, PlainPsi, Psi
from collegium.privacy.renyi import check_orders, discrete_laplace_curve, gaussian_curve, laplace_curve
from collegium.privacy.units import Adjacency

NOISES = ("gaussian", "laplace", "discrete-gaussian", "discrete-laplace", "gumbel")

TOLERANCE = 0.005
"""Relative excess over the supremum where the search of continuous noise stops; the finest cell may stop it first."""

TOLERANCE_DISCRETE = 0.01
"""The same for integer noise; times 1 + (α − 1)²/2σ² at large orders."""

SMALLEST_SCALE, LARGEST_SCALE = 1.0, 2000.0
"""Scales, in votes, that are searched; outside them the published bound is returned."""


def argmax_curve(
    noise: str, scale: float, orders: Sequence[float], adjacency: Adjacency = Adjacency.REPLACE
) -> FloatArray:
    """Data-independent Rényi bound of the argmax of noisy counts for one changed vote, both directions.

    Parameters
    ----------
    noise : one of ``NOISES``; ties of integer noise go to the lowest class.
    scale : in votes: σ for Gaussian noise, 1/γ for Laplace and Gumbel noise.
    orders : Rényi orders above 1.
    adjacency : one vote moves between classes (REPLACE), or appears or disappears (ADD_REMOVE).

    Returns
    -------
    Shape ``[orders]``, ascending orders, in nats: within a relative tolerance of the supremum over all
    counts, all numbers of classes and of votes; never above the published bound, which is what large orders get.

    Raises
    ------
    ConfigurationError : unknown noise, or a scale or order out of range.

    Notes
    -----
    docs/privacy.md, "The argmax alone". Gumbel noise is the exponential mechanism, in closed form:
    Dong, Durfee, Rogers 2020, "Optimal differential privacy composition for exponential mechanisms".
    """
    grid = _checked(noise, scale, orders)
    if noise == "gumbel":
        return bounded_range_curve((2.0 if adjacency is Adjacency.REPLACE else 1.0) / scale, grid)
    cap = classic_curve(noise, scale, grid, adjacency)
    wanted = _searchable(noise, scale, grid)
    if not wanted.any():
        return cap

    def compute(missing: FloatArray) -> FloatArray:
        caps = classic_curve(noise, scale, missing, adjacency) * (missing - 1.0)
        return certified(noise, scale, missing, adjacency, PlainPsi(), caps, _tolerance(noise)) / (missing - 1.0)

    cap[wanted] = np.minimum(
        cap[wanted], remembered((noise, scale, str(adjacency), 1.0, _tolerance(noise)), grid[wanted], compute)
    )
    return cap


def sampled_argmax_curve(
    noise: str,
    scale: float,
    sampling_rate: float,
    orders: Sequence[float],
    adjacency: Adjacency = Adjacency.REPLACE,
) -> FloatArray:
    """The same for adding or removing one *record* that takes part with probability ``sampling_rate``.

    Given the other records' sample, the output is P₀ without the record and (1 − s)·P₀ + s·P₁ with it, where P₁
    differs by one vote; the result bounds the Rényi divergence between the two in both directions.
    ``adjacency`` says what the record does to the counts when it is sampled: REPLACE where it pushes another
    neighbour out (k nearest neighbours), ADD_REMOVE where it only adds its own vote.

    Replacing a record by another is not covered: it is a removal and an addition, and both outputs then
    depend on the sampling.

    Raises
    ------
    ConfigurationError : as for ``argmax_curve``, or a sampling rate outside (0, 1].
    """
    if not 0.0 < sampling_rate <= 1.0:
        raise ConfigurationError(f"a sampling rate lies in (0, 1]; got {sampling_rate}")
    plain = argmax_curve(noise, scale, orders, adjacency)
    grid = _checked(noise, scale, orders)
    # By convexity the moment, minus 1, is at most the rate times that of the full data.
    moment = np.minimum(plain * (grid - 1.0), 700.0)
    cap = np.minimum(plain, np.log1p(sampling_rate * np.expm1(moment)) / (grid - 1.0))
    wanted = _searchable(noise, scale, grid)
    if noise == "gumbel" or sampling_rate == 1.0 or not wanted.any():
        return cap

    def compute(missing: FloatArray) -> FloatArray:
        caps = cap[np.searchsorted(grid, missing)] * (missing - 1.0)
        directions: tuple[Psi, ...] = (ForwardSampledPsi(sampling_rate), BackwardSampledPsi(sampling_rate))
        found = [certified(noise, scale, missing, adjacency, psi, caps, _tolerance(noise)) for psi in directions]
        return np.maximum(*found) / (missing - 1.0)

    key = (noise, scale, str(adjacency), sampling_rate, _tolerance(noise))
    cap[wanted] = np.minimum(cap[wanted], remembered(key, grid[wanted], compute))
    return cap


def classic_curve(noise: str, scale: float, orders: FloatArray, adjacency: Adjacency) -> FloatArray:
    """The published bound of the same release: α/σ², or that of noisy Laplace counts and of pure privacy."""
    entries = 2 if adjacency is Adjacency.REPLACE else 1
    grid = tuple(orders)
    if noise == "gumbel":
        return pure_curve(entries / scale, orders)
    if noise in ("gaussian", "discrete-gaussian"):
        return np.array(gaussian_curve(math.sqrt(entries), scale, grid).values)
    noisy = laplace_curve if noise == "laplace" else discrete_laplace_curve
    return np.minimum(entries * noisy(1, scale, grid).values, pure_curve(entries / scale, orders))


def pure_curve(epsilon: float, orders: FloatArray) -> FloatArray:
    """Any (ε, 0)-DP release: at most what randomised response costs (Mironov 2017, Proposition 5)."""
    log_moment = np.logaddexp(orders * epsilon, (1.0 - orders) * epsilon) - np.logaddexp(0.0, epsilon)
    return np.asarray(log_moment / (orders - 1.0))


def bounded_range_curve(epsilon: float, orders: FloatArray) -> FloatArray:
    """Any release whose log-ratios lie in some [t − ε, t]: the largest Rényi divergence over t, attained.

    With two outcomes at the ends of the range the moment is
    (e^{(α−1)t}(1 − e^{−αε}) − e^{αt}(e^{−ε} − e^{−αε}))/(1 − e^{−ε}), largest at
    e^t = (α − 1)(1 − e^{−αε})/(α(e^{−ε} − e^{−αε})). Dong, Durfee, Rogers 2020.
    """
    whole, rest = -np.expm1(-orders * epsilon), -np.exp(-epsilon) * np.expm1(-(orders - 1.0) * epsilon)
    t = np.clip(np.log((orders - 1.0) / orders) + np.log(whole / rest), 0.0, epsilon)
    log_moment = (orders - 1.0) * t + np.log((whole - np.exp(t) * rest) / -np.expm1(-epsilon))
    return np.asarray(np.maximum(log_moment, 0.0) / (orders - 1.0))


def _checked(noise: str, scale: float, orders: Sequence[float]) -> FloatArray:
    if noise not in NOISES:
        raise ConfigurationError(f"no noise is called {noise!r}; choose one of {', '.join(NOISES)}")
    if not (math.isfinite(scale) and scale > 0.0):
        raise ConfigurationError(f"a noise scale must be a positive number; got {scale}")
    return np.asarray(check_orders(orders))


def _tolerance(noise: str) -> float:
    return TOLERANCE_DISCRETE if noise.startswith("discrete-") else TOLERANCE


def _searchable(noise: str, scale: float, orders: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Orders at which the search can beat the published bound: beyond them both are nearly equal."""
    severity = (orders - 1.0) / scale
    allowed = severity <= LARGEST_TILT if noise.endswith("gaussian") else 2.0 * severity <= LARGEST_RATIO
    return allowed & (SMALLEST_SCALE <= scale <= LARGEST_SCALE)
