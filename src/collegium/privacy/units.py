"""Privacy units: what a neighbouring data set may change, counted in votes."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


class Adjacency(StrEnum):
    """Which histograms are neighbours."""

    REPLACE = "replace"
    """One vote moves from one class to another: L1 2, L2 √2."""

    ADD_REMOVE = "add-remove"
    """One vote appears or disappears: L1 1, L2 1."""


@dataclass(frozen=True)
class Unit:
    """What one neighbour may change: ``votes`` votes under ``adjacency``.

    Record level: one vote. Party level with k teachers: k votes.
    """

    votes: int = 1
    adjacency: Adjacency = Adjacency.REPLACE
