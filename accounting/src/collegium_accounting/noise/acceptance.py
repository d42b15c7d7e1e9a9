r"""Whether U < e^{−t}, decided exactly for many U at a time, where t is what E grows by within a block.

With E as in `Mass`, blocks of q = 2^m integers, block k and a step v from 0 to q,

  t = E(qk + v) − E(qk) = v/unit or v·(2qk + v)/unit.

**Almost always** signed integers of 64 bits decide. Let c = max(0, m − 16). Rounded to multiples of 2^c, down and up, v
gives two whole numbers f, and f or f·(2^{m−c+1}·k + f) encloses t·unit/2^{power·c}. Times ρ = 2^{b + power·c}/unit,
itself enclosed by r/2^e and (r + 1)/2^e, these are enclosures T of 2^b·t. No product reaches 2^63: 2^b·t is at most
that of the last block and v = q, and e is chosen by it. For every t ≥ 0

  1 − t + t²/2 − t³/6 ≤ e^{−t} ≤ 1 − t + t²/2,

being partial sums of a series whose remainder has the sign of the first term left out; the left side at the upper T,
the right side at the lower T enclose 2^b·e^{−t}, since e^{−t} falls. Of U = the first b bits u are known: it is below
e^{−t} if u + 1 ≤ low, and not below if u ≥ high.

**Otherwise** more bits of U are drawn, and `exp_minus` encloses e^{−t} as precisely as there are bits of U.
"""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from collegium_accounting.errors import ConfigurationError
from collegium_accounting.noise.bits import SystemBits
from collegium_accounting.noise.enclosures import Mass, exp_minus
from collegium_accounting.units import IntArray

_STEP_BITS = 16
_MOST_BITS = 32


class Acceptance:
    """Decides whether U < e^{−t}; see the module.

    Parameters
    ----------
    mass : E.
    shift : m, at least 1.
    last_block : the largest block that 64 bits decide; t is below ½ there.
    bits : where random bits come from.
    word_bits : of U, drawn at first; 32 or fewer are used.
    """

    def __init__(self, mass: Mass, shift: int, last_block: int, bits: SystemBits, word_bits: int) -> None:
        self._mass, self._shift, self._last_block, self._bits = mass, shift, last_block, bits
        self._word_bits = min(word_bits, _MOST_BITS)
        self._cut = max(0, shift - _STEP_BITS)
        largest = self._growth(last_block, 1 << shift)
        if 2 * largest >= 1:
            raise ConfigurationError(
                f"a mass may not fall to e^-{float(largest):.2g} of itself in a block; take smaller blocks"
            )
        self._rate_bits = 62 - (int(largest * 2**self._word_bits) + 1).bit_length()
        unit = mass.unit / 2 ** (mass.power * self._cut)
        self._rate = int(Fraction(2 ** (self._word_bits + self._rate_bits)) / unit)

    def decide(self, block: IntArray, step: IntArray) -> NDArray[np.bool_]:
        """Whether U < e^{−t}, for fresh numbers U; all arrays of shape ``[size]``."""
        words = self._bits.words(len(block), self._word_bits).astype(np.int64)
        low, high = self.enclosed(block, step)
        accepted = words < low
        open_yet = (~accepted & (words < high)) | (block > self._last_block)
        for i in np.flatnonzero(open_yet).tolist():
            accepted[i] = self._decided(int(block[i]), int(step[i]), int(words[i]))
        return accepted

    def enclosed(self, block: IntArray, step: IntArray) -> tuple[IntArray, IntArray]:
        """Enclosures of e^{−t} at b bits for blocks up to the last; of others they mean nothing."""
        bits = self._word_bits
        least, most = (self._scaled_growth(block, step, up) for up in (0, 1))
        cubed = (((most * most >> bits) + 1) * most >> bits + 2) + 1  # more than t³/6
        low = (1 << bits) - most + (most * most >> bits + 1) - cubed
        high = (1 << bits) - least + (least * least >> bits + 1) + 1
        return low, high

    def _scaled_growth(self, block: IntArray, step: IntArray, up: int) -> IntArray:
        """T: 2^b·t, rounded down, or up where ``up`` is 1."""
        part = step + up * ((1 << self._cut) - 1) >> self._cut
        if self._mass.power == 2:
            part = part * ((block << self._shift - self._cut + 1) + part)
        return (part * (self._rate + up) >> self._rate_bits) + up

    def _growth(self, block: int, step: int) -> Fraction:
        """t."""
        start = block << self._shift
        return self._mass.exponent(start + step) - self._mass.exponent(start)

    def _decided(self, block: int, step: int, word: int) -> bool:
        """Whether U < e^{−t}, where ``word`` is how U begins."""
        t, bits = self._growth(block, step), self._word_bits
        while True:
            low, high = exp_minus(t, bits)
            if word < low:
                return True
            if word >= high:
                return False
            word = word << bits | self._bits.more(bits)
            bits *= 2
