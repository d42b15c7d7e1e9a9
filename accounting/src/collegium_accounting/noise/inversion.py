r"""Discrete Gaussian and Laplace noise with exactly the mass that is accounted for, a table at a time.

The mass is ∝ e^{−E(|x|)} with E(x) = x²/2σ² or x/scale, for the rational number that the double σ or scale is. Random
bits come from the operating system. A random number U, uniform in [0, 1), is known by as many of its bits as have been
drawn: b bits that spell the word u say that U is uniform in [u/2^b, (u + 1)/2^b), and b more divide that interval
evenly. What is decided is decided for all numbers of the interval, or b doubles.

**Inversion.** Number the integers by j = 0, 1, 2, … in the order 0, 1, −1, 2, −2, …; F(j) is the mass of the first
j + 1 of them and F(−1) = 0. The draw is the integer numbered J = min{j : U < F(j)}. `Mass.distribution` gives integers
with lower_j ≤ 2^b·F(j) ≤ upper_j. Let j = #{i : upper_i ≤ u}. If u < lower_j the draw is the integer numbered j; if
not, more bits are drawn, and an enclosure as much tighter is made.

*Theorem.* A draw ends with probability 1, and is the integer numbered j with probability exactly F(j) − F(j − 1).

*Proof.* Upper bounds ascend, so upper_{j−1} ≤ u (or j = 0), and every U of the interval has
F(j − 1) ≤ u/2^b ≤ U. If u < lower_j, then u + 1 ≤ lower_j, these being integers, and U < (u + 1)/2^b ≤ F(j). Hence
J = j for every number of the interval: however many bits were looked at, the answer is J of the one U that all bits
spell. And Pr[J = j] = Pr[F(j − 1) ≤ U < F(j)], the length of that interval. At b bits a word is open only if
lower_j ≤ u < upper_j for some j in the table. How many entries a table has and how wide they are grows with b no faster
than a power of b (the last is as wide as what lies beyond it, less than one word, and rounding), and there are 2^b
words: the share of open ones vanishes. ∎

The tail is not cut off: the last word or words of a table are always open, and more bits go on to larger integers.

**Large scales** would need large tables. Let q = 2^m and S = scale/q, a double again. Write
x = ±y, y = qk + v, where v runs from 0 to q − 1 for x ≥ 0 and from 1 to q for x < 0. Each integer x has exactly one
such sign, k ≥ 0 and v. An attempt proposes sign and k with mass ∝ e^{−E(qk)}, which is the law above at scale S with 0
counted twice (+0 and −0), and v uniformly, and accepts with probability e^{−t}, t = E(qk + v) − E(qk) ≥ 0. It is
repeated, afresh, until it accepts.

*Theorem.* The draw is x with probability exactly ∝ e^{−E(|x|)}.

*Proof.* An attempt proposes and accepts x with probability e^{−E(qk)}/(c·q)·e^{−E(y) + E(qk)} = e^{−E(|x|)}/(c·q), c
being the same for all x. Attempts are independent, so what is accepted has this law, divided by its sum. ∎

Whether a fresh U < e^{−t} is decided by `Acceptance`.

**What time tells.** Where the number of steps of a sampler follows the value, its time tells the value (Jin, McMurtry,
Rubinstein, Ohrimenko 2022). Here a draw from a table costs one binary search, whose number of steps is fixed by the
table and whose places in memory follow the draw; a table of 64 bits has fewer than 2^16 entries, so more bits are
needed with probability below 2^−47. Large scales repeat an attempt, less than one in 100, but how often says nothing of
the attempt that is accepted: attempts are independent. Its acceptance takes more than 32 bits with probability below
2^−19. Other side channels of the processor are not defended against.

**int64.** The result is the draw modulo 2^64, between −2^63 and 2^63 − 1. With scales of at most 2^50 it is another
number with probability below e^{−8191}, and then a function of the exact draw, which costs no privacy.
"""

import math
from bisect import bisect_right
from fractions import Fraction
from functools import lru_cache

import numpy as np

from collegium_accounting.errors import ConfigurationError
from collegium_accounting.noise.acceptance import Acceptance
from collegium_accounting.noise.bits import SystemBits, Words
from collegium_accounting.noise.enclosures import Mass
from collegium_accounting.renyi import positive
from collegium_accounting.units import IntArray

LARGEST_SCALE = 2.0**50
_WIDEST_TABLE = {1: 2.0**9, 2: 2.0**11}
"""Scales below this have a table of their own: up to 45,000 entries for Laplace (1), 38,000 for Gaussian noise (2)."""
_WORD_BITS = 64
_AT_A_TIME = 2**13
"""Draws that are made at a time: they fit the processor's cache, however many are wanted."""


class Sampler:
    """Draws from the law with mass ∝ e^{−E(|x|)}; see the module for the theorems.

    Parameters
    ----------
    power : 1 for E(x) = x/scale, 2 for E(x) = x²/2σ².
    scale : the scale, or σ.
    bits : where random bits come from.
    word_bits : bits that are drawn of a number at first, at most 64.
    widest_table : a power of two; scales below it have a table of their own. With words of 64 bits it is at least 8 for
        Laplace and 64 for Gaussian noise.

    Raises
    ------
    ConfigurationError
        If ``widest_table`` is too small for this scale; see `Acceptance`.
    """

    def __init__(
        self, power: int, scale: float, bits: SystemBits, *, word_bits: int = _WORD_BITS, widest_table: float
    ) -> None:
        self._bits, self._word_bits = bits, word_bits
        self._shift = max(0, math.frexp(scale / widest_table)[1])  # m
        self._tabled = _mass(power, Fraction(scale) / 2**self._shift)
        lower, upper = self._tabled.distribution(word_bits, self._zeros)
        self._lower, self._last = np.array(lower, dtype=np.uint64), len(lower) - 1
        # All but the last, which is 2^b, and then the largest word, so that their number is one less than a power of 2.
        self._search_steps = self._last.bit_length()
        self._upper = np.full(2**self._search_steps - 1, 2**64 - 1, dtype=np.uint64)
        self._upper[: self._last] = upper[:-1]
        if self._shift:
            mass = _mass(power, Fraction(scale))
            self._acceptance = Acceptance(mass, self._shift, self._last >> 1, bits, word_bits)

    @property
    def _zeros(self) -> int:
        """How often 0 is counted in the table."""
        return 2 if self._shift else 1

    def draw(self, size: int) -> IntArray:
        """``size`` independent draws, shape ``[size]``."""
        drawn, done = np.empty(size, dtype=np.int64), 0
        while done < size:
            some = self._attempts(min(size - done, _AT_A_TIME))
            drawn[done : done + len(some)] = some
            done += len(some)
        return drawn

    def _attempts(self, size: int) -> IntArray:
        """Draws of at most so many attempts; without blocks every attempt is one."""
        numbers = self._numbers(size)
        if not self._shift:
            distance = (numbers + 1) >> 1
            return np.where(numbers & 1, distance, -distance)
        block, negative = numbers >> 1, numbers & 1
        step = self._bits.words(size, self._shift).astype(np.int64) + negative
        accepted = self._acceptance.decide(block, step)
        distance = (block << self._shift) + step
        return np.where(negative, -distance, distance)[accepted]

    def _numbers(self, size: int) -> IntArray:
        """Which integers are drawn from the table, by their numbers."""
        words = self._bits.words(size, self._word_bits)
        numbers = self._upper_ends_up_to(words)
        for i in np.flatnonzero(words >= self._lower[numbers]).tolist():
            numbers[i] = self._looked_up_further(int(words[i]))
        return numbers

    def _upper_ends_up_to(self, words: Words) -> IntArray:
        """How many upper ends each word reaches, int64 on every machine.

        `numpy.searchsorted` would begin each search where the last one ended, and take steps that follow the draws.
        """
        found = np.zeros(len(words), dtype=np.int64)
        for bit in reversed(range(self._search_steps)):
            found += (self._upper[found + ((1 << bit) - 1)] <= words).astype(np.int64) << bit
        return np.minimum(found, self._last)  # the largest word reaches what the table was filled up with

    def _looked_up_further(self, word: int) -> int:
        """The number of a draw that ``word`` leaves open."""
        bits = self._word_bits
        while True:
            word = word << bits | self._bits.more(bits)
            bits *= 2
            lower, upper = self._tabled.distribution(bits, self._zeros)
            number = bisect_right(upper, word)
            if word < lower[number]:
                return number


@lru_cache(maxsize=8)
def system_sampler(power: int, scale: float) -> Sampler:
    """Exact noise from the operating system's randomness. The last 8 tables, of 0.9 MB or less each, are kept.

    Parameters
    ----------
    power : 1 for discrete Laplace noise of ``scale``, 2 for a discrete Gaussian of σ = ``scale``.
    scale : any real number.

    Raises
    ------
    ConfigurationError
        If the scale is not a positive number or above 2^50.
    """
    check_fits(scale)
    return Sampler(power, positive(scale), SystemBits(), widest_table=_WIDEST_TABLE[power])


def check_fits(scale: float) -> None:
    """Raise ConfigurationError where ``scale``, in units of the whole numbers under the noise, is above 2^50."""
    if scale > LARGEST_SCALE:
        raise ConfigurationError(
            f"noise of {scale} units of a summed number does not fit whole numbers of 64 bits; at most 2^50 does: "
            "take less noise"
        )


def _mass(power: int, scale: Fraction) -> Mass:
    return Mass(power, scale if power == 1 else 2 * scale * scale)
