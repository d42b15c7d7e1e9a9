"""Where the uniform bits of exact noise come from."""

import os
import secrets

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]


class SystemBits:
    """Independent uniform bits: the operating system's randomness."""

    def words(self, size: int, bits: int) -> Words:
        """``size`` numbers of so many bits each, 1 to 64."""
        width = next(width for width in (1, 2, 4, 8) if bits <= 8 * width)
        drawn = np.frombuffer(os.urandom(width * size), dtype=f"u{width}").astype(np.uint64)
        return drawn >> np.uint64(8 * width - bits)

    def more(self, bits: int) -> int:
        """One number of any number of bits."""
        return secrets.randbits(bits)
