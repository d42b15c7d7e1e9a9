"""The cells of positions that bound one round of the game, split where the bound would be loose.

Any set of cells that covers all positions gives an upper bound; smaller cells give a closer one. The front starts
from a family's few root cells and splits those that matter for the value function of the round at hand.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium_accounting.elementary import FloatArray, log, total
from collegium_accounting.game.cells import Cells
from collegium_accounting.game.curves import Positions, Sampling
from collegium_accounting.units import IntArray

_CORNERS = {2: ((1,), (0,)), 4: ((1, 2), (0, 3), (0, 2), (1, 3))}
"""Which bounds of a cell make its corners, in the order of ``Enclosure.corners``."""

_CELLS_AT_ONCE = 512

_MOST_CELLS = 20_000
"""Cells are split no further when there are so many; the bound is then less close, and the gap says how much."""

_VALUES_AT_ONCE, _FEWEST_ROWS, _FEWEST_UNSEARCHED = 2**18, 128, 512
"""Products are computed for so many rows at once that their values stay near the processor."""

_FEWEST_SKETCHED, _ROWS_APART = 512, 32
"""From so many rows on most cells are left out by a sketch; rows so far apart say which are likely to be large."""

_ROWS_TOGETHER, _FEW = 16, 0.06
"""The largest of so many neighbouring rows, entry by entry, stands for all where it leaves this share of cells."""

_SPACING = ((0.13, 0.01), (0.18, 0.02), (0.35, 0.04), (math.inf, 0.1))
"""Up to these shares of the largest |log k| curves, which bend near k = 1, are sketched at points so far apart."""

_EXACT = 52
"""Bits of whole numbers that double precision holds exactly, with one for a sum of two."""


@dataclass(frozen=True)
class _Batch:
    """Cells of one family with their curves; everything that one product with the value function needs."""

    family: int
    cells: Cells
    keys: IntArray
    gain: FloatArray
    upper: FloatArray
    lower: FloatArray
    curve: FloatArray
    final: NDArray[np.bool_]
    """Whether a cell cannot be divided further."""
    by_corners: NDArray[np.bool_]
    """Whether ``curve`` is added to the largest corner; else it bounds the cell on its own."""

    def kept(self, keep: NDArray[np.bool_]) -> "_Batch":
        held = (getattr(self, name)[keep] for name in _ARRAYS)
        return _Batch(self.family, Cells(self.cells.bounds[keep]), *held)


def in_single_precision(terms: int) -> float:
    """By what share a sum of so many products of positive numbers may be off, in whatever order it is computed.

    Each of ``terms`` products and sums is right to 2^−24 of itself (Higham 2002, section 3.1); eight times that is
    kept as a reserve, and ten terms for the operations that follow.
    """
    return (terms + 10) * 2.0**-21


@dataclass(frozen=True)
class _Part:
    """Some cells, with what their values are computed from: whole numbers, ``[corners + cells, inner]``."""

    cells: IntArray
    columns: NDArray[np.float32]
    corners: IntArray
    corner_of: IntArray
    by_corners: NDArray[np.bool_]

    def of(self, some: IntArray) -> "_Part":
        """Only these of its cells."""
        corner_of = self.corner_of[some]
        used = np.zeros(len(self.corners), dtype=bool)
        used[corner_of] = True
        corners = np.flatnonzero(used)
        columns = self.columns[np.append(corners, len(self.corners) + some)]
        corner_of = (np.cumsum(used) - 1)[corner_of]
        return _Part(self.cells[some], columns, self.corners[corners], corner_of, self.by_corners[some])

    def values(self, whole: FloatArray | NDArray[np.float32], exact: bool = True) -> tuple[FloatArray, FloatArray]:
        """Values of all corners, and bounds of all cells, per row of the whole numbers ``whole``."""
        used = np.flatnonzero(whole.any(axis=0))
        near = slice(used[0], used[-1] + 1) if len(used) else slice(0)
        kind: Any = np.float64 if exact else np.float32
        values: FloatArray = self.columns[:, near].astype(kind, copy=False) @ whole[:, near].astype(kind, copy=False).T
        corner, bound = values[: len(self.corners)], values[len(self.corners) :]
        corner_of = self.corner_of[self.by_corners].T
        largest = corner[corner_of[0]]
        for column in corner_of[1:]:
            np.maximum(largest, corner[column], out=largest)
        bound[self.by_corners] += largest
        return corner, bound

    def products(self, cells: IntArray, rows: NDArray[np.float32]) -> FloatArray:
        """Bounds of these of its cells in single precision, ``[cells, rows]``."""
        return self.of(cells).values(rows, exact=False)[1]

    def best(self, whole: FloatArray) -> IntArray:
        """About the cell of the largest bound for each row."""
        return np.asarray(self.values(whole, exact=False)[1].argmax(axis=0))

    def mattering(self, whole: FloatArray, slack: tuple[float, FloatArray, FloatArray] | None) -> NDArray[np.bool_]:
        """Cells that may have the largest bound of a row, or the best corner, or be loose: all others cannot.

        In single precision, whose error is known; nothing else follows from these values. ``slack`` is None where
        nothing is searched: else tolerance, allowance and what is attained already, in units of the values.
        """
        corner, bound = self.values(whole, exact=False)
        sure = 1.0 - in_single_precision(whole.shape[1])
        least, best = bound.max(axis=0) * sure, np.zeros(len(corner), dtype=bool)
        if slack is not None:
            tolerance, allowance, attained = slack
            highest = corner.max(axis=0) * sure
            reached = np.maximum(highest, attained)
            least = np.minimum(least, (reached + np.maximum(tolerance * reached, allowance)) * sure)
            best = np.any(corner >= np.where(highest > 0.0, highest, np.inf).astype(np.float32), axis=1)
        found = np.any(bound >= np.where(least > 0.0, least, np.inf).astype(np.float32), axis=1)
        found[:1] = True  # where nothing can be gained, all are the same
        return np.asarray(found | best[self.corner_of].any(axis=1))


@dataclass(frozen=True)
class _Sketch:
    """Fewer and shorter columns above those of a `_Part`: one per corner, which bounds all cells around it.

    A curve lies below the chords through some points of the grid that are raised until it does. So a sum over all
    points is at most one over these, with the weight of every other point shared between its two neighbours.
    """

    part: _Part
    shares: FloatArray
    columns: NDArray[np.float32]
    alone: IntArray
    """Cells whose curve bounds them on its own, with columns of their own after those of the corners."""

    @classmethod
    def of(cls, part: _Part, weights: FloatArray, points: IntArray) -> "_Sketch":
        """``weights`` are the units of ``part.columns``; ``points`` ascend from the first of the grid to the last."""
        hats = np.stack([np.interp(np.arange(len(weights)), points, one) for one in np.eye(len(points))], axis=1)
        units = ((hats > 0.0) * weights[:, None]).max(axis=0)
        shares = hats * units / np.where(weights > 0.0, weights, np.inf)[:, None]
        curves = part.columns * weights
        raised = curves[:, points]
        missed = np.maximum.reduceat(np.maximum(curves - raised @ hats.T, 0.0), points[:-1], axis=1)
        beside = np.pad(missed, ((0, 0), (1, 1)))
        raised += np.maximum(beside[:, :-1], beside[:, 1:])
        raised = np.divide(raised, units, out=np.zeros_like(raised), where=units > 0.0).astype(np.float32)
        corner, curve = raised[: len(part.corners)], raised[len(part.corners) :]
        order = np.argsort(part.corner_of, axis=None, kind="stable")
        starts = np.searchsorted(part.corner_of.ravel()[order], np.arange(len(corner)))
        reserve = np.maximum.reduceat((curve * part.by_corners[:, None])[order // 4], starts, axis=0)
        alone = np.flatnonzero(~part.by_corners)
        return cls(part, shares, np.concatenate([corner + reserve, curve[alone]]), alone)

    def mattering(self, whole: FloatArray, likely: IntArray, searched: bool) -> _Part:
        """The cells that may have the largest bound of a row: all others cannot.

        If ``searched``, also those whose bound, or a corner, may reach the best corner. ``likely`` are some cells of
        large bounds: the larger, the fewer are found.
        """
        sure = in_single_precision(whole.shape[1])
        corner, bound = self.part.of(np.unique(likely)).values(whole, exact=False)
        least = np.maximum((corner if searched else bound).max(axis=0) * (1.0 - sure), 0.5)  # values are whole numbers
        with np.errstate(over="ignore", invalid="ignore"):  # what passes single precision matters
            matters = _reaching(self._products, len(self.columns), (whole @ self.shares) / least[:, None], sure)
            found = matters[self.part.corner_of].any(axis=1) & (self.part.by_corners | searched)
            found[self.alone] |= matters[len(self.part.corners) :]
            found[:1] = True  # where nothing can be gained, all are the same
            some = self.part.of(np.flatnonzero(found))
            if searched:
                return some
            found = _reaching(some.products, len(some.cells), whole / least[:, None], sure)
            found[:1] = True
            return some.of(np.flatnonzero(found))

    def _products(self, columns: IntArray, rows: NDArray[np.float32]) -> FloatArray:
        return np.asarray(self.columns[columns] @ rows.T)


def _together(rows: FloatArray) -> NDArray[np.float32]:
    """The largest of neighbouring rows, entry by entry, stands for all of them."""
    return np.maximum.reduceat(rows, np.arange(0, len(rows), _ROWS_TOGETHER), axis=0).astype(np.float32)


def _reaching(
    products: Callable[[IntArray, NDArray[np.float32]], FloatArray], things: int, rows: FloatArray, sure: float
) -> NDArray[np.bool_]:
    """Which of the ``things`` may have a product of at least 1 with one of ``rows``: all others have none.

    ``products`` of some things with some rows, ``[things, rows]``, are right to the share ``sure``.
    """
    least, every = np.float32(1.0 - sure), np.arange(things)
    reached = ~(products(every, _together(rows)) < least)
    apart = reached.mean(axis=0) > _FEW  # rows that are too unlike each other to be taken together
    found = np.asarray(reached[:, ~apart].any(axis=1))
    if apart.any():
        left = every[reached[:, apart].any(axis=1) & ~found]
        alone = rows[np.repeat(apart, _ROWS_TOGETHER)[: len(rows)]].astype(np.float32)
        found[left[~(products(left, alone) < least).all(axis=1)]] = True
    return found


def _points(reach: int, middle: int) -> IntArray:
    """Where on 2·``middle`` + 1 points of the grid, of 2·``reach`` + 1 in all, curves are sketched."""
    found = [0]
    while found[-1] < middle:
        spacing = next(spacing for until, spacing in _SPACING if found[-1] < until * reach)
        found.append(min(middle, found[-1] + max(1, round(spacing * reach))))
    return np.array([middle - n for n in found[:0:-1]] + [middle + n for n in found])


@dataclass(frozen=True)
class BestCorner:
    """The best corner for each row of the value function: its laws under both data sets, ``[rows, outcomes]``."""

    upper: FloatArray
    lower: FloatArray

    @cached_property
    def loss(self) -> FloatArray:
        """The privacy loss of each outcome; NaN where it cannot happen."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return log(self.upper / self.lower)


class Front:
    """The current cover of all positions.

    Parameters
    ----------
    families : each covers some of the positions; together all but the far ones.
    sampling : the pair of laws that a position stands for.
    grid : log k, shape ``[grid]``, ascending.
    signed : whether the signs of second derivatives are used, which is closer.
    """

    def __init__(self, families: Sequence[Positions], sampling: Sampling, grid: FloatArray, signed: bool) -> None:
        self._families, self._sampling, self._grid, self._signed = tuple(families), sampling, grid, signed
        self._roots = [self._batch(k, family.roots()) for k, family in enumerate(self._families)]
        self._batches: list[_Batch] = []
        self._sketch: _Sketch | None = None
        self._won: IntArray = np.zeros(0, dtype=np.int64)  # a cell of a large bound for each row; none where not known
        of_difference, of_level = sampling.slopes(grid)
        spares = [np.abs(of_difference) * f.spare[0] + np.abs(of_level) * f.spare[1] for f in self._families]
        self._spare = np.max(spares, axis=0)
        self._inner, self._outside = slice(None), np.zeros(len(grid))
        self.restart()

    @property
    def size(self) -> int:
        """How many cells there are."""
        return sum(len(batch.cells.bounds) for batch in self._batches)

    def restart(self) -> None:
        """Go back to the root cells."""
        self._batches = list(self._roots)
        self._compile()

    def trim(self, share: float) -> None:
        """From now on follow single positions only where k is near 1, and one bound for all of them elsewhere.

        The part of the grid that is left out holds at most ``share`` of the largest curve's area.
        """
        highest = np.maximum.reduceat(self._curves(), [0], axis=0)[0]
        area = share * max(float(total(gain).max()) for batch in self._batches for gain in batch.gain.swapaxes(0, 1))
        middle = len(self._grid) // 2
        within = np.cumsum(highest[middle:] + highest[middle::-1])
        reach = int(np.argmax(within[-1] - within <= area))
        self._inner = slice(middle - reach, middle + reach + 1)
        self._outside = highest.copy()
        self._outside[self._inner] = 0.0
        self._compile()

    def _curves(self) -> FloatArray:
        """A bound on G in every cell, shape ``[cells, grid]``."""
        return np.concatenate(
            [batch.curve + batch.by_corners[:, None] * batch.gain.max(axis=1) for batch in self._batches]
        )

    def round(
        self, windows: FloatArray, slack: tuple[float, FloatArray] | None
    ) -> tuple[FloatArray, BestCorner | None]:
        """A bound on the largest gain of one round, shape ``[rows]``, and, after splitting, the best corners.

        Parameters
        ----------
        windows : shape ``[rows, grid]``: the curvature of the value function around each row.
        slack : cells are split until the bound exceeds the attained gain by at most this fraction of it, or by at
            most this much, shape ``[rows]``. None to split none; the bound holds as well.
        """
        most, attained, least = np.empty(len(windows)), *np.full((2, len(windows)), -1.0)
        choice = BestCorner(np.zeros((len(windows), 3)), np.zeros((len(windows), 3))) if slack else None
        new, searched, final = np.ones(self.size, dtype=bool), slack is not None, self._final()
        while True:
            every, looseness = bool(new.all()), np.zeros(self.size)
            part = self._all if every else self._all.of(np.flatnonzero(new))
            sketched = every and len(windows) > _FEWEST_SKETCHED
            every_row, won = np.arange(len(windows)), np.zeros(len(windows), dtype=np.int64)
            if sketched and not len(self._won):
                self._won = part.best(self._in_whole_numbers(windows[::_ROWS_APART])[0])[every_row // _ROWS_APART]
            likely = self._won[np.minimum(every_row, len(self._won) - 1)] if sketched else self._won
            many = max(_FEWEST_ROWS if searched else _FEWEST_UNSEARCHED, _VALUES_AT_ONCE // len(part.columns))
            for start in range(0, len(windows), many):
                rows = slice(start, start + many)
                whole, rest, unit = self._in_whole_numbers(windows[rows])
                spare = (slack[0], slack[1][rows] / unit, attained[rows] / unit) if slack and searched else None
                some = self._sketched().mattering(whole, likely[rows], searched) if sketched else part
                few = some.of(np.flatnonzero(some.mattering(whole, spare))) if searched or not sketched else some
                corner, bound = few.values(whole)
                largest = bound.argmax(axis=0)
                won[rows] = few.cells[largest]
                most[rows] = np.take_along_axis(bound, largest[None], axis=0)[0] * unit + rest
                if slack and choice and searched:
                    best, gained = corner.argmax(axis=0), corner.max(axis=0) * unit
                    better = gained > attained[rows]
                    chosen = few.corners[best[better]]
                    choice.upper[rows][better], choice.lower[rows][better] = self._upper[chosen], self._lower[chosen]
                    attained[rows] = np.maximum(attained[rows], gained)
                    # No division of others lowers the bound below that of a cell that cannot be divided.
                    least[rows] = np.maximum(least[rows], (bound[final[few.cells]] * unit).max(axis=0, initial=-1.0))
                    reached = np.maximum(attained[rows], least[rows])
                    allowed = np.maximum(slack[0] * reached, slack[1][rows])
                    loose = ((bound * unit - reached) / allowed).max(axis=1)
                    looseness[few.cells] = np.maximum(looseness[few.cells], loose)
            self._won = won if every else self._won[:0]
            # After the first search only the halves of loose cells are searched, and all cells once more at the end.
            if searched and (halves := self._split(self._chosen(looseness))).any():
                new, final = halves, self._final()
            elif new.all():
                return most + self._beyond(windows), choice
            else:
                new, searched = np.ones(self.size, dtype=bool), False

    def _in_whole_numbers(self, windows: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Windows in units of their own, rounded down, so that products with the columns are exact in any order.

        Returns them as whole numbers ``[rows, inner]``; what the rounding can cost any cell; and the unit of the
        product, a power of two. Both ``[rows]``.
        """
        weighted = windows[:, self._inner] * self._weights
        exponent = np.frexp(weighted.max(axis=1))[1] - self._bits
        for share in (-exponent // 2, -exponent - -exponent // 2):  # 2^−exponent may pass double precision
            weighted *= np.ldexp(1.0, share)[:, None]
        whole = np.floor(weighted)
        weighted -= whole
        weighted *= 2.0**self._bits
        left = np.ceil(weighted, out=weighted) @ self._highest
        return whole, np.ldexp(left, exponent - 2 * self._bits), np.ldexp(1.0, exponent - self._bits)

    def _sketched(self) -> _Sketch:
        if self._sketch is None:
            points = _points(len(self._grid) // 2, len(self._weights) // 2)
            self._sketch = _Sketch.of(self._all, self._weights, points)
        return self._sketch

    def _beyond(self, windows: FloatArray) -> FloatArray:
        """What the part of the grid that is left out adds, and what the laws may differ, at most; ``[rows]``."""
        added, height = np.zeros(len(windows)), self._outside + self._spare
        for k in np.flatnonzero(height).tolist():
            added += windows[:, k] * height[k]
        return added

    def _final(self) -> NDArray[np.bool_]:
        return np.concatenate([batch.final for batch in self._batches])

    def _chosen(self, looseness: FloatArray) -> NDArray[np.bool_]:
        """Cells whose bound is looser than allowed; the loosest of them where all would be too many."""
        loose = (looseness > 1.0) & ~self._final()
        room = (_MOST_CELLS - self.size) // 3
        if int(loose.sum()) > room:
            loose &= looseness >= np.sort(looseness[loose])[-room] if room > 0 else False
        return np.asarray(loose)

    def _split(self, loose: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Replace loose cells by their halves; which of the cells that there are then are new."""
        if not loose.any():
            return loose
        batches, new, start = [], [], 0
        for batch in self._batches:
            count = len(batch.cells.bounds)
            mine = loose[start : start + count]
            start += count
            if mine.any():
                children, _, _ = Cells(batch.cells.bounds[mine]).split(self._families[batch.family].discrete)
                batches.append(self._batch(batch.family, children))
                new.append(np.ones(len(children.bounds), dtype=bool))
            batches.append(batch.kept(~mine))
            new.append(np.zeros(count - int(mine.sum()), dtype=bool))
        self._batches = batches
        self._compile()
        return np.concatenate(new)

    def _batch(self, family: int, cells: Cells) -> _Batch:
        parts = [
            self._part(family, Cells(cells.bounds[start : start + _CELLS_AT_ONCE]))
            for start in range(0, len(cells.bounds), _CELLS_AT_ONCE)
        ]
        joined = [np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS]
        return _Batch(family, cells, *joined)

    def _part(self, family: int, cells: Cells) -> _Batch:
        positions = self._families[family]
        curves = positions.curves(cells, self._sampling, self._grid, self._signed)
        corners = _CORNERS[cells.bounds.shape[1]]
        keys = np.zeros((len(cells.bounds), 4, 3), dtype=np.int64)
        keys[:, :, 0] = family
        four = [k % len(corners) for k in range(4)]
        for k, corner in enumerate(four):
            for axis, column in enumerate(corners[corner]):
                keys[:, k, 1 + axis] = cells.bounds[:, column]
        laws = np.zeros((2, len(cells.bounds), 4, 3))
        outcomes = curves.corner_upper.shape[1]
        laws[0, :, :, :outcomes] = curves.corner_upper[four].transpose(2, 0, 1)
        laws[1, :, :, :outcomes] = curves.corner_lower[four].transpose(2, 0, 1)
        gain = curves.corner_gain[four].transpose(1, 0, 2)
        by_corners = total(curves.reserve) + total(gain).max(axis=1) < total(curves.envelope)
        curve = np.where(by_corners[:, None], curves.reserve, curves.envelope)
        final = cells.split(positions.discrete)[2]
        return _Batch(family, cells, keys, gain, laws[0], laws[1], curve, final, by_corners)

    def _compile(self) -> None:
        keys = np.concatenate([batch.keys for batch in self._batches]).reshape(-1, 3)
        _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        inside = range(*self._inner.indices(len(self._grid)))
        gains = [batch.gain.reshape(-1, len(self._grid))[:, self._inner] for batch in self._batches]
        curves = [batch.curve[:, self._inner] for batch in self._batches]
        highest = np.max([part.max(axis=0) for part in (*gains, *curves) if len(part)], axis=0)
        exponent = np.frexp(highest)[1]
        self._bits = (_EXACT - len(inside).bit_length()) // 2
        self._weights = np.where(highest > 0.0, np.ldexp(1.0, exponent), 0.0)
        scale = np.ldexp(1.0, self._bits - exponent)
        # Filled part by part: to join all corners first would take several times the memory of the result.
        columns = np.empty((len(first) + self.size, len(inside)), dtype=np.float32)
        corner, row = 0, len(first)
        for gain, curve in zip(gains, curves, strict=True):
            mine = np.flatnonzero((first >= corner) & (first < corner + len(gain)))
            columns[mine] = np.ceil(gain[first[mine] - corner] * scale)
            columns[row : row + len(curve)] = np.ceil(curve * scale)
            corner, row = corner + len(gain), row + len(curve)
        self._highest = columns.max(axis=0).astype(np.float64)
        by_corners = np.concatenate([batch.by_corners for batch in self._batches])
        self._all = _Part(np.arange(self.size), columns, np.arange(len(first)), inverse.reshape(-1, 4), by_corners)
        self._sketch, self._won = None, np.zeros(0, dtype=np.int64)
        self._upper = np.concatenate([batch.upper.reshape(-1, 3) for batch in self._batches])[first]
        self._lower = np.concatenate([batch.lower.reshape(-1, 3) for batch in self._batches])[first]


_ARRAYS = ("keys", "gain", "upper", "lower", "curve", "final", "by_corners")
