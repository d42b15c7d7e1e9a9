"""What one round at a position, or anywhere in a cell of positions, can gain: hockey-stick curves on a grid.

For laws P and Q of a round's outcome, H(k) = Σ (Pᵢ − k·Qᵢ)₊ is the hockey-stick divergence, and
G(k) = H(k) − (1 − k)₊ what the round adds to saying nothing. On the grid k = e^{jΔ} these numbers are all that the
recursion needs of a position.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from collegium.privacy.accounting.game.cells import Enclosure
from collegium.privacy.renyi import FloatArray


class Direction(StrEnum):
    """Which of two data sets, in which a Poisson-sampled record is absent or present, stands above."""

    PLAIN = "plain"
    """P against Q, nobody is sampled; both directions are covered by exchanging outcomes."""

    PRESENT = "present"
    """(1 − s)·Q + s·P against Q."""

    ABSENT = "absent"
    """Q against (1 − s)·Q + s·P."""


@dataclass(frozen=True)
class Sampling:
    """The pair of laws that a position stands for, when a record takes part with probability ``rate``.

    Both laws are Q times a function of the log-ratio ℓ = log P/Q: the upper one Q·a(ℓ), the lower one Q·b(ℓ).
    """

    direction: Direction = Direction.PLAIN
    rate: float = 1.0

    def upper(self, ell: FloatArray) -> FloatArray:
        """a(ℓ) − 1."""
        if self.direction is Direction.ABSENT:
            return np.zeros_like(ell)
        return np.asarray(self.rate * np.expm1(ell))

    def lower(self, ell: FloatArray) -> FloatArray:
        """b(ℓ) − 1."""
        if self.direction is not Direction.ABSENT:
            return np.zeros_like(ell)
        return np.asarray(self.rate * np.expm1(ell))

    def excess(self, ell: FloatArray, grid: FloatArray) -> FloatArray:
        """a(ℓ) − k·b(ℓ) for k = e^{grid}, without cancellation; shape of ``ell`` with the grid's axis appended."""
        above, below = self.upper(ell)[..., None], self.lower(ell)[..., None]
        with np.errstate(invalid="ignore"):
            return np.asarray(above - below - (1.0 + below) * np.expm1(grid))

    def slopes(self, grid: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The two factors c, per k, in (a − k·b)·Q = c₁·(P − Q) + c₂·Q."""
        rate = -self.rate * np.exp(grid) if self.direction is Direction.ABSENT else np.full_like(grid, self.rate)
        return rate, -np.expm1(grid)


@dataclass(frozen=True)
class CellCurves:
    """Curves of a batch of cells.

    Attributes
    ----------
    corner_gain : G at each corner, shape ``[corners, cells, grid]``.
    corner_upper, corner_lower : the two laws at each corner, shape ``[corners, outcomes, cells]``.
    reserve : a bound on what G of any position in the cell exceeds a mixture of its corners', ``[cells, grid]``.
    envelope : a bound on G of any position in the cell, ``[cells, grid]``.
    """

    corner_gain: FloatArray
    corner_upper: FloatArray
    corner_lower: FloatArray
    reserve: FloatArray
    envelope: FloatArray


def cell_curves(enclosure: Enclosure, sampling: Sampling, grid: FloatArray, signed: bool) -> CellCurves:
    """Curves on k = e^{grid} of every enclosed cell; docs/privacy.md, "The exact accountant", Lemmas 5 and 6."""
    q, ell = enclosure.corners[:, 0], enclosure.corners[:, 1]
    ell = np.where(q > 0.0, ell, 0.0)
    gain = _gain(q, sampling.excess(ell, grid), grid)
    ends = np.stack([sampling.excess(e, grid) for e in (enclosure.ell_low, enclosure.ell_high)])
    # Only an unbounded b makes a − k·b undefined there, and it is −∞.
    ends = np.where(np.isnan(ends), -np.inf, ends)
    return CellCurves(
        gain,
        q * (1.0 + sampling.upper(ell)),
        q * (1.0 + sampling.lower(ell)),
        _reserve(enclosure, ends, sampling, grid, signed),
        _envelope(enclosure, ends, sampling, grid),
    )


def _gain(q: FloatArray, excess: FloatArray, grid: FloatArray) -> FloatArray:
    """Σ Q·(a − k·b)₊ for k ≥ 1, Σ Q·(k·b − a)₊ for k < 1: the same G, and every term is positive."""
    signed = np.where(grid >= 0.0, excess, -excess)
    return np.asarray((q[..., None] * np.maximum(signed, 0.0)).sum(axis=-3))


def _reserve(enclosure: Enclosure, ends: FloatArray, sampling: Sampling, grid: FloatArray, signed: bool) -> FloatArray:
    """Only outcomes that can be positive (or only those that can be negative) contribute an error of interpolation."""
    curvature = enclosure.curvature
    if not signed:
        curvature = np.stack([-(size := np.abs(curvature).max(axis=0)), size])

    def missed(sign: float) -> FloatArray:
        """By how much sign·(a − k·b)·Q may exceed its interpolation: it bends down by no more than this."""
        both = zip(sampling.slopes(grid), curvature.transpose(2, 0, 1, 3, 4)[..., None], strict=True)
        with np.errstate(invalid="ignore"):
            down = [np.where(slope == 0.0, 0.0, -sign * slope * bends).max(axis=0) for slope, bends in both]
        return np.asarray(np.maximum(down[0] + down[1], 0.0).sum(axis=0))

    positive, negative = (ends > 0.0).any(axis=0), (ends < 0.0).any(axis=0)
    of_positive, of_negative = (
        np.where(some, missed(sign), 0.0).sum(axis=0) for some, sign in ((positive, 1.0), (negative, -1.0))
    )
    return np.asarray(np.minimum(of_positive, of_negative))


def _envelope(enclosure: Enclosure, ends: FloatArray, sampling: Sampling, grid: FloatArray) -> FloatArray:
    """From the largest weight and the extreme ratios of every outcome."""
    weight = enclosure.base_high[..., None]
    with np.errstate(invalid="ignore", over="ignore"):
        positive = weight * np.maximum(ends.max(axis=0), 0.0)
        negative = weight * np.maximum(-ends.min(axis=0), 0.0)
    # Where a's ratio is unbounded: neither (P − kQ)₊ nor (kQ − P)₊ exceeds its first law.
    mixed = (1.0 - sampling.rate) * enclosure.base_high[0] + sampling.rate * enclosure.first_high
    absent = sampling.direction is Direction.ABSENT
    positive[0] = np.fmin(positive[0], (enclosure.base_high[0] if absent else mixed)[:, None])
    negative[0] = np.fmin(negative[0], (mixed if absent else enclosure.base_high[0])[:, None] * np.exp(grid))
    by_positive, by_negative = positive.sum(axis=0), negative.sum(axis=0)
    above = np.minimum(by_positive, by_negative - np.expm1(grid))
    under = np.minimum(by_negative, by_positive + np.expm1(grid))
    return np.asarray(np.maximum(np.where(grid >= 0.0, above, under), 0.0))
