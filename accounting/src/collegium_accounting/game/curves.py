"""What one round at a position, or anywhere in a cell of positions, can gain: hockey-stick curves on a grid.

For laws P and Q of a round's outcome, H(k) = Σ (Pᵢ − k·Qᵢ)₊ is the hockey-stick divergence, and
G(k) = H(k) − (1 − k)₊ what the round adds to saying nothing. On the grid k = e^{jΔ} these numbers are all that the
recursion needs of a position.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from collegium_accounting.elementary import FloatArray, exp, expm1, log1p
from collegium_accounting.game.cells import Cells, Enclosure

_UNKNOWN = 1e200
"""A second derivative of which nothing is known, for products that may be with 0."""


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
        return np.asarray(self.rate * expm1(ell))

    def lower(self, ell: FloatArray) -> FloatArray:
        """b(ℓ) − 1."""
        if self.direction is not Direction.ABSENT:
            return np.zeros_like(ell)
        return np.asarray(self.rate * expm1(ell))

    def excess(self, ell: FloatArray, grid: FloatArray) -> FloatArray:
        """a(ℓ) − k·b(ℓ) for k = e^{grid}, without cancellation; shape of ``ell`` with the grid's axis appended."""
        above, below = self.upper(ell)[..., None], self.lower(ell)[..., None]
        with np.errstate(invalid="ignore"):
            return np.asarray(above - below - (1.0 + below) * expm1(grid))

    def slopes(self, grid: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The two factors c, per k, in (a − k·b)·Q = c₁·(P − Q) + c₂·Q."""
        rate = -self.rate * exp(grid) if self.direction is Direction.ABSENT else np.full_like(grid, self.rate)
        return rate, -expm1(grid)

    def unsampled(self, grid: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(c, log κ) per k = e^{grid}: the sampled pair's G at k is c times that of P and Q at κ, and 0 where κ = 0."""
        with np.errstate(invalid="ignore", divide="ignore"):
            if self.direction is not Direction.ABSENT:
                found = log1p(expm1(grid) / self.rate) if self.rate < 1.0 else grid
                return np.full_like(grid, self.rate), np.where(np.isnan(found), -np.inf, found)
            share = self.rate * exp(grid)
            found = log1p(-expm1(grid) / share)
            return share, np.where(np.isnan(found), -np.inf, found)


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


class Positions(ABC):
    """A family of positions that can be bounded cell by cell: a ``Line``, a ``Plane`` or ``Rivals``."""

    @property
    def discrete(self) -> bool:
        """Whether cells can be divided down to single positions."""
        return True

    @property
    def spare(self) -> tuple[float, float]:
        """By how much, in P − Q and in Q, the laws may differ from the enclosed ones in any cell."""
        return 0.0, 0.0

    @abstractmethod
    def roots(self) -> Cells:
        """Cells that cover every position that is searched."""

    @abstractmethod
    def corners(self, cells: Cells) -> FloatArray:
        """(Q, ℓ) at some positions of each cell, shape ``[corners, 2, outcomes, cells]``."""

    @abstractmethod
    def curves(self, cells: Cells, sampling: Sampling, grid: FloatArray, signed: bool) -> CellCurves:
        """What any position of each cell gains, on k = e^{grid}; ``signed`` for closer bounds that take longer."""


class Enclosed(Positions):
    """A family of positions whose cells are bounded by what encloses their laws."""

    @abstractmethod
    def enclose(self, cells: Cells) -> Enclosure:
        """Bounds on the laws at every position in each cell."""

    def corners(self, cells: Cells) -> FloatArray:
        return self.enclose(cells).corners

    def curves(self, cells: Cells, sampling: Sampling, grid: FloatArray, signed: bool) -> CellCurves:
        return cell_curves(self.enclose(cells), sampling, grid, signed)


def cell_curves(enclosure: Enclosure, sampling: Sampling, grid: FloatArray, signed: bool) -> CellCurves:
    """Curves on k = e^{grid} of every enclosed cell; docs/research/exact-accountant.md, Lemmas 5 and 6."""
    # Only an unbounded b makes a − k·b undefined there, and it is −∞.
    ends = [sampling.excess(e, grid) for e in (enclosure.ell_low, enclosure.ell_high)]
    ends = [np.where(np.isnan(end), -np.inf, end) for end in ends]
    low, high = np.minimum(*ends), np.maximum(*ends)
    envelope = _envelope(enclosure, low, high, sampling, grid)
    reserve = _reserve(enclosure, low, high, sampling, grid, signed)
    return enveloped_curves(enclosure.corners, sampling, grid, envelope, reserve)


def enveloped_curves(
    corners: FloatArray, sampling: Sampling, grid: FloatArray, envelope: FloatArray, reserve: FloatArray | None = None
) -> CellCurves:
    """Curves of cells of which ``envelope`` bounds G, and mixtures of corners with a ``reserve``, if there is one.

    Corners are as in ``Enclosure``.
    """
    q, ell = corners[:, 0], np.where(corners[:, 0] > 0.0, corners[:, 1], 0.0)
    above, below = sampling.upper(ell), sampling.lower(ell)
    return CellCurves(
        _gain(q * (above - below), q * (1.0 + below), grid),
        q * (1.0 + above),
        q * (1.0 + below),
        np.full_like(envelope, np.inf) if reserve is None else reserve,
        envelope,
    )


def _gain(difference: FloatArray, lower: FloatArray, grid: FloatArray) -> FloatArray:
    """Σ Q·(a − k·b)₊ for k ≥ 1, Σ Q·(k·b − a)₊ for k < 1: the same G, and every term is positive.

    ``difference`` is Q·(a − b) and ``lower`` is Q·b.
    """
    lines = np.stack([np.where(grid >= 0.0, 1.0, -1.0), -np.abs(expm1(grid))])
    gain = np.zeros((difference.shape[0], difference.shape[2], len(grid)))
    for corner, total in enumerate(gain):
        for terms in zip(difference[corner], lower[corner], strict=True):
            total += np.maximum(_combined(terms, lines), 0.0)
    return gain


def _combined(factors: Iterable[FloatArray], lines: FloatArray) -> FloatArray:
    """Σ factorᵢ·lineᵢ, shape ``[cells, grid]``; added one by one, as the order of a matrix product is the library's."""
    (first, line), *others = zip(factors, lines, strict=True)
    total: FloatArray = np.multiply.outer(first, line)
    for factor, line in others:
        total += np.multiply.outer(factor, line)
    return total


def _reserve(
    enclosure: Enclosure, low: FloatArray, high: FloatArray, sampling: Sampling, grid: FloatArray, signed: bool
) -> FloatArray:
    """Only outcomes that can be positive (or only those that can be negative) contribute an error of interpolation."""
    least, most = np.clip(enclosure.curvature, -_UNKNOWN, _UNKNOWN)  # [axes, 2 (P − Q, Q), outcomes, cells]
    slopes = np.stack(sampling.slopes(grid))
    if not signed:
        size, slopes = np.maximum(-least, most).sum(axis=0), np.abs(slopes)
        errors = np.stack([_combined(sizes, slopes) for sizes in size.transpose(1, 0, 2)])
        return np.asarray(np.minimum(*((errors * some).sum(axis=0) for some in (high > 0.0, low < 0.0))))
    bends = np.concatenate([most, least], axis=1).transpose(0, 2, 1, 3)

    def missed(sign: float, some: NDArray[np.bool_]) -> FloatArray:
        """By how much sign·(a − k·b)·Q may exceed its interpolation: it bends down by no more than this."""
        down = np.concatenate([np.maximum(-sign * slopes, 0.0), np.minimum(-sign * slopes, 0.0)])
        total = np.zeros(some.shape[1:])
        for axis in bends:
            for outcome, counts in zip(axis, some, strict=True):
                total += np.maximum(_combined(outcome, down), 0.0) * counts
        return total

    return np.minimum(missed(1.0, high > 0.0), missed(-1.0, low < 0.0))


def _envelope(
    enclosure: Enclosure, low: FloatArray, high: FloatArray, sampling: Sampling, grid: FloatArray
) -> FloatArray:
    """From the largest weight and the extreme ratios of every outcome."""
    weight = enclosure.base_high[..., None]
    with np.errstate(invalid="ignore", over="ignore"):
        positive = weight * np.maximum(high, 0.0)
        negative = weight * np.maximum(-low, 0.0)
    # Where a's ratio is unbounded: neither (P − kQ)₊ nor (kQ − P)₊ exceeds its first law.
    mixed = (1.0 - sampling.rate) * enclosure.base_high[0] + sampling.rate * enclosure.first_high
    absent = sampling.direction is Direction.ABSENT
    positive[0] = np.fmin(positive[0], (enclosure.base_high[0] if absent else mixed)[:, None])
    negative[0] = np.fmin(negative[0], (mixed if absent else enclosure.base_high[0])[:, None] * exp(grid))
    by_positive, by_negative = positive.sum(axis=0), negative.sum(axis=0)
    above = np.minimum(by_positive, by_negative - expm1(grid))
    under = np.minimum(by_negative, by_positive + expm1(grid))
    return np.asarray(np.maximum(np.where(grid >= 0.0, above, under), 0.0))
