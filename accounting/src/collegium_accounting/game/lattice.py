"""Who wins: probabilities of the three outcomes a, b, rest at integer positions, for integer Gaussian noise.

Positions are counted in votes from M, the largest noisy count among the other classes.
"""

import math
from dataclasses import dataclass

import numpy as np

from collegium_accounting.elementary import FloatArray, exp, log
from collegium_accounting.units import IntArray

FAR_BELOW = -(2**40)
"""Position of a class that cannot win: it stands for −∞."""

_TAIL = 10.0


@dataclass(frozen=True)
class Lattice:
    """The noise on integers wide enough for positions up to ``reach``.

    Parameters
    ----------
    step : one vote in units of the noise scale.
    reach : largest position, in votes, at which probabilities are asked for.
    mass : of the noise at −half, …, half, shape ``[cells]``.
    below : the distribution function, for shifted positions, shape ``[3·cells]``.
    """

    step: float
    reach: int
    mass: FloatArray
    below: FloatArray

    @classmethod
    def build(cls, sigma: float, reach: float) -> "Lattice":
        """The lattice for noise of ``sigma`` votes and positions up to ``reach`` times as far."""
        step = 1.0 / sigma
        reach_steps = math.ceil(reach / step)
        half = reach_steps + math.ceil(_TAIL / step) + 4
        z = np.asarray(np.arange(-half, half + 1) * step, dtype=np.float64)
        mass = exp(-0.5 * z * z)
        mass /= math.fsum(mass)
        below = np.zeros(6 * half + 5)
        below[2 * half + 2 : 4 * half + 3] = np.cumsum(mass)
        below[4 * half + 3 :] = 1.0
        return cls(step, reach_steps, mass, below)

    @property
    def half(self) -> int:
        return (len(self.mass) - 1) // 2

    def log_up(self, position: IntArray) -> FloatArray:
        """log Pr[the class at ``position`` beats M], M alone being against it."""
        return self._log_below(position - 1)

    def _log_down(self, position: IntArray) -> FloatArray:
        """log Pr[the class at ``position`` does not beat M]; M wins ties."""
        return self._log_below(-position)

    def log_three(self, x: IntArray, y: IntArray, tie_to_a: bool) -> FloatArray:
        """log Pr[a], log Pr[b], log Pr[rest] with a at x and b at y; shape ``[3, positions]``.

        Either position may be FAR_BELOW. ``tie_to_a`` says who wins when a and b are level. Underflow gives −inf.
        """
        low_x, low_y = x <= FAR_BELOW // 2, y <= FAR_BELOW // 2
        near_x, near_y = np.where(low_x, 0, x), np.where(low_y, 0, y)
        both = ~(low_x | low_y)
        out = np.empty((3, len(x)))
        out[0] = np.where(low_x, -np.inf, self.log_up(near_x))
        out[1] = np.where(low_y, -np.inf, self.log_up(near_y))
        near, far = x[both], y[both]
        out[0, both] = self._log_first(near, near - far, 0 if tie_to_a else 1)
        out[1, both] = self._log_first(far, far - near, 1 if tie_to_a else 0)
        out[2] = self.log_rest(x, y)
        return out

    def log_rest(self, x: IntArray, y: IntArray) -> FloatArray:
        """log Pr[neither a at x nor b at y beats M]; either position may be FAR_BELOW."""
        low_x, low_y = x <= FAR_BELOW // 2, y <= FAR_BELOW // 2
        down_x, down_y = self._log_down(np.where(low_x, 0, x)), self._log_down(np.where(low_y, 0, y))
        return np.where(low_x, 0.0, down_x) + np.where(low_y, 0.0, down_y)

    def _log_first(self, x: IntArray, d: IntArray, loses_ties: int) -> FloatArray:
        """log Pr[Z₁ + x > 0 and Z₁ + d beats Z₂]: for fixed d a tail sum over z of mass(z)·F(z + d).

        All terms are positive and summed from the far end, so tails keep their relative precision.
        """
        out = np.empty(len(x))
        half, width = self.half, len(self.mass)
        order = np.argsort(d, kind="stable")
        values, starts = np.unique(d[order], return_index=True)
        for value, members in zip(values, np.split(order, starts[1:]), strict=True):
            first = np.clip(1 - x[members] + half, 0, width)
            low = int(first.min())
            shift = 2 * half + 2 + int(value) - loses_ties
            terms = self.mass[low:] * self.below[shift + low : shift + width]
            tail = np.append(np.cumsum(terms[::-1])[::-1], 0.0)
            out[members] = tail[first - low]
        return log(out)

    def log_beyond(self, length: float) -> float:
        """A bound on log Pr[noise ≥ length] (in scales) that also covers noise around any real centre."""
        return float(self._log_below(np.asarray([1 - math.floor(length / self.step)]))[0])

    def _log_below(self, position: IntArray) -> FloatArray:
        middle = (len(self.below) - 1) // 2
        return log(self.below[np.clip(position + middle, 0, len(self.below) - 1)])
