"""Cells of positions, and what is known of the outcomes' probabilities at every position in a cell.

With P the law of a round's outcomes under the one data set and Q under the other, every log-ratio ℓᵢ = log Pᵢ/Qᵢ is
monotone in each coordinate of a position, and so are the Qᵢ: the corners of a cell enclose them (Lemmas 1 and 2 of
docs/research/exact-accountant.md).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collegium_accounting.elementary import FloatArray
from collegium_accounting.game.lattice import FAR_BELOW
from collegium_accounting.units import IntArray


@dataclass(frozen=True)
class Cells:
    """Rectangles of positions, shape ``[cells, 4]`` as x₁, x₂, y₁, y₂; or intervals ``[cells, 2]`` of d = x − y."""

    bounds: IntArray

    def split(self, discrete: bool) -> tuple["Cells", IntArray, NDArray[np.bool_]]:
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

    ``base_high`` bounds Q, ``ell_low`` and ``ell_high`` bound ℓ, and ``first_high`` bounds Pr_P[first outcome], whose
    ratio may be unbounded. ``corners`` holds the (Q, ℓ) of all corners, shape ``[corners, 2, outcomes, cells]``.
    ``curvature`` encloses the second derivatives of P − Q and of Q along each axis, times the squared width over 8, by
    which bilinear interpolation misses them; shape ``[2 (least, most), axes, 2 (P − Q, Q), outcomes, cells]``.
    """

    base_high: FloatArray
    ell_low: FloatArray
    ell_high: FloatArray
    first_high: FloatArray
    corners: FloatArray
    curvature: FloatArray
