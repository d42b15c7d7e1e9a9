"""Positions in a plane: rounds in which one vote moves from class a to class b, with a third outcome "another class".

The three-outcome variable and its monotone enclosures are those of docs/research/exact-accountant.md, section 4: given
M, the largest noisy count among the other classes, a stands at x and b at y. Beyond the reach the third outcome is
lost and the duel of a and b on a line remains.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from collegium_accounting.elementary import FloatArray, exp
from collegium_accounting.game.cells import Cells, Enclosure
from collegium_accounting.game.curves import Enclosed
from collegium_accounting.game.lattice import FAR_BELOW, Lattice
from collegium_accounting.game.lines import Line
from collegium_accounting.units import IntArray

_REACH = 9.5

_RIDGE = 6.0
"""Where a or b stands so many scales above M, their duel stands for the plane."""

_CORE = 6.25
"""Second differences are tabulated where both positions are within so many scales of M,"""

_TABULATED = 625
"""but at no more than so many positions on each side: noise of a larger scale is tabulated less densely."""

_AT_ONCE = 2**14
"""Positions of cells that are looked at together."""


@dataclass(frozen=True)
class Plane(Enclosed):
    """Three outcomes at integer positions (x, y), and on the unbounded rectangles beside them; Gaussian noise."""

    lattice: Lattice
    tie_to_a: bool
    vote_length: float

    @classmethod
    def build(cls, sigma: float, tie_to_a: bool) -> "Plane":
        """The plane of integer Gaussian noise with ``sigma`` in votes."""
        vote = 1.0 / sigma
        return cls(Lattice.build(sigma, _REACH + 4.0 * vote), tie_to_a, vote)

    def roots(self) -> Cells:
        """Rectangles that grow away from M, and the unbounded sides."""
        lattice, end = self.lattice, self.lattice.reach
        one = max(1, round(1.0 / lattice.step))
        grid = [k * one for k in (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)]
        top = math.ceil(_RIDGE / lattice.step)
        edges = [side * g for g in grid if g < end for side in (-1, 1)] + [-end]
        xs, ys = (np.unique([*(e for e in edges if e < top), top, beside]) for beside in (1, -1))
        x1, y1 = (g.ravel() for g in np.meshgrid(xs[:-1], ys[:-1], indexing="ij"))
        x2, y2 = (g.ravel() for g in np.meshgrid(xs[1:], ys[1:], indexing="ij"))
        box = np.stack([x1, x2, y1, y2], axis=1)
        far_x, far_y = np.full(len(ys) - 1, FAR_BELOW), np.full(len(xs) - 1, FAR_BELOW)
        left = [far_x, np.full(len(far_x), -end), ys[:-1], ys[1:]]
        below = [xs[:-1], xs[1:], far_y, np.full(len(far_y), -end)]
        corner = np.array([[FAR_BELOW, -end, FAR_BELOW, -end]])
        sides = [np.stack(side, axis=1) for side in (left, below)]
        return Cells(np.concatenate([box, *sides, corner]).astype(np.int64))

    def enclose(self, cells: Cells) -> Enclosure:
        """Probabilities, log-ratios and the error of bilinear interpolation on each rectangle."""
        x1, x2, y1, y2 = cells.bounds.T
        lattice, tie = self.lattice, self.tie_to_a
        xs, ys = np.stack([x2, x1, x1, x2]), np.stack([y1, y2, y1, y2])
        laws = lattice.log_three(
            np.concatenate([xs, xs - 1]).ravel(), np.concatenate([ys, ys + 1]).ravel(), tie
        ).reshape(3, 2, 4, -1)
        (p_low, p_high, p_south, p_north), (q_low, q_high, q_south, q_north) = laws.transpose(1, 2, 0, 3)
        rest_high = exp(self.lattice.log_rest(x1 - 1, y1 + 1))
        corner, other = exp(q_low), exp(q_high)
        low, high = self._ratio(p_low, q_low, -1), self._ratio(p_high, q_high, 1)
        with np.errstate(invalid="ignore"):
            south, north = p_south - q_south, p_north - q_north
        corners = np.stack([[corner, low], [other, high], [exp(q_south), south], [exp(q_north), north]])
        return Enclosure(
            base_high=np.stack([corner[0], other[1], rest_high]),
            ell_low=low,
            ell_high=high,
            first_high=exp(p_low[0]),
            corners=corners,
            curvature=self._curvature(cells.bounds),
        )

    def duel(self, line: Line) -> Line:
        """``line``, the duel of a and b without M, made to bound the rest of the plane as well.

        With E the event that M wins, p and q the densities of the noisy counts of a and b, the three outcomes'
        hockey sticks exceed the duel's by at most 2·∫_E |p − k·q|: docs/research/exact-accountant.md, Lemma 7.
        """
        far = _RIDGE - self.vote_length
        tail = float(exp(self.lattice.log_beyond(far)))
        peak = 1.0 / math.sqrt(2.0 * math.pi)
        density = peak * float(exp(-0.5 * far * far))
        return replace(line, spare=(2.0 * self.vote_length * (density + 2.0 * peak * tail), 2.0 * tail))

    def _ratio(self, log_p: FloatArray, log_q: FloatArray, side: int) -> FloatArray:
        """log P/Q, enclosed outwards (``side`` −1 below, +1 above) where both have underflowed."""
        with np.errstate(invalid="ignore"):
            ell = log_p - log_q
        ell[0] = np.maximum(np.nan_to_num(ell[0], nan=math.inf if side > 0 else 0.0, posinf=math.inf), 0.0)
        ell[1] = np.minimum(np.nan_to_num(ell[1], nan=-math.inf if side < 0 else 0.0, neginf=-math.inf), 0.0)
        return ell

    @cached_property
    def _differences(self) -> tuple[int, int, FloatArray]:
        """(half, stride, second differences over ``stride`` votes divided by its square).

        Shape ``[2 axes, 2 (P − Q, Q), 3, side, side]``, for the positions −half, −half + stride, …, half in x and y.
        """
        core = math.ceil(_CORE / self.vote_length)
        stride = math.ceil(core / _TABULATED)
        count = min(core // stride, _TABULATED)
        side = np.arange(-count - 1, count + 2) * stride
        x, y = (part.ravel() for part in np.meshgrid(side, side, indexing="ij"))
        p, q = (
            exp(self.lattice.log_three(x - moved, y + moved, self.tie_to_a)).reshape(3, len(side), len(side))
            for moved in (0, 1)
        )
        both = np.stack([p - q, q])
        in_x, in_y = np.diff(both, 2, axis=2)[:, :, :, 1:-1], np.diff(both, 2, axis=3)[:, :, 1:-1, :]
        return count * stride, stride, np.stack([in_x, in_y]) / stride**2

    def _curvature(self, bounds: IntArray) -> FloatArray:
        half, stride, differences = self._differences
        out = np.full((2, 2, 2, 3, len(bounds)), np.inf)
        out[0] = -np.inf
        near = np.flatnonzero((np.abs(bounds) <= half).all(axis=1))
        between = 1.5 * (stride - 1) * self._steepest[:, None]
        x1, x2, y1, y2 = (bounds[near] + half).T
        sides = np.stack([x2 - x1, y2 - y1]) ** 2 / 8.0
        first = np.stack([x1, y1]) // stride
        sizes, which = np.unique(1 - -np.stack([x2, y2]) // stride - first, axis=1, return_inverse=True)
        for number, (wide, high) in enumerate(sizes.T.tolist()):  # cells that cover as many positions
            same = np.flatnonzero(which.ravel() == number)
            for start in range(0, len(same), many := 1 + _AT_ONCE // (wide * high)):
                some = same[start : start + many]
                x, y = (
                    first[0, some, None, None] + np.arange(wide)[:, None],
                    first[1, some, None, None] + np.arange(high),
                )
                part, share = differences[:, :, :, x, y], sides[:, None, None, some]
                out[0, ..., near[some]] = np.moveaxis(share * (part.min(axis=(4, 5)) - between[..., None]), 3, 0)
                out[1, ..., near[some]] = np.moveaxis(share * (part.max(axis=(4, 5)) + between[..., None]), 3, 0)
        return out

    @cached_property
    def _steepest(self) -> FloatArray:
        """By how much second differences of P − Q and of Q change, at most, per vote in x and in y together.

        a differences in x and b ≥ 1 in y of Σ f(u − x)·F(u − y) are at most Σ|Δᵃf|·max|Δᵇ⁻¹f|, and Σ|Δᵃf| for b = 0.
        """
        differences = [np.abs(np.diff(self.lattice.mass, n)) for n in range(5)]
        total, most = [math.fsum(d) for d in differences], [float(d.max()) for d in differences]
        mixed = total[2] * most[1]
        of_difference = max(total[4] + 2.0 * total[3] * most[0] + mixed, mixed + 2.0 * total[1] * most[2] + most[3])
        of_level = max(total[3] + total[2] * most[0], total[1] * most[1] + most[2])
        return np.array([of_difference, of_level])
