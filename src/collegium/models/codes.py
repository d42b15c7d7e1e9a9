"""Codes of records in class sums: by how much public weights miss a record's class, in whole numbers.

In the first round every class is as likely as another, and the code of class y is F·(C·e_y − 1), with F of
`mechanisms.class_sums.code_one`. A later round names weights W, which follow from the sums that were released before.
A record's scores φ(x)ᵀW give its shares p in the classes, and its code is F·C·(e_y − p).

What the protection of records needs of a code:

* It depends on its record and on public facts alone, to the last bit. φ(x) and W are whole numbers whose products and
  sums are exact (`Weights`). Powers are read from a table of whole numbers. All else is done number by number.
* It is no longer than √(C(C − 1))·F. Its squared length is a sum of whole numbers. A code that is longer is shortened
  and then cut off towards 0.
"""

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.values import require
from collegium.errors import ProtocolViolation
from collegium_accounting.mechanisms.class_sums import ONE, code_one, longest_code_squared

KERNEL_ONE = 2**18
"""The whole number that stands for 1 in `TABLE`."""
STEPS = 2**14
"""Steps of the exponent from one whole number to the next."""
TABLE = np.rint(KERNEL_ONE * np.exp(-np.arange(16 * STEPS) / STEPS))
"""exp(−x) by x in steps of 2^-14: whole numbers, the same on every machine, and 0 beyond the last."""
TABLE[-1] = 0.0

_FORMAT = "collegium-weights-v1"
LARGEST = 2**30
"""The largest whole number of weights."""


@dataclass(frozen=True, eq=False)
class Weights:
    """Public weights of scores φ(x)ᵀW, in whole numbers.

    φ(x) is whole numbers of a Euclidean length of at most 2^16, and has at most 4,097 of them. So every partial sum of
    products is a whole number of at most 2^16 · 2^30 · √4097 < 2^53, which double precision holds exactly, in any order
    of addition.

    Parameters
    ----------
    whole : int32 ``[dimensions, classes]``, from -2^30 to 2^30.
    exponent : an entry of W is ``whole · 2^exponent``.
    """

    whole: NDArray[Any] = field(repr=False)
    exponent: int

    def __post_init__(self) -> None:
        require(self.whole.dtype == np.int32 and self.whole.ndim == 2, "weights are a matrix of whole numbers")
        require(bool((np.abs(self.whole.astype(np.int64)) <= LARGEST).all()), "a weight is too large")
        require(-200 <= self.exponent <= 100, "the exponent of weights lies between -200 and 100")

    @property
    def values(self) -> NDArray[np.float64]:
        """W, ``[dimensions, classes]``."""
        return np.asarray(self.whole * 2.0**self.exponent)

    def digest(self) -> str:
        """The same text for the same weights."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """A line with exponent and shape, and the numbers."""
        rows, columns = self.whole.shape
        line = f"{_FORMAT} {self.exponent} {rows} {columns}\n".encode()
        return line + np.ascontiguousarray(self.whole, dtype="<i4").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Weights":
        """What `to_bytes` wrote; ProtocolViolation for anything else."""
        line, _, numbers = data.partition(b"\n")
        try:
            kind, exponent, rows, columns = line.decode("ascii").split(" ")
            whole = np.frombuffer(numbers, dtype="<i4").reshape(int(rows), int(columns)).astype(np.int32)
            require(kind == _FORMAT, "these are weights of another format")
            return cls(whole, int(exponent))
        except ValueError as error:
            raise ProtocolViolation("these are no weights") from error

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> "Weights":
        """The weights nearest to ``values``, ``[dimensions, classes]``."""
        largest = float(np.abs(values).max(initial=0.0))
        exponent = max(-200, math.frexp(largest)[1] - 30) if largest else 0
        return cls(np.rint(values * 2.0**-exponent).astype(np.int32), exponent)

    def scores(self, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Whole numbers ``[n, classes]`` of vectors ``[n, dimensions]``; times `unit` they are φ(x)ᵀW."""
        return np.asarray(vectors @ self.whole.astype(np.float64))

    @property
    def unit(self) -> float:
        """What one stands for in `scores`, where φ has length 1."""
        return 2.0**self.exponent / ONE


@dataclass(frozen=True)
class Codes:
    """The codes of one round.

    Parameters
    ----------
    weights : those that the round names; None in the first.
    """

    classes: int
    weights: Weights | None = None

    def of(self, vectors: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """The codes of records, ``[n, classes]``, by their vectors ``[n, dimensions]`` and classes ``[n]``."""
        return self.of_scores(None if self.weights is None else self.weights.scores(vectors), labels)

    def of_scores(self, scores: NDArray[np.float64] | None, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """The codes of records of these classes, by their scores ``[n, classes]``, which the first round has not."""
        one = code_one(self.classes)
        codes = np.zeros((len(labels), self.classes))
        codes[np.arange(len(labels)), labels] = self.classes * one
        if scores is None or self.weights is None:
            return (codes - one).astype(np.int64)
        powers = powers_of(scores, self.weights.unit)
        codes = np.rint(codes - powers * (self.classes * one) / powers.sum(axis=1, keepdims=True))
        squared, longest = np.square(codes).sum(axis=1), float(longest_code_squared(self.classes))
        # Double precision knows a root to one part in 2^52: shorter by one part in 10^9, and cut off, none is longer.
        scale = np.where(squared > longest, np.sqrt(longest / np.maximum(squared, 1.0)) * (1.0 - 1e-9), 1.0)
        return np.asarray(np.trunc(codes * scale[:, None]).astype(np.int64))


def powers_of(scores: NDArray[np.float64], unit: float) -> NDArray[np.float64]:
    """Whole numbers in proportion to exp(scores · unit), ``[n, classes]``; a row's largest is 2^18."""
    below = scores.max(axis=1, keepdims=True) - scores
    steps = np.minimum(below * (unit * STEPS), float(len(TABLE) - 1))
    return np.asarray(TABLE[steps.astype(np.int32)])
