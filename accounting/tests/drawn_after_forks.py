"""Prints, one a line, what a process and two copies of it draw after the process has drawn before.

With the argument ``buffered`` words come from a store that is filled once for a process, as a planted bug.
"""

from __future__ import annotations

import os
import sys

import numpy as np

from collegium_accounting.noise.bits import SystemBits
from collegium_accounting.noise.inversion import Sampler

SCALE = 8.7e7


class BufferedBits(SystemBits):
    """A store that its copies in other processes use as well."""

    def __init__(self) -> None:
        self._store = super().words(10_000, 64)
        self._used = 0

    def words(self, size, bits):
        self._used += size
        return self._store[self._used - size : self._used] >> np.uint64(64 - bits)


def main(bits: SystemBits) -> None:
    sampler = Sampler(2, SCALE, bits, widest_table=2.0**11)
    sampler.draw(10)
    lines = []
    for _ in range(2):
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.write(write, str(sampler.draw(10).tolist()).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as told:
            lines.append(told.read())
        os.waitpid(child, 0)
    print(*lines, sampler.draw(10).tolist(), sep="\n")


if __name__ == "__main__":
    main(BufferedBits() if sys.argv[1:] == ["buffered"] else SystemBits())
