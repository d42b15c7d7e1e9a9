"""Whose data are protected (votes, and how they may differ between neighbours), and the vote histograms themselves."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collegium_accounting.errors import DataError

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

    Examples
    --------
    >>> Unit(votes=10).adjacency  # ten votes that move
    <Adjacency.REPLACE: 'replace'>
    """

    votes: int = 1
    adjacency: Adjacency = Adjacency.REPLACE


def checked_counts(counts: ArrayLike) -> IntArray:
    """``counts`` as integers of shape ``[queries, classes]``; raises DataError unless they are vote counts."""
    array = np.asarray(counts)
    if array.ndim != 2 or array.shape[1] < 1:
        raise DataError(f"vote counts must have the shape [queries, classes]; got {list(array.shape)}")
    if array.dtype.kind == "f" and np.isfinite(array).all() and (array == np.floor(array)).all():
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise DataError(f"vote counts must be whole numbers; got values of type {array.dtype}")
    array = array.astype(np.int64)
    if (array < 0).any():
        raise DataError(f"vote counts cannot be negative; the smallest is {array.min()}")
    return array


def winners(noisy: NDArray[np.float64] | IntArray) -> IntArray:
    """Index of the largest entry per row; among equal ones the lowest index wins.

    The rule is fixed and public, and the analysis of the discrete mechanisms covers it: class i wins
    when it is above every earlier class and at least level with every later one.
    """
    return np.asarray(noisy.argmax(axis=1), dtype=np.int64)
