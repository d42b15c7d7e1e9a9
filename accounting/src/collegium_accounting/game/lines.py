"""Positions on a line: rounds with two outcomes, whose probability one vote shifts.

A class against the best of the others (a vote appears or disappears), a class against its only rival, the
exponential mechanism, a threshold test: in each the first outcome has probability F(x) under the one data set
and F(x − η) under the other, F a symmetric log-concave distribution function. Exchanging the data sets is
exchanging the outcomes at η − x, so that one search over x covers both directions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from collegium_accounting.elementary import FloatArray, exp, expm1, log, log1p, logaddexp
from collegium_accounting.game.cells import Cells, Enclosure
from collegium_accounting.game.curves import Enclosed
from collegium_accounting.units import IntArray

Bend = Callable[[FloatArray, FloatArray], FloatArray]
"""A bound on |F″| and on |F‴| over the intervals [low, high]."""

_NEGLIGIBLE = 46.0
"""Minus the log of a probability that is counted as lost rather than followed: e^{−46} = 1e-20."""

_FINEST = 1.0 / 1024.0
_ROOT = 0.5


@dataclass(frozen=True)
class Line(Enclosed):
    """Two outcomes on the integer multiples of ``step``.

    Attributes
    ----------
    log_below : log F at integer multiples of ``step``.
    step : lengths are in noise scales; for integer noise one vote.
    shift : η in steps.
    end : the positions −end … end are searched; beyond them ``far`` bounds what a round can gain.
    bend : bounds the derivatives of F; None for integer noise, whose differences are taken exactly.
    """

    log_below: Callable[[IntArray], FloatArray]
    step: float
    shift: int
    end: int
    bend: Bend | None
    spare: tuple[float, float] = (0.0, 0.0)
    """How much of P − Q and of Q a third outcome that is left out may move; see ``planes.Plane.duel``."""
    root: int = 1
    """Steps of a root cell."""

    @property
    def discrete(self) -> bool:
        """Whether the positions between two multiples of ``step`` do not exist."""
        return self.bend is None

    @property
    def far(self) -> float:
        """What a round beyond the searched positions adds to any hockey-stick divergence, at most."""
        return 2.0 * float(exp(self.log_below(np.array([self.shift - self.end]))[0]))

    def roots(self) -> Cells:
        """The intervals that the search begins with."""
        edges = np.append(np.arange(-self.end, self.end, self.root), self.end)
        return Cells(np.stack([edges[:-1], edges[1:]], axis=1).astype(np.int64))

    def enclose(self, cells: Cells) -> Enclosure:
        """Probabilities, log-ratios and the error of linear interpolation on each interval.

        Both log-ratios fall with x because log F is concave; the first is at least 0, the second at most 0.
        """
        x1, x2 = cells.bounds.T
        high_p, low_p = self._laws(x1), self._laws(x2)
        high_q, low_q = self._laws(x1 - self.shift), self._laws(x2 - self.shift)
        low, high = low_p - low_q, high_p - high_q
        at_low, at_high = exp(low_q), exp(high_q)
        return Enclosure(
            base_high=np.stack([at_low[0], at_high[1]]),
            ell_low=low,
            ell_high=high,
            first_high=exp(low_p[0]),
            corners=np.stack([[at_low, low], [at_high, high]]),
            curvature=np.stack([-(size := self._curvature(x1, x2)), size])[:, None],
        )

    def _laws(self, x: IntArray) -> FloatArray:
        """log Pr[first outcome] and log Pr[second outcome]; shape ``[2, positions]``. The noise is symmetric."""
        second = -x - 1 if self.discrete else -x
        return np.stack([self.log_below(x), self.log_below(second)])

    def _curvature(self, x1: IntArray, x2: IntArray) -> FloatArray:
        width = (x2 - x1) * self.step
        if self.bend is None:
            differences, levels = self._second_differences(x1, x2)
            return np.repeat(np.stack([differences, levels])[:, None] * ((x2 - x1) ** 2 / 8.0), 2, axis=1)
        # P − Q = F(x) − F(x − η), with second derivative ∫ F‴ over the shift; Q alone has F″.
        length = self.shift * self.step
        most = self.bend(np.asarray(x1 * self.step - length), np.asarray(x2 * self.step, dtype=np.float64))
        return np.repeat((np.stack([length * most, most]) * width**2 / 8.0)[:, None], 2, axis=1)

    def _second_differences(self, x1: IntArray, x2: IntArray) -> tuple[FloatArray, FloatArray]:
        """The largest second differences of P − Q and of Q at the integers inside each interval."""
        everywhere = np.arange(-self.end - self.shift - 2, self.end + 3)
        below = exp(self.log_below(everywhere))
        level = np.abs(np.diff(below, 2))
        moved = below[self.shift :] - below[: len(below) - self.shift]
        rate = np.abs(np.diff(moved, 2))
        # level[i] belongs to everywhere[i + 1] and rate[i] to everywhere[i + 1 + shift] as a position x.
        first = int(everywhere[0]) + 1 + self.shift
        rates = np.array([rate[a - first + 1 : b - first].max(initial=0.0) for a, b in zip(x1, x2, strict=True)])
        levels = np.array([level[a - first + 1 : b - first].max(initial=0.0) for a, b in zip(x1, x2, strict=True)])
        return rates, levels


def logistic_line(scale: float, votes: int) -> Line:
    """The line of the exponential mechanism: Gumbel noise, under which the other classes together act as one rival.

    Parameters
    ----------
    scale : of the noise on one count, in votes.
    votes : by how many votes the difference moves: 1, or 2 where the rival gains what the class loses.
    """
    length = votes / scale
    shift = max(8, math.ceil(length / _FINEST))
    step = length / shift
    end = math.ceil((_NEGLIGIBLE + length) / step)
    return Line(lambda x: -logaddexp(0.0, -x * step), step, shift, end, _bend, root=max(1, round(_ROOT / step)))


def discrete_line(noise: str, scale: float, votes: int, rival_noise: bool) -> Line:
    """The line of integer noise: a class that ``votes`` votes move against a fixed level, or against one rival.

    Positions are integers, and a tie goes to the rival or, one step on, to the class.

    Parameters
    ----------
    noise : "discrete-gaussian" or "discrete-laplace".
    scale, votes : as for `logistic_line`.
    rival_noise : whether the rival's own noise is part of the law, rather than given.
    """
    reach = 9.5 if noise.endswith("gaussian") else _NEGLIGIBLE
    half = (math.ceil((reach + 3.0) * scale) + 2 * votes + 4) * (2 if rival_noise else 1)
    mass = _mass(noise.endswith("gaussian"), scale, half, rival_noise)
    if rival_noise:
        reach *= math.sqrt(2.0) if noise.endswith("gaussian") else 1.1
    below, middle = np.cumsum(mass[:half]), half
    # Pr[Z ≤ n] for n ≥ 0 is 1 − Pr[Z ≤ −n − 1]: the small tail is always summed from its far end. Beyond 38 standard
    # deviations a tail is 0, and its logarithm −∞.
    table = np.concatenate([log(below), log1p(-below[::-1]), [0.0]])

    def log_below(x: IntArray) -> FloatArray:
        return np.asarray(table[np.clip(x + middle, 0, len(table) - 1)])

    end = math.ceil(reach * scale) + votes
    return Line(log_below, 1.0, votes, end, None, root=max(1, round(_ROOT * scale)))


def _mass(gaussian: bool, scale: float, half: int, rival_noise: bool) -> FloatArray:
    """The noise at −half … half, or that of the difference of two counts, in closed form.

    Σ_k f(k)·f(n − k) is e^{−n²/4σ²}·Σ_k e^{−(k − n/2)²/σ²}, the last sum one for even n and one for odd n; and for
    Laplace noise (|n| + (1 + e^{−2/λ})/(1 − e^{−2/λ}))·e^{−|n|/λ}.
    """
    n = np.abs(np.arange(-half, half + 1))
    z = n / scale
    if not rival_noise:
        mass = exp(-0.5 * z * z if gaussian else -z)
    elif gaussian:
        k = np.arange(-half, half + 1) / scale
        even, odd = (math.fsum(exp(-(k + shift) * (k + shift))) for shift in (0.0, 0.5 / scale))
        mass = exp(-0.25 * z * z) * np.where(n % 2 == 0, even, odd)
    else:
        mass = (n - (1.0 + 2.0 / expm1(-2.0 / scale))) * exp(-z)
    return np.asarray(mass / math.fsum(mass))


def _bend(low: FloatArray, high: FloatArray) -> FloatArray:
    """|F″| = F′·|1 − 2F| and |F‴| = F′·|1 − 6F′| are at most F′ = e^{−|z|}/(1 + e^{−|z|})², which falls away from 0."""
    nearest = np.where((low <= 0.0) & (high >= 0.0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    return exp(-nearest - 2.0 * log1p(exp(-nearest)))
