"""The queries so far and their labels: all that later choices and students may look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from collegium.privacy.mechanisms import IntArray

UNASKED = -2
"""In an array of labels: the query has neither a label nor an abstention."""


@dataclass(frozen=True, eq=False)
class LabelSet:
    """Queries in the order in which they were chosen.

    Parameters
    ----------
    indices : positions in the pool, ``[queries]``.
    labels : a class, ABSTAIN or UNASKED each, ``[queries]``.
    """

    indices: IntArray
    labels: IntArray

    @staticmethod
    def nothing() -> LabelSet:
        return LabelSet(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    @staticmethod
    def of(indices: IntArray, keys: list[str], held: Mapping[str, int]) -> LabelSet:
        """The queries at ``indices`` with the labels that a ledger has for their ``keys``.

        Parameters
        ----------
        held : the ledger's labels, by query key.
        """
        return LabelSet(indices, np.array([held.get(key, UNASKED) for key in keys], dtype=np.int64))

    @property
    def labelled(self) -> IntArray:
        """Positions of the queries that have a class."""
        return self.indices[self.labels >= 0]

    @property
    def classes(self) -> IntArray:
        """The classes of `labelled`."""
        return self.labels[self.labels >= 0]

    @property
    def teaches(self) -> bool:
        """Whether a student can learn from it: two classes or more."""
        return len(np.unique(self.classes)) >= 2

    def followed_by(self, later: LabelSet) -> LabelSet:
        """These queries, then those of ``later``."""
        return LabelSet(np.concatenate([self.indices, later.indices]), np.concatenate([self.labels, later.labels]))
