"""Branch and bound over where two classes stand: a certified supremum of a three-outcome divergence.

The proof is in docs/privacy.md. In short, with P the law of (a wins, b wins, another wins) at positions
(x, y) and Q that at (x − h, y + h), every log-ratio ℓᵢ = log Pᵢ/Qᵢ falls with x and rises with y, and so the
two corners of a rectangle enclose it; the Qᵢ are monotone too. The moment is 1 + Σ Qᵢ·ψ(ℓᵢ) with ψ ≥ 0
that falls to 0 at ℓ = 0 and rises after, which turns enclosures of Qᵢ and ℓᵢ into a bound on the rectangle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from collegium.privacy.accounting.argmax.curvature import plane_curvature
from collegium.privacy.accounting.argmax.lattice import FAR_BELOW, FloatArray, Lattice
from collegium.privacy.accounting.progress import SearchStep, report_step
from collegium.privacy.units import IntArray


class Psi(Protocol):
    """A convex function ψ ≥ 0 of the ratio r = P/Q, zero at r = 1: Σ Qᵢ·ψ(rᵢ) is the moment of order α, minus 1."""

    def value(self, ell: FloatArray, alpha: FloatArray) -> FloatArray:
        """ψ at log-ratio ℓ."""
        ...

    def slope(self, ell: FloatArray, alpha: FloatArray) -> FloatArray:
        """dψ/dr at log-ratio ℓ."""
        ...

    def unbounded(self, alpha: FloatArray, p: FloatArray, q: FloatArray, log_tilt: FloatArray) -> FloatArray:
        """A bound on Q·ψ whatever the ratio, from bounds on P, Q and log ∫ p^α q^{1−α} over the outcome."""
        ...


class PlainPsi:
    """P against Q: ψ = r^α − 1 − α(r − 1)."""

    def value(self, ell: FloatArray, alpha: FloatArray) -> FloatArray:
        return np.asarray(np.expm1(alpha * ell) - alpha * np.expm1(ell))

    def slope(self, ell: FloatArray, alpha: FloatArray) -> FloatArray:
        return np.asarray(alpha * np.expm1((alpha - 1.0) * ell))

    def unbounded(self, alpha: FloatArray, p: FloatArray, q: FloatArray, log_tilt: FloatArray) -> FloatArray:
        return np.asarray(np.exp(log_tilt) + (alpha - 1.0) * q)


@dataclass(frozen=True)
class ForwardSampledPsi:
    """(1 − s)Q + sP against Q: ψ = u^α − 1 − α(u − 1), u = 1 + s(r − 1)."""

    rate: float

    def value(self, ell: FloatArray, alpha: FloatArray) -> FloatArray:
        excess = self.rate * np.expm1(ell)
        return np.asarray(np.expm1(alpha * np.log1p(excess)) - alpha * excess)

    def slope(self, ell: FloatArray, alpha: FloatArray) -> FloatArray:
        return np.asarray(self.rate * alpha * np.expm1((alpha - 1.0) * np.log1p(self.rate * np.expm1(ell))))

    def unbounded(self, alpha: FloatArray, p: FloatArray, q: FloatArray, log_tilt: FloatArray) -> FloatArray:
        return np.asarray(self.rate * (np.exp(log_tilt) + (alpha - 1.0) * q))


@dataclass(frozen=True)
class BackwardSampledPsi:
    """Q against (1 − s)Q + sP: ψ = u^{1−α} − 1 + (α − 1)(u − 1), u = 1 + s(r − 1)."""

    rate: float

    def value(self, ell: FloatArray, alpha: FloatArray) -> FloatArray:
        excess = self.rate * np.expm1(ell)
        return np.asarray(np.expm1((1.0 - alpha) * np.log1p(excess)) + (alpha - 1.0) * excess)

    def slope(self, ell: FloatArray, alpha: FloatArray) -> FloatArray:
        return np.asarray(-self.rate * (alpha - 1.0) * np.expm1(-alpha * np.log1p(self.rate * np.expm1(ell))))

    def unbounded(self, alpha: FloatArray, p: FloatArray, q: FloatArray, log_tilt: FloatArray) -> FloatArray:
        return np.asarray(self.rate * (alpha - 1.0) * p)


_PAIRS_AT_ONCE = 400_000
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Cells:
    """Rectangles of positions, shape ``[cells, 4]`` as x₁, x₂, y₁, y₂; or intervals ``[cells, 2]`` of d = x − y."""

    bounds: IntArray

    def split(self, discrete: bool) -> tuple[Cells, IntArray, NDArray[np.bool_]]:
        """Children, the parent of each, and which cells could not be split."""
        children, parents = [self.bounds], [np.arange(len(self.bounds))]
        for axis in range(0, self.bounds.shape[1], 2):
            low, high = children[0][:, axis], children[0][:, axis + 1]
            middle = (low + high) // 2
            width = np.where(low == FAR_BELOW, 0, high - low)
            can = (width > 1) | ((width == 1) & discrete)
            left, right = children[0].copy(), children[0][can].copy()
            left[:, axis + 1] = np.where(can, middle, high)
            right[:, axis] = np.where(width[can] > 1, middle[can], high[can])
            children, parents = [np.concatenate([left, right])], [np.concatenate([parents[0], parents[0][can]])]
        counts = np.bincount(parents[0], minlength=len(self.bounds))
        stuck = counts == 1
        keep = ~stuck[parents[0]]
        return Cells(children[0][keep]), parents[0][keep], stuck


@dataclass(frozen=True)
class Enclosure:
    """What is known on each cell; arrays ``[outcomes, cells]``.

    ``base_corner`` is Q at the corner that gives ``ell_low``: an attained value, hence a lower bound.
    ``corners`` holds the (Q, ℓ) of all corners, shape ``[corners, 2, outcomes, cells]``, and ``curvature`` bounds
    by how much bilinear interpolation between them misses P − Q and Q, shape ``[2, outcomes, cells]``.
    ``first_high`` bounds Pr_P[a], and ``lead_high`` (x, d) bounds where a stands, both for a's unbounded ratio.
    """

    base_low: FloatArray
    base_high: FloatArray
    base_corner: FloatArray
    ell_low: FloatArray
    ell_high: FloatArray
    first_high: FloatArray
    lead_high: FloatArray
    corners: FloatArray
    curvature: FloatArray


@dataclass(frozen=True)
class SearchProblem:
    """One noise, one tie rule, one ψ."""

    lattice: Lattice
    tie_to_a: bool
    vote_length: float
    psi: Psi

    @property
    def subject(self) -> str:
        """What is searched for, in words that a user reads."""
        kind = "discrete " * self.lattice.discrete + self.lattice.family.capitalize()
        return f"certifying the bound on the winner under {kind} noise of scale {1.0 / self.vote_length:g} votes"

    @property
    def ratio_cap(self) -> float:
        return 2.0 * self.vote_length if self.lattice.family == "laplace" else math.inf

    def enclose_plane(self, cells: Cells) -> Enclosure:
        """Three outcomes on rectangles of (x, y)."""
        x1, x2, y1, y2 = cells.bounds.T
        lattice, vote, tie = self.lattice, self.lattice.vote, self.tie_to_a
        xs, ys = np.stack([x2, x1, x1, x2]), np.stack([y1, y2, y1, y2])
        laws = lattice.log_three(
            np.concatenate([xs, xs - vote]).ravel(), np.concatenate([ys, ys + vote]).ravel(), tie
        ).reshape(3, 2, 4, -1)
        (p_low, p_high, p_south, p_north), (q_low, q_high, q_south, q_north) = laws.transpose(1, 2, 0, 3)
        rest_high = np.exp(self._log_rest(x1 - vote, y1 + vote))
        rest_low = np.exp(self._log_rest(x2 - vote, y2 + vote))
        corner, other = np.exp(q_low), np.exp(q_high)
        step = lattice.step
        low, high = self._ratio(p_low, q_low, -1), self._ratio(p_high, q_high, 1)
        with np.errstate(invalid="ignore"):
            south, north = p_south - q_south, p_north - q_north
        corners = np.stack([[corner, low], [other, high], [np.exp(q_south), south], [np.exp(q_north), north]])
        return Enclosure(
            base_low=np.stack([other[0], corner[1], rest_low]),
            base_high=np.stack([corner[0], other[1], rest_high]),
            base_corner=corner,
            ell_low=low,
            ell_high=high,
            first_high=np.exp(p_low[0]),
            lead_high=np.stack([x2 * step, np.where(y1 == FAR_BELOW, math.inf, (x2 - y1) * step)]),
            corners=corners,
            curvature=plane_curvature(lattice, self.vote_length, cells.bounds),
        )

    def enclose_line(self, cells: Cells) -> Enclosure:
        """Two outcomes, M far below, on intervals of d; Q is at d − 2h."""
        d1, d2 = cells.bounds.T
        lattice, vote, tie = self.lattice, self.lattice.vote, self.tie_to_a
        p_low, q_low = lattice.log_two(d2, tie), lattice.log_two(d2 - 2 * vote, tie)
        p_high, q_high = lattice.log_two(d1, tie), lattice.log_two(d1 - 2 * vote, tie)
        return self._two(p_low, q_low, p_high, q_high, np.stack([np.full(len(d2), math.inf), d2 * lattice.step]))

    def enclose_single(self, cells: Cells) -> Enclosure:
        """Two outcomes, a against M, on intervals of x; Q is at x − h (one vote removed)."""
        x1, x2 = cells.bounds.T
        lattice, vote = self.lattice, self.lattice.vote

        def law(x: IntArray) -> FloatArray:
            return np.stack([lattice.log_up(x), lattice.log_down(x)])

        lead = np.stack([x2 * lattice.step, np.full(len(x2), math.inf)])
        return self._two(law(x2), law(x2 - vote), law(x1), law(x1 - vote), lead)

    def _two(
        self, p_low: FloatArray, q_low: FloatArray, p_high: FloatArray, q_high: FloatArray, lead: FloatArray
    ) -> Enclosure:
        corner, other = np.exp(q_low), np.exp(q_high)
        low, high = self._ratio(p_low, q_low, -1), self._ratio(p_high, q_high, 1)
        return Enclosure(
            base_low=np.stack([other[0], corner[1]]),
            base_high=np.stack([corner[0], other[1]]),
            base_corner=corner,
            ell_low=low,
            ell_high=high,
            corners=np.stack([[corner, low], [other, high]]),
            curvature=np.full((2, 2, corner.shape[1]), np.inf),
            first_high=np.exp(p_low[0]),
            lead_high=lead,
        )

    def _ratio(self, log_p: FloatArray, log_q: FloatArray, side: int) -> FloatArray:
        """log P/Q, enclosed outwards (``side`` −1 below, +1 above) where both have underflowed."""
        with np.errstate(invalid="ignore"):
            ell = log_p - log_q
        cap = self.ratio_cap
        ell[0] = np.clip(np.nan_to_num(ell[0], nan=cap if side > 0 else 0.0, posinf=math.inf), 0.0, cap)
        ell[1] = np.clip(np.nan_to_num(ell[1], nan=-cap if side < 0 else 0.0, neginf=-math.inf), -cap, 0.0)
        return ell

    def _log_rest(self, x: IntArray, y: IntArray) -> FloatArray:
        far_x, far_y = x <= FAR_BELOW // 2, y <= FAR_BELOW // 2
        down = self.lattice.log_down
        return np.where(far_x, 0.0, down(np.where(far_x, 0, x))) + np.where(far_y, 0.0, down(np.where(far_y, 0, y)))

    def moments(
        self, cells: Enclosure, cell: IntArray, alpha: FloatArray, log_tilt: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """An attained value and an upper bound of the moment minus 1, for pairs (cell, order)."""
        outcomes = cells.base_low.shape[0]
        low, high = cells.base_low[:, cell], cells.base_high[:, cell]
        ell_low, ell_high = cells.ell_low[:, cell], cells.ell_high[:, cell]
        with np.errstate(over="ignore", invalid="ignore"):
            at_low, at_high = self.psi.value(ell_low, alpha), self.psi.value(ell_high, alpha)
            attained = self._moment(cells, 0, cell, alpha)
            # ℓ is non-negative for a and non-positive for b: one corner each; only "rest" needs both.
            worst = [at_high[0], at_low[1], *(np.maximum(at_low[i], at_high[i]) for i in range(2, outcomes))]
            terms = [np.where(high[i] > 0, high[i] * worst[i], 0.0) for i in range(outcomes)]
            terms[0] = np.fmin(terms[0], self.psi.unbounded(alpha, cells.first_high[cell], high[0], log_tilt))
            bound = sum(terms[1:], start=terms[0])
            # Since Σ Q = 1, subtracting a constant μ from every ψ and adding it back is free.
            for constant in worst:
                total = constant.copy()
                for i, value in enumerate(worst):
                    gap = value - constant
                    total += np.where(gap > 0, high[i], low[i]) * gap
                bound = np.fmin(bound, total)
            smooth = np.isfinite(cells.curvature[0, 0, cell])
            bound[smooth] = np.fmin(bound[smooth], self._interpolated(cells, cell[smooth], alpha[smooth]))
        # What could not be computed is unbounded, never ignored.
        attained = np.where(np.isnan(attained), 0.0, attained)
        return attained, np.where(np.isnan(bound), np.inf, np.maximum(bound, attained))

    def _moment(self, cells: Enclosure, corner: int, cell: IntArray, alpha: FloatArray) -> FloatArray:
        """The moment minus 1 at one corner."""
        base, ell = cells.corners[corner, 0][:, cell], cells.corners[corner, 1][:, cell]
        return np.asarray(np.sum(np.where(base > 0, base * self.psi.value(ell, alpha), 0.0), axis=0))

    def _interpolated(self, cells: Enclosure, cell: IntArray, alpha: FloatArray) -> FloatArray:
        """Largest corner plus what joint convexity leaves for the curvature of the probabilities."""
        moments = [self._moment(cells, corner, cell, alpha) for corner in range(len(cells.corners))]
        worst: FloatArray = np.max(moments, axis=0)
        for i in range(cells.base_low.shape[0]):
            slopes, offsets = [], []
            for ell in (cells.ell_low[i, cell], cells.ell_high[i, cell]):
                slope = self.psi.slope(ell, alpha)
                slopes.append(np.abs(slope))
                offsets.append(np.abs(self.psi.value(ell, alpha) - np.expm1(ell) * slope))
            worst += (
                np.maximum(*slopes) * cells.curvature[0, i, cell] + np.maximum(*offsets) * cells.curvature[1, i, cell]
            )
        return worst


@dataclass(frozen=True)
class Region:
    """Cells to search, how to enclose them, and what to add for the rest of the plane that they stand for."""

    cells: Cells
    enclose: Callable[[Cells], Enclosure]
    log_factor: FloatArray
    """Per order: log of what multiplies the moment."""
    extra: FloatArray
    """Per order: what is added to the moment."""


def supremum(
    problem: SearchProblem,
    regions: list[Region],
    orders: FloatArray,
    caps: FloatArray,
    log_tilt: Callable[[FloatArray, FloatArray], FloatArray],
    tolerance: FloatArray,
) -> FloatArray:
    """Upper bounds, per order, on the log-moment log E over all regions, at most ``tolerance`` above the supremum.

    ``caps``: log-moments known to bound it anyway; an order is left at its cap when the search cannot beat it.
    """
    best = np.zeros(len(orders))
    leftover = np.zeros(len(orders))
    work = [(region, region.cells, np.ones((len(region.cells.bounds), len(orders)), dtype=bool)) for region in regions]
    goal = (1.0 + tolerance) * (1.0 - _ROUNDING)
    search_pass = 0
    while work:
        following = []
        search_pass, done = search_pass + 1, 0
        total = sum(int(np.count_nonzero(alive)) for _, _, alive in work)
        for region, cells, alive in work:
            alive &= best * goal < caps
            used = alive.any(axis=1)
            cells, alive = Cells(cells.bounds[used]), alive[used]
            if not len(cells.bounds):
                continue
            enclosure = region.enclose(cells)
            pair_cell, pair_order = np.nonzero(alive)
            upper = np.empty(len(pair_cell))
            for start in range(0, len(pair_cell), _PAIRS_AT_ONCE):
                report_step(SearchStep(problem.subject, search_pass, done + start, total))
                part = slice(start, start + _PAIRS_AT_ONCE)
                cell, order = pair_cell[part], pair_order[part]
                alpha = orders[order]
                tilt = log_tilt(enclosure.lead_high[:, cell], alpha)
                attained, bound = problem.moments(enclosure, cell, alpha, tilt)
                np.maximum.at(best, order, np.log1p(attained))
                with np.errstate(over="ignore", invalid="ignore"):
                    upper[part] = np.log1p(
                        bound * np.exp(region.log_factor[order])
                        + np.expm1(region.log_factor[order])
                        + region.extra[order]
                    )
            done += len(pair_cell)
            open_pairs = upper > (best * goal)[pair_order]
            alive = np.zeros_like(alive)
            alive[pair_cell[open_pairs], pair_order[open_pairs]] = True
            children, parents, stuck = cells.split(problem.lattice.discrete)
            bounds = np.zeros(alive.shape)
            bounds[pair_cell, pair_order] = upper
            leftover = np.maximum(leftover, np.where(alive & stuck[:, None], bounds, 0.0).max(axis=0, initial=0.0))
            following.append((region, children, alive[parents]))
        work = following
    return np.minimum(caps, np.maximum(best * (1.0 + tolerance), leftover))
