"""The cells that a record adds to where a classifier is measured on private records; see `mechanisms.record_counts`.

Every record adds to `Layout.parts` cells, whatever the classifier is: somebody who chooses it to learn of a record
moves no more than these cells.

* Two classes: one cell, by the true class and the bin of the second class's probability. A bin ends at 1/2, so the
  cells say how often each class is predicted.
* More classes: one cell by true and predicted class, one by the true class and the bin of its probability, and one by
  another class and the bin of its probability. That other class is drawn by a hash of the record alone.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigurationError
from collegium.limits import MAX_CLASSES
from collegium_accounting.renyi import FloatArray
from collegium_accounting.units import IntArray

EDGES = (0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99)
"""Where a bin of a probability ends; the end belongs to it."""
BINS = len(EDGES) + 1
MIDDLES = (np.array([0.0, *EDGES]) + np.array([*EDGES, 1.0])) / 2.0


@dataclass(frozen=True)
class Layout:
    """The cells of a classifier: which a record adds to, and what each counts."""

    classes: int

    def __post_init__(self) -> None:
        if not 2 <= self.classes <= MAX_CLASSES:
            raise ConfigurationError(f"an evaluation needs 2 to {MAX_CLASSES} classes; got {self.classes}")

    @property
    def parts(self) -> int:
        """The cells that one record adds to."""
        return 1 if self.classes == 2 else 3

    @property
    def length(self) -> int:
        """The number of cells."""
        return 2 * BINS if self.classes == 2 else self.classes * (self.classes + 2 * BINS)

    @property
    def rest(self) -> int:
        """How many records of other classes a counted one stands for where one class is set against the rest."""
        return self.classes - 1

    def cells(self, labels: IntArray, probabilities: FloatArray, others: IntArray) -> IntArray:
        """The cells that each record adds to, shape ``[n, parts]``.

        Parameters
        ----------
        labels : true classes, shape ``[n]``.
        probabilities : of the classifier, shape ``[n, classes]``.
        others : another class than the true one for each record, shape ``[n]``; see `other_classes`.
        """
        bins = np.searchsorted(EDGES, probabilities, side="left")
        rows = np.arange(len(labels))
        if self.classes == 2:
            return (labels * BINS + bins[:, 1])[:, None]
        squares = self.classes**2
        return np.stack(
            [
                labels * self.classes + probabilities.argmax(axis=1),
                squares + labels * BINS + bins[rows, labels],
                squares + self.classes * BINS + others * BINS + bins[rows, others],
            ],
            axis=1,
        )

    def views(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """What each cell counts, and the cells that count scores.

        Returns
        -------
        The true and the predicted class of each cell, ``[length]`` each, −1 where it does not say them; and the cells
        that count records of a class, and of others, by the bin of that class's probability, ``[questions, bins]``
        each: one question with two classes, else one for each class.
        """
        cells = np.arange(self.length)
        if self.classes == 2:
            true, bins = np.divmod(cells, BINS)
            return true, (bins >= BINS // 2).astype(np.int64), cells[None, BINS:], cells[None, :BINS]
        squares = self.classes**2
        says = cells < squares
        positives, negatives = cells[squares:].reshape(2, self.classes, BINS)
        return np.where(says, cells // self.classes, -1), np.where(says, cells % self.classes, -1), positives, negatives


def other_classes(x: NDArray[np.generic], labels: IntArray, classes: int) -> IntArray:
    """For each record another class than its own, drawn by a hash of its encoded inputs ``[n, …]``; shape ``[n]``."""
    rows = np.ascontiguousarray(x)
    drawn = [int.from_bytes(hashlib.sha256(row.tobytes()).digest()[:8], "big") % (classes - 1) for row in rows]
    return np.asarray((labels + 1 + np.array(drawn, dtype=np.int64)) % classes)
