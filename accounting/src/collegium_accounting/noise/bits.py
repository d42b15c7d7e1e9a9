"""Where the uniform bits of exact noise come from."""

import os
import secrets
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]


class RandomBits(Protocol):
    """Independent uniform bits."""

    def words(self, size: int, bits: int) -> Words:
        """``size`` numbers of so many bits each, 1 to 64."""
        ...

    def more(self, bits: int) -> int:
        """One number of any number of bits."""
        ...


class SystemBits:
    """The operating system's randomness."""

    def words(self, size: int, bits: int) -> Words:
        return np.frombuffer(os.urandom(8 * size), dtype=np.uint64) >> np.uint64(64 - bits)

    def more(self, bits: int) -> int:
        return secrets.randbits(bits)
