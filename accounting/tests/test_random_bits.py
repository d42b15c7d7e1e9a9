"""Random bits of the operating system: all of them vary, and copies of a process do not share them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from collegium_accounting.noise.bits import SystemBits

NUMBERS = 300


def both_values(numbers: list[int], bits: int) -> bool:
    """Whether they are of so many bits and each bit takes both values; wrong with probability below bits·2^−299."""
    assert all(0 <= number < 2**bits for number in numbers)
    ones = zeros = 0
    for number in numbers:
        ones, zeros = ones | number, zeros | ~number
    return ones == 2**bits - 1 and zeros & ones == ones


class NoMore(SystemBits):
    def more(self, bits):
        return 0


class LastBitIsMissing(SystemBits):
    def more(self, bits):
        return super().more(bits) & ~1

    def words(self, size, bits):
        return super().words(size, bits) & ~np.uint64(1)


def more_vary(source: SystemBits, bits: int) -> bool:
    return both_values([source.more(bits) for _ in range(NUMBERS)], bits)


def words_vary(source: SystemBits, bits: int) -> bool:
    return both_values(source.words(NUMBERS, bits).tolist(), bits)


@pytest.mark.parametrize("bits", [1, 4, 32, 64, 128, 1000])
def test_every_further_bit_takes_both_values(bits):
    """300 numbers."""
    assert more_vary(SystemBits(), bits)
    assert not more_vary(NoMore(), bits) and not more_vary(LastBitIsMissing(), bits)


@pytest.mark.parametrize("bits", [1, 4, 32, 63, 64])
def test_every_bit_of_a_word_takes_both_values(bits):
    """300 words."""
    assert words_vary(SystemBits(), bits) and not words_vary(LastBitIsMissing(), bits)


def drawn_after_forks(*given: str) -> list[str]:
    command = [sys.executable, str(Path(__file__).with_name("drawn_after_forks.py")), *given]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=300).stdout.splitlines()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be copied here")
def test_copies_of_a_process_draw_noise_of_their_own():
    """Ten draws of scale 8.7e7 in each of three processes: two agree with probability below 1e-70."""
    drawn = drawn_after_forks()
    assert len(drawn) == len(set(drawn)) == 3 and all(line.count(",") == 9 for line in drawn)
    assert len(set(drawn_after_forks("buffered"))) == 1
