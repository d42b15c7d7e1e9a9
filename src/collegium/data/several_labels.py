"""Records that hold several of a task's classes at once: the set as one number."""

import numpy as np
from numpy.typing import ArrayLike

from collegium_accounting.units import IntArray

MAX_LABELS = 62
"""Classes of which a record may hold several: one bit each of a number that a ledger keeps."""


def numbers_of(held: ArrayLike) -> IntArray:
    """The number of each set: bit i is set where class i is held. From 0/1 ``[n, classes]`` to ``[n]``."""
    bits = np.asarray(held, dtype=np.int64)
    numbers: IntArray = (bits << np.arange(bits.shape[-1])).sum(axis=-1)
    return numbers


def held_in(numbers: IntArray, classes: int) -> IntArray:
    """What `numbers_of` made the numbers of: 0/1, shape ``[n, classes]``."""
    held: IntArray = (np.asarray(numbers, dtype=np.int64)[..., None] >> np.arange(classes)) & 1
    return held
