"""The cells of positions that bound one round of the game, split where the bound would be loose.

Any set of cells that covers all positions gives an upper bound; smaller cells give a closer one. The front starts
from a family's few root cells and splits those that matter for the value function of the round at hand.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from collegium_accounting.game.cells import Cells, Enclosure
from collegium_accounting.game.curves import Sampling, cell_curves
from collegium_accounting.renyi import FloatArray
from collegium_accounting.units import IntArray

_CORNERS = {2: ((1,), (0,)), 4: ((1, 2), (0, 3), (0, 2), (1, 3))}
"""Which bounds of a cell make its corners, in the order of ``Enclosure.corners``."""

_CELLS_AT_ONCE = 512

_MOST_CELLS = 20_000
"""Cells are split no further when there are so many; the bound is then less close, and the gap says how much."""

_ROWS_AT_ONCE = 256
"""So that the values of all cells stay in the processor's cache."""

_SINGLE = 5e-5
"""Relative reserve for single precision: sums of at most 600 positive terms."""


class Positions(Protocol):
    """A family of positions that can be enclosed cell by cell: a ``Line`` or a ``Plane``."""

    @property
    def discrete(self) -> bool:
        """Whether cells can be divided down to single positions."""
        ...

    def roots(self) -> Cells:
        """Cells that cover every position that is searched."""
        ...

    def enclose(self, cells: Cells) -> Enclosure:
        """Bounds on the laws at every position in each cell."""
        ...

    @property
    def spare(self) -> tuple[float, float]:
        """By how much, in P − Q and in Q, the laws may differ from the enclosed ones in any cell."""
        ...


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
        return _Batch(
            self.family,
            Cells(self.cells.bounds[keep]),
            self.keys[keep],
            self.gain[keep],
            self.upper[keep],
            self.lower[keep],
            self.curve[keep],
            self.final[keep],
            self.by_corners[keep],
        )


@dataclass(frozen=True)
class Choice:
    """The best corner for each row of the value function: its laws under both data sets, ``[rows, outcomes]``."""

    upper: FloatArray
    lower: FloatArray


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
        gain = np.concatenate([batch.gain.reshape(-1, len(self._grid)) for batch in self._batches])
        area = share * float(gain.sum(axis=1).max())
        middle = len(self._grid) // 2
        by_reach = highest[middle:] + highest[middle::-1]
        beyond = by_reach.sum() - np.cumsum(by_reach)
        reach = int(np.argmax(beyond <= area))
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
        self, windows: FloatArray, tolerance: float, allowance: FloatArray, split: bool
    ) -> tuple[FloatArray, Choice | None]:
        """A bound on the largest gain of one round, shape ``[rows]``, and, after splitting, the best corners.

        Parameters
        ----------
        windows : shape ``[rows, grid]``: the curvature of the value function around each row.
        tolerance : cells are split until the bound exceeds the attained gain by at most this fraction of it,
        allowance : or by at most this much, shape ``[rows]``.
        split : whether to look for cells to split; without it the bound holds as well.
        """
        outside = windows @ (self._outside + self._spare)
        inner = np.ascontiguousarray(windows[:, self._inner].T, dtype=np.float32)
        most, attained = np.empty(len(windows)), np.full(len(windows), -1.0)
        choice = Choice(np.zeros((len(windows), 3)), np.zeros((len(windows), 3))) if split else None
        new, searched = np.ones(self.size, dtype=bool), split
        while True:
            corners, corner_of = np.unique(self._corner_of[new], return_inverse=True)
            part = np.append(corners, self._corner_count + np.flatnonzero(new))
            columns = self._columns if new.all() else self._columns[part]
            by_corners, looseness = self._by_corners[new], np.zeros(self.size)
            corner_of = corner_of.reshape(-1, 4)[by_corners].T
            for start in range(0, len(windows), _ROWS_AT_ONCE):
                rows = slice(start, start + _ROWS_AT_ONCE)
                values = columns @ inner[:, rows]
                corner, bound = values[: len(corners)], values[len(corners) :]
                largest = corner[corner_of[0]]
                for column in corner_of[1:]:
                    np.maximum(largest, corner[column], out=largest)
                bound[by_corners] += largest
                most[rows] = bound.max(axis=0)
                if choice is not None and searched:
                    best, gained = corner.argmax(axis=0), corner.max(axis=0)
                    better = gained > attained[rows]
                    chosen = corners[best[better]]
                    choice.upper[rows][better], choice.lower[rows][better] = self._upper[chosen], self._lower[chosen]
                    attained[rows] = np.maximum(attained[rows], gained)
                    spare = np.maximum(tolerance * attained[rows], allowance[rows])
                    looseness[new] = np.maximum(looseness[new], ((bound - attained[rows]) / spare).max(axis=1))
            # After the first search only the halves of loose cells are searched, and all cells once more at the end.
            if searched and (halves := self._split(self._chosen(looseness))).any():
                new = halves
            elif new.all():
                return most * (1.0 + _SINGLE) + outside, choice
            else:
                new, searched = np.ones(self.size, dtype=bool), False

    def _chosen(self, looseness: FloatArray) -> NDArray[np.bool_]:
        """Cells whose bound is looser than allowed; the loosest of them where all would be too many."""
        final = np.concatenate([batch.final for batch in self._batches])
        loose = (looseness > 1.0) & ~final
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
        curves = cell_curves(positions.enclose(cells), self._sampling, self._grid, self._signed)
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
        total = curves.reserve.sum(axis=1) + gain.sum(axis=2).max(axis=1)
        by_corners = total < curves.envelope.sum(axis=1)
        curve = np.where(by_corners[:, None], curves.reserve, curves.envelope)
        final = cells.split(positions.discrete)[2]
        return _Batch(family, cells, keys, gain, laws[0], laws[1], curve, final, by_corners)

    def _compile(self) -> None:
        keys = np.concatenate([batch.keys for batch in self._batches]).reshape(-1, 3)
        _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        # Filled part by part: to join all corners first would take several times the memory of the result.
        inside = range(*self._inner.indices(len(self._grid)))
        self._columns = np.empty((len(first) + self.size, len(inside)), dtype=np.float32)
        corner, row = 0, len(first)
        for batch in self._batches:
            gain = batch.gain.reshape(-1, len(self._grid))[:, self._inner]
            mine = np.flatnonzero((first >= corner) & (first < corner + len(gain)))
            self._columns[mine] = gain[first[mine] - corner]
            self._columns[row : row + len(batch.curve)] = batch.curve[:, self._inner]
            corner, row = corner + len(gain), row + len(batch.curve)
        self._corner_count = len(first)
        self._by_corners = np.concatenate([batch.by_corners for batch in self._batches])
        self._corner_of = inverse.reshape(-1, 4)
        self._upper = np.concatenate([batch.upper.reshape(-1, 3) for batch in self._batches])[first]
        self._lower = np.concatenate([batch.lower.reshape(-1, 3) for batch in self._batches])[first]


_ARRAYS = ("keys", "gain", "upper", "lower", "curve", "final", "by_corners")
