"""Who wins: probabilities of the three outcomes a, b, rest on a lattice of positions, for each noise.

Positions are counted in lattice steps from M, the largest noisy count among the other classes; all
lengths are in units of the noise scale. For continuous noise the lattice is only where probabilities
are evaluated; for discrete noise it is the integers, and a step is one vote.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from collegium.privacy.units import IntArray

FloatArray = NDArray[np.float64]
FAR_BELOW = -(2**40)
"""Lattice index of a class that cannot win: its position is −∞."""

_NODES, _WEIGHTS = (np.asarray(part, dtype=np.float64) for part in np.polynomial.legendre.leggauss(5))
_TAIL = {"gaussian": 10.0, "laplace": 45.0}


@dataclass(frozen=True)
class Lattice:
    """The noise on a lattice wide enough for positions up to ``reach`` steps from M.

    Parameters
    ----------
    family : "gaussian" or "laplace".
    discrete : integer noise; ``scale`` is then the lattice's only length.
    step : lattice step in units of the scale.
    vote : lattice steps that one vote makes; 1 for discrete noise.
    reach : largest position, in steps, at which probabilities are asked for.
    """

    family: str
    discrete: bool
    step: float
    vote: int
    reach: int
    density: FloatArray
    """Shape ``[nodes, cells]``: the density at the Gauss–Legendre nodes of each cell, times weight; or the mass."""
    below: FloatArray
    """Shape ``[nodes, 3·cells]``, the distribution function at the same nodes, for shifted positions."""

    @classmethod
    def build(cls, family: str, discrete: bool, scale: float, reach: float, finest: float = 1.0 / 64.0) -> "Lattice":
        """The lattice for one noise scale (votes), positions up to ``reach`` and steps of at most ``finest`` scales."""
        vote_length = 1.0 / scale
        vote = 1 if discrete else max(1, math.ceil(vote_length / finest))
        step = vote_length / vote
        reach_steps = math.ceil(reach / step)
        half = reach_steps + math.ceil(_TAIL[family] / step) + 4 * vote
        cells = np.arange(-half, half + 1)
        wide = np.arange(-3 * half - 2, 3 * half + 3)
        if discrete:
            mass = np.exp(_log_kernel(family, np.asarray(cells * step, dtype=np.float64)))
            mass /= mass.sum()
            below = np.zeros(len(wide))
            inside = slice(2 * half + 2, 4 * half + 3)
            below[inside] = np.cumsum(mass)
            below[4 * half + 3 :] = 1.0
            return cls(family, True, step, vote, reach_steps, mass[None, :], below[None, :])
        offsets = 0.5 + 0.5 * _NODES
        density = np.stack(
            [
                0.5 * step * weight * np.exp(_log_kernel(family, (cells + offset) * step)) / _NORMALISER[family]
                for offset, weight in zip(offsets, _WEIGHTS, strict=True)
            ]
        )
        below = np.stack([np.exp(_log_below(family, (wide + offset) * step)) for offset in offsets])
        return cls(family, False, step, vote, reach_steps, density, below)

    @property
    def half(self) -> int:
        return int(self.density.shape[1] - 1) // 2

    def log_up(self, position: IntArray) -> FloatArray:
        """log Pr[the class at ``position`` beats M], M alone being against it."""
        return self._log_below(position - 1) if self.discrete else _log_below(self.family, self._length(position))

    def log_down(self, position: IntArray) -> FloatArray:
        """log Pr[the class at ``position`` does not beat M]; M wins ties."""
        return self._log_below(-position) if self.discrete else _log_below(self.family, self._length(-position))

    def log_three(self, x: IntArray, y: IntArray, tie_to_a: bool) -> FloatArray:
        """log Pr[a], log Pr[b], log Pr[rest] with a at x and b at y; shape ``[3, positions]``.

        Either position may be FAR_BELOW. ``tie_to_a`` says who wins when a and b are level; it matters
        for discrete noise alone. Underflow gives −inf.
        """
        low_x, low_y = x <= FAR_BELOW // 2, y <= FAR_BELOW // 2
        near_x, near_y = np.where(low_x, 0, x), np.where(low_y, 0, y)
        both = ~(low_x | low_y)
        out = np.empty((3, len(x)))
        out[0] = np.where(low_x, -np.inf, self.log_up(near_x))
        out[1] = np.where(low_y, -np.inf, self.log_up(near_y))
        # Both winners in one call: they need the same shifts d, and each new d costs a sum over the lattice.
        near, far = x[both], y[both]
        if self.discrete and not tie_to_a:
            out[0, both] = self._log_first(near, near - far, 1)
            out[1, both] = self._log_first(far, far - near, 0)
        elif self.discrete:
            out[0, both] = self._log_first(near, near - far, 0)
            out[1, both] = self._log_first(far, far - near, 1)
        else:
            joint = self._log_first(np.concatenate([near, far]), np.concatenate([near - far, far - near]), 0)
            out[:2, both] = joint.reshape(2, -1)
        out[2] = np.where(low_x, 0.0, self.log_down(near_x)) + np.where(low_y, 0.0, self.log_down(near_y))
        return out

    def _log_first(self, x: IntArray, d: IntArray, loses_ties: int) -> FloatArray:
        """log Pr[Z₁ + x > 0 and Z₁ + d beats Z₂]: for fixed d a tail sum over z of density(z)·F(z + d).

        All terms are positive and summed from the far end, so tails keep their relative precision.
        """
        out = np.empty(len(x))
        half, width = self.half, self.density.shape[1]
        order = np.argsort(d, kind="stable")
        values, starts = np.unique(d[order], return_index=True)
        with np.errstate(divide="ignore"):
            for value, members in zip(values, np.split(order, starts[1:]), strict=True):
                first = np.clip(-x[members] + (1 if self.discrete else 0) + half, 0, width)
                low = int(first.min())
                shift = 2 * half + 2 + int(value) - (loses_ties if self.discrete else 0)
                terms = np.einsum(
                    "nm,nm->m", self.density[:, low:], self.below[:, shift + low : shift + width], optimize=False
                )
                tail = np.append(np.cumsum(terms[::-1])[::-1], 0.0)
                out[members] = np.log(tail[first - low])
        return out

    def log_beyond(self, length: float) -> float:
        """A bound on log Pr[noise ≥ length] (in scales) that also covers integer noise around any real centre."""
        if self.discrete:
            return float(self._log_below(np.asarray([1 - math.floor(length / self.step)]))[0])
        return float(_log_below(self.family, np.asarray([-length]))[0])

    def _length(self, position: IntArray) -> FloatArray:
        return np.asarray(position * self.step, dtype=np.float64)

    def _log_below(self, position: IntArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            middle = (self.below.shape[1] - 1) // 2
            return np.asarray(np.log(self.below[0, np.clip(position + middle, 0, self.below.shape[1] - 1)]))


_NORMALISER = {"gaussian": math.sqrt(2.0 * math.pi), "laplace": 2.0}


def _log_kernel(family: str, z: FloatArray) -> FloatArray:
    return -0.5 * z * z if family == "gaussian" else -np.abs(z)


def _log_below(family: str, z: FloatArray) -> FloatArray:
    if family == "gaussian":
        return np.asarray(log_ndtr(z))
    return np.where(z < 0, z - math.log(2.0), np.log1p(-0.5 * np.exp(-np.abs(z))))
