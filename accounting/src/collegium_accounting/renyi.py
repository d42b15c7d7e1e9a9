"""Rényi curves: the one currency in which both sides state what an answer costs.

A curve holds, for each order α of one grid, a bound on the Rényi divergence of that order. Curves
on the same grid add up (composition), scale (repetition) and convert to (ε, δ).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from collegium_accounting.elementary import FloatArray as FloatArray
from collegium_accounting.elementary import exp, expm1, log, log1p, logaddexp
from collegium_accounting.errors import ConfigurationError

PAPER_ORDERS: tuple[float, ...] = tuple(float(moment + 1) for moment in range(1, 9))
"""Moments λ = 1 … 8 of PATE (ICLR 2017), that is Rényi orders λ + 1."""

WIDE_ORDERS: tuple[float, ...] = (
    *(1.0 + x / 10.0 for x in range(1, 10)),
    *(float(x) for x in range(2, 33)),
    *(float(x) for x in (36, 40, 44, 48, 56, 64, 72, 80, 96, 112, 128, 160, 192, 224, 256)),
    *(float(x) for x in (320, 384, 448, 512, 640, 768, 896, 1024, 1536, 2048, 3072, 4096, 8192)),
)
"""68 orders from 1.1 to 8192, enough for δ down to 1e-12 and ε down to 0.01."""


class Conversion(StrEnum):
    """How a Rényi curve becomes (ε, δ)."""

    CLASSIC = "classic"
    """Mironov 2017, Proposition 3: ε = r(α) + log(1/δ)/(α − 1)."""

    IMPROVED = "improved"
    """Canonne, Kamath, Steinke 2020, Proposition 12: the classic value + log(1 − 1/α) − log(α)/(α − 1)."""


@dataclass(frozen=True)
class Epsilon:
    """An ε with the δ it belongs to and the order that gave it."""

    epsilon: float
    delta: float
    order: float


def check_orders(orders: Sequence[float]) -> tuple[float, ...]:
    """The grid as an ascending tuple; raises ConfigurationError unless all orders are finite and above 1."""
    grid = tuple(sorted({float(order) for order in orders}))
    if not grid or not all(math.isfinite(order) and order > 1.0 for order in grid):
        raise ConfigurationError(f"Rényi orders must be finite numbers above 1; got {list(orders)}")
    return grid


@dataclass(frozen=True, eq=False)
class RenyiCurve:
    """A bound on the Rényi divergence at each order of a grid.

    Parameters
    ----------
    orders : ascending, each above 1.
    values : shape ``[orders]``, in nats, non-negative; ``inf`` where nothing finite is known.
    delta : probability with which the bound may fail altogether; added to the δ of a conversion.

    Examples
    --------
    >>> once = RenyiCurve((2.0, 4.0), np.array([0.25, 0.5]))
    >>> (10 * once).values
    array([2.5, 5. ])
    """

    orders: tuple[float, ...]
    values: FloatArray
    delta: float = 0.0

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=np.float64)
        if values.shape != (len(self.orders),):
            raise ConfigurationError(f"a curve over {len(self.orders)} orders needs as many values, got {values.shape}")
        if np.isnan(values).any() or (values < 0).any() or not 0 <= self.delta < 1:
            raise ConfigurationError("Rényi divergences are non-negative numbers and δ lies in [0, 1)")
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    @classmethod
    def zero(cls, orders: Sequence[float]) -> "RenyiCurve":
        """Nothing charged yet."""
        grid = check_orders(orders)
        return cls(grid, np.zeros(len(grid)))

    def __add__(self, other: "RenyiCurve") -> "RenyiCurve":
        """Adaptive composition (Mironov 2017, Proposition 1)."""
        if self.orders != other.orders:
            raise ConfigurationError("curves over different orders cannot be composed")
        return RenyiCurve(self.orders, self.values + other.values, self.delta + other.delta)

    def __mul__(self, times: int) -> "RenyiCurve":
        """The same mechanism ``times`` times."""
        return RenyiCurve(self.orders, self.values * times if times else np.zeros_like(self.values), self.delta * times)

    __rmul__ = __mul__

    def at_least(self, values: FloatArray) -> "RenyiCurve":
        """The larger of the two at each order: a bound for whichever of two mechanisms runs."""
        return RenyiCurve(self.orders, np.maximum(self.values, values), self.delta)

    def to_epsilon(self, delta: float, conversion: Conversion = Conversion.IMPROVED) -> Epsilon:
        """The smallest ε over the grid at this δ, by ``conversion``.

        Raises ConfigurationError when δ is outside (0, 1). ε is infinite when the curve's own
        failure probability uses up δ.
        """
        left = checked_delta(delta) - self.delta
        if left <= 0.0:
            return Epsilon(math.inf, delta, self.orders[0])
        orders = np.asarray(self.orders)
        epsilons = self.values + log(1.0 / left) / (orders - 1.0)
        if conversion is Conversion.IMPROVED:
            epsilons = epsilons + log1p(-1.0 / orders) - log(orders) / (orders - 1.0)
        best = int(np.argmin(epsilons))
        return Epsilon(max(0.0, float(epsilons[best])), delta, self.orders[best])


def gaussian_curve(l2: float, sigma: float, orders: Sequence[float]) -> RenyiCurve:
    """Gaussian noise ``sigma`` on a vector that a neighbour moves by at most ``l2`` in L2: α·l2²/(2σ²).

    Holds for the continuous Gaussian (Mironov 2017, Proposition 7) and, when the vector is of
    integers, for the discrete one (Canonne, Kamath, Steinke 2020, Theorem 14).

    Examples
    --------
    >>> gaussian_curve(1.0, 2.0, orders=(2.0, 4.0)).values
    array([0.25, 0.5 ])
    """
    grid = check_orders(orders)
    positive(sigma)
    return RenyiCurve(grid, np.asarray(grid) * (l2 * l2) / (2.0 * sigma * sigma))


def laplace_curve(l1: float, scale: float, orders: Sequence[float]) -> RenyiCurve:
    """Continuous Laplace noise of ``scale`` on a vector that a neighbour moves by at most ``l1`` in L1.

    Mironov 2017, Proposition 6. With s = l1/scale it is log(α/(2α−1)·e^{(α−1)s} + (α−1)/(2α−1)·e^{−αs})/(α−1):
    convex in s and zero at 0, so moving one entry by all of l1 costs most and the bound covers vectors.
    """
    grid = check_orders(orders)
    positive(scale)
    alpha, shift = np.asarray(grid), l1 / scale
    up = log(alpha / (2 * alpha - 1)) + (alpha - 1) * shift
    down = log((alpha - 1) / (2 * alpha - 1)) - alpha * shift
    return RenyiCurve(grid, np.maximum(logaddexp(up, down) / (alpha - 1), 0.0))


def discrete_laplace_curve(l1: int, scale: float, orders: Sequence[float]) -> RenyiCurve:
    """Discrete Laplace noise (mass ∝ e^{−|x|/scale}) on integers that a neighbour moves by at most ``l1`` in L1.

    With s = 1/scale and r = e^{−s(2α−1)} the moment sums to A·e^{(α−1)·s·l1} + B·e^{−α·s·l1}, where
    A = (1 − e^{−s}r)/((1 + e^{−s})(1 − r)) and B = (e^{−s} − r)/((1 + e^{−s})(1 − r)) ≥ 0. Its logarithm is
    convex in l1 and zero at 0, so moving one entry by all of l1 costs most and the bound covers vectors.
    """
    grid = check_orders(orders)
    positive(scale)
    alpha, rate = np.asarray(grid), 1.0 / scale
    log_r = -rate * (2.0 * alpha - 1.0)
    log_common = -log1p(exp(-rate)) - log(-expm1(log_r))
    up = log(-expm1(log_r - rate)) + (alpha - 1.0) * rate * l1
    down = log(-expm1(-rate * (2.0 * alpha - 2.0))) - rate - alpha * rate * l1
    return RenyiCurve(grid, np.maximum((log_common + logaddexp(up, down)) / (alpha - 1.0), 0.0))


def checked_delta(delta: float) -> float:
    """``delta`` itself; ConfigurationError unless it is above 0 and below 1."""
    if not 0.0 < delta < 1.0:
        raise ConfigurationError(f"delta must lie in (0, 1); got {delta}")
    return delta


def positive(scale: float) -> float:
    """``scale``, any real number, as a float; ConfigurationError unless it is finite and above 0."""
    number = float(scale)
    if not (math.isfinite(number) and number > 0.0):
        raise ConfigurationError(f"a noise scale must be a positive number; got {scale}")
    return number
