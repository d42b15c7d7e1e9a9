"""The cells of positions that bound one round of the game, split where the bound would be loose.

Any set of cells that covers all positions gives an upper bound; smaller cells give a closer one. The front starts
from a family's few root cells and splits those that matter for the value function of the round at hand.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from collegium.privacy.accounting.game.cells import Cells, Enclosure
from collegium.privacy.accounting.game.curves import Sampling, cell_curves
from collegium.privacy.renyi import FloatArray
from collegium.privacy.units import IntArray

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
        most = np.empty(len(windows))
        best = np.zeros(len(windows), dtype=np.intp)
        while True:
            looseness = np.zeros(self.size)
            for start in range(0, len(windows), _ROWS_AT_ONCE):
                rows = slice(start, start + _ROWS_AT_ONCE)
                corner, bound = self._values(inner[:, rows])
                most[rows] = bound.max(axis=0)
                if split:
                    best[rows] = np.argmax(corner, axis=0)
                    attained = corner.max(axis=0)
                    spare = np.maximum(tolerance * attained, allowance[rows])
                    looseness = np.maximum(looseness, ((bound - attained) / spare).max(axis=1))
            if not (split and self._split(self._chosen(looseness))):
                choice = Choice(self._upper[best], self._lower[best]) if split else None
                return most * (1.0 + _SINGLE) + outside, choice

    def _chosen(self, looseness: FloatArray) -> NDArray[np.bool_]:
        """Cells whose bound is looser than allowed; the loosest of them where all would be too many."""
        final = np.concatenate([batch.final for batch in self._batches])
        loose = (looseness > 1.0) & ~final
        room = (_MOST_CELLS - self.size) // 3
        if int(loose.sum()) > room:
            loose &= looseness >= np.sort(looseness[loose])[-room] if room > 0 else False
        return np.asarray(loose)

    def _values(self, inner: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """What each corner gains and each cell's bound, ``[corners, rows]`` and ``[cells, rows]``."""
        values = self._columns @ inner
        corner, bound = values[: self._corner_count], values[self._corner_count :]
        largest = corner[self._corner_of[0]]
        for column in self._corner_of[1:]:
            np.maximum(largest, corner[column], out=largest)
        bound[self._by_corners] += largest
        return corner, bound

    def _split(self, loose: NDArray[np.bool_]) -> bool:
        """Replace loose cells by their halves; False where there is none."""
        if not loose.any():
            return False
        batches, start = [], 0
        for batch in self._batches:
            count = len(batch.cells.bounds)
            mine = loose[start : start + count]
            start += count
            if mine.any():
                children, _, _ = Cells(batch.cells.bounds[mine]).split(self._families[batch.family].discrete)
                batches.append(self._batch(batch.family, children))
            batches.append(batch.kept(~mine))
        self._batches = batches
        self._compile()
        return True

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
        self._corner_of = list(inverse.reshape(-1, 4)[self._by_corners].T)
        self._upper = np.concatenate([batch.upper.reshape(-1, 3) for batch in self._batches])[first]
        self._lower = np.concatenate([batch.lower.reshape(-1, 3) for batch in self._batches])[first]


_ARRAYS = ("keys", "gain", "upper", "lower", "curve", "final", "by_corners")
