"""All draws of a sampler, one for each string of random bits, and what is wrong with them, by 100 digits of `mpmath`.

A sampler is run with given bits. Where it asks for more than are given, it is run again with each continuation. So
every draw comes with the bits that it was decided by, and these say in which intervals its random numbers lie: the
whole interval, not some point of it, must belong to what was drawn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property

import mpmath
import numpy as np

mpmath.mp.dps = 100
"""Digits. What is compared is never as near as 1e-80 to what it is compared with, unless it is equal."""

Given = tuple[tuple[bool, int, int], ...]
"""Numbers drawn: whether a new one begins, its bits, the number that they spell."""


class _Asked(Exception):
    def __init__(self, begins: bool, bits: int) -> None:
        self.begins, self.bits = begins, bits


class GivenBits:
    """Random bits that are given, and an exception for those who ask for more."""

    def __init__(self, given: Given = ()) -> None:
        self.begin(given)

    def begin(self, given: Given) -> None:
        self._left = list(given)

    def words(self, size: int, bits: int) -> np.ndarray:
        return np.array([self._next(True, bits) for _ in range(size)], dtype=np.uint64)

    def more(self, bits: int) -> int:
        return self._next(False, bits)

    def _next(self, begins: bool, bits: int) -> int:
        if not self._left:
            raise _Asked(begins, bits)
        assert self._left[0][:2] == (begins, bits)
        return self._left.pop(0)[2]


@dataclass(frozen=True)
class Draw:
    """One draw; None where the attempt was rejected."""

    given: Given
    drawn: int | None

    def intervals(self) -> list[tuple[mpmath.mpf, mpmath.mpf]]:
        """[low, high] of each random number that was drawn."""
        numbers: list[tuple[int, int]] = []
        for begins, bits, value in self.given:
            total, word = (0, 0) if begins else numbers.pop()
            numbers.append((total + bits, word << bits | value))
        return [(mpmath.ldexp(word, -bits), mpmath.ldexp(word + 1, -bits)) for bits, word in numbers]


def probabilities(draws: Iterable[Draw]) -> Counter[int | None]:
    """Of each outcome: a string of b bits comes with probability 2^−b."""
    counted = Counter((draw.drawn, sum(bits for _, bits, _ in draw.given)) for draw in draws)
    decided = Counter[int | None]()
    for (drawn, bits), number in counted.items():
        decided[drawn] += Fraction(number, 2**bits)  # type: ignore[assignment]
    return decided


def every_draw(
    bits: GivenBits, run: Callable[[], int], numbers: int, most_bits: int, given: Given = ()
) -> Iterator[Draw]:
    """Draws that ``run`` makes of ``bits``, decided by at most ``most_bits`` more than the first of each number.

    ``numbers`` are drawn in an attempt: whoever begins another has rejected the attempt.
    """
    bits.begin(given)
    try:
        yield Draw(given, run())
    except _Asked as asked:
        begun = sum(begins for begins, _, _ in given)
        if asked.begins and begun == numbers:
            yield Draw(given, None)
        elif asked.begins or asked.bits + sum(count for begins, count, _ in given if not begins) <= most_bits:
            for value in range(2**asked.bits):
                following = (*given, (asked.begins, asked.bits, value))
                yield from every_draw(bits, run, numbers, most_bits, following)


@dataclass(frozen=True)
class TrueLaw:
    """Mass ∝ e^{−(|x|/scale)^power/power}, by direct summation."""

    power: int
    scale: float

    @cached_property
    def _unit(self) -> mpmath.mpf:
        return 1 / exact(Fraction(self.scale))

    def exponent(self, x: int) -> mpmath.mpf:
        return (x * self._unit) ** self.power / self.power

    def mass(self, x: int) -> mpmath.mpf:
        """Before it is divided by the sum of all."""
        return _mass(self, abs(x))

    def total(self, zeros: int = 1) -> mpmath.mpf:
        return zeros + _beside_zero(self)

    def steps(self, entries: int, zeros: int = 1) -> list[mpmath.mpf]:
        """F of the first integers in the order 0, 1, −1, 2, −2, …, or +0, −0, 1, −1, … if zero counts twice."""
        total, sums = self.total(zeros), [mpmath.mpf(0)]
        for j in range(entries):
            sums.append(sums[-1] + self.mass((j + 2 - zeros) // 2))
        return [one / total for one in sums[1:]]


@cache
def _mass(law: TrueLaw, distance: int) -> mpmath.mpf:
    return mpmath.exp(-law.exponent(distance))


@cache
def _beside_zero(law: TrueLaw) -> mpmath.mpf:
    """The masses of all integers but 0."""
    reach = int((250 if law.power == 1 else 23) * law.scale) + 2
    return 2 * mpmath.fsum(law.mass(x) for x in range(1, reach))


@cache
def _acceptance(law: TrueLaw, start: int, distance: int) -> mpmath.mpf:
    return mpmath.exp(law.exponent(start) - law.exponent(distance))


def exact(x: Fraction) -> mpmath.mpf:
    return mpmath.mpf(x.numerator) / x.denominator


def inverted(steps: list[mpmath.mpf], interval: tuple[mpmath.mpf, mpmath.mpf]) -> int | None:
    """The entry to which all numbers of the interval lead; None if they lead to several."""
    low, high = interval
    number = bisect_right(steps, low)  # what the least number of the interval leads to
    return number if number < len(steps) and high <= steps[number] else None


def signed(number: int) -> int:
    """The integer of this number in the order 0, 1, −1, 2, −2, …"""
    return (number + 1) // 2 * (1 if number % 2 else -1)


def wrong_with_table(draw: Draw, steps: list[mpmath.mpf]) -> bool:
    """Whether what was drawn from a table alone is not what every number of the interval leads to."""
    number = inverted(steps, draw.intervals()[0])
    return number is None or draw.drawn != signed(number)


def wrong_with_attempt(draw: Draw, steps: list[mpmath.mpf], law: TrueLaw, q: int) -> bool:
    """Whether an attempt of the large scales has another outcome than its three random numbers say, or undecided."""
    table, within, acceptance = draw.intervals()
    number = inverted(steps, table)
    if number is None:
        return True
    start, negative = number // 2 * q, number % 2
    distance = start + int(within[0] * q) + negative
    chance = _acceptance(law, start, distance)
    if draw.drawn is None:
        return bool(acceptance[0] < chance)
    return acceptance[1] > chance or draw.drawn != (-distance if negative else distance)
