"""The noise of a release has exactly the law that is accounted for: every draw of few bits, and draws at 64 bits.

Statistical tests fail by chance with probability below 1e-6; sample sizes are stated with each.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from every_draw import (
    Draw,
    GivenBits,
    TrueLaw,
    every_draw,
    exact,
    probabilities,
    signed,
    wrong_with_attempt,
    wrong_with_table,
)
from scipy.stats import chi2

from collegium_accounting.errors import ConfigurationError
from collegium_accounting.noise.acceptance import Acceptance
from collegium_accounting.noise.bits import SystemBits
from collegium_accounting.noise.enclosures import Mass, exp_minus
from collegium_accounting.noise.inversion import Sampler, system_sampler
from collegium_accounting.noise.sources import SystemNoise

FAILURE = 1e-6
SMALL = [(1, 0.3), (1, 1.0), (2, 0.4), (2, 2.3)]


def mass_of(power: int, scale: float) -> Mass:
    return Mass(power, Fraction(scale) if power == 1 else 2 * Fraction(scale) ** 2)


def upper_ends(sampler: Sampler) -> np.ndarray:
    """Those of its table; the last is 2^b, which 64 bits may not hold, so the largest word stands for it."""
    return np.append(sampler._upper, np.uint64(2**64 - 1))[: len(sampler._lower)]


def remembering(sampler: Sampler) -> Sampler:
    """What few draws of many ask for, all draws that there are ask for again and again."""
    sampler._tabled = SimpleNamespace(distribution=cache(sampler._tabled.distribution))  # type: ignore[assignment]
    return sampler


def table_draws(
    power: int, scale: float, word_bits: int, most_bits: int, kind: type[Sampler] = Sampler
) -> Iterator[Draw]:
    bits = GivenBits()
    sampler = remembering(kind(power, scale, bits, word_bits=word_bits, widest_table=2.0**10))
    return every_draw(bits, lambda: int(sampler.draw(1)[0]), 1, most_bits)


def attempts(power: int, scale: float, kind: type[Sampler] = Sampler) -> Iterator[Draw]:
    """In blocks of integers, with a table for a scale from 4 to 8 and words of 4 bits; at most 4 bits more."""
    bits = GivenBits()
    sampler = remembering(kind(power, scale, bits, word_bits=4, widest_table=8.0))
    return every_draw(bits, lambda: int(sampler.draw(1)[0]), 3, 4)


@pytest.mark.bits
@pytest.mark.parametrize(("power", "scale"), SMALL)
@pytest.mark.parametrize(("word_bits", "most_bits"), [pytest.param(4, 12, marks=pytest.mark.bits), (6, 6), (10, 0)])
def test_every_draw_from_a_table_is_what_all_numbers_of_its_interval_lead_to(power, scale, word_bits, most_bits):
    law = TrueLaw(power, scale)
    steps = law.steps(400)
    draws = list(table_draws(power, scale, word_bits, most_bits))
    assert not any(wrong_with_table(draw, steps) for draw in draws)
    decided = probabilities(draws)
    open_yet = 1 - sum(decided.values())
    entries = len(mass_of(power, scale).distribution(word_bits + most_bits, 1)[0])
    assert 0 < open_yet <= Fraction(2 * entries, 2 ** (word_bits + most_bits))
    total = law.total()
    for x in range(-50, 51):
        assert exact(decided[x]) <= law.mass(x) / total <= exact(decided[x] + open_yet)


@pytest.mark.bits
@pytest.mark.parametrize(("power", "scale", "q"), [(1, 8.5, 2), (1, 17.0, 4), (2, 9.3, 2)])
def test_every_attempt_of_a_large_scale_has_the_outcome_that_its_numbers_say(power, scale, q):
    law = TrueLaw(power, scale)
    steps = TrueLaw(power, scale / q).steps(200, zeros=2)
    draws = list(attempts(power, scale))
    assert not any(wrong_with_attempt(draw, steps, law, q) for draw in draws)
    decided = probabilities(draws)
    open_yet = 1 - sum(decided.values())
    proposed = TrueLaw(power, scale / q).total(zeros=2) * q
    assert decided[None] > 0 and open_yet < Fraction(1, 2)
    for x in range(-50, 51):
        assert exact(decided[x]) <= law.mass(x) / proposed <= exact(decided[x] + open_yet)


class Tightest(Acceptance):
    """With the narrowest enclosures that there are, so that nothing hides a wrong comparison."""

    def enclosed(self, block, step):
        growths = (self._growth(k, v) for k, v in zip(block.tolist(), step.tolist(), strict=True))
        low, high = zip(*(exp_minus(t, self._word_bits, 64) for t in growths), strict=True)
        return np.array(low), np.array(high)


@pytest.mark.parametrize("kind", [Acceptance, Tightest])
@pytest.mark.parametrize(("power", "scale"), [(1, 8.5), (2, 9.3)])
@pytest.mark.parametrize("block", [0, 1, 4, 9])
@pytest.mark.parametrize("step", [0, 1, 2])
def test_every_word_is_accepted_that_is_below_the_exponential_and_no_other(kind, power, scale, block, step):
    """Words of 4 bits and 12 more; the last block whose first bits are decided many at a time is 6."""
    bits = GivenBits()
    acceptance = kind(mass_of(power, scale), 1, 6, bits, 4)
    law = TrueLaw(power, scale)
    chance = mpmath.exp(law.exponent(2 * block) - law.exponent(2 * block + step))
    draws = list(every_draw(bits, lambda: int(acceptance.decide(np.array([block]), np.array([step]))[0]), 1, 12))
    for draw in draws:
        ((low, high),) = draw.intervals()
        assert high <= chance if draw.drawn else low >= chance
    accepted = Fraction(probabilities(draws)[1])
    assert exact(accepted) <= chance <= exact(accepted + Fraction(2, 2**16))


class OffByOne(Sampler):
    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self._lower = self._lower + np.uint64(1)


class Rounded(Sampler):
    """Words in an enclosure go to one side: an ordinary table of a distribution function."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self._lower[:-1] = upper_ends(self)[:-1]


class WithoutTail(Sampler):
    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self._lower[-1] = 2**self._word_bits


class FloatingPoint(Sampler):
    """The table is right to five digits."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self._lower = (self._lower * 1.00001 + 1.0).astype(np.uint64)


class SameBitsAgain(Sampler):
    """The bits that left a draw open are taken for the next ones."""

    def _looked_up_further(self, word):
        first = self._bits
        self._bits = GivenBits(((False, self._word_bits, word),))
        try:
            return super()._looked_up_further(word)
        finally:
            self._bits = first


class Signed(Sampler):
    """Words are signed numbers."""

    def _numbers(self, size):
        half = 2 ** (self._word_bits - 1)
        words = self._bits.words(size, self._word_bits).astype(np.int64)
        words[words >= half] -= 2 * half
        numbers = np.searchsorted(upper_ends(self)[:-1].astype(np.int64), words, side="right")
        for i in np.flatnonzero(words >= self._lower.astype(np.int64)[numbers]).tolist():
            numbers[i] = self._looked_up_further(int(words[i]))
        return numbers


@pytest.mark.parametrize("bug", [OffByOne, Rounded, WithoutTail, FloatingPoint, SameBitsAgain, Signed])
@pytest.mark.parametrize(("power", "scale"), [(1, 1.7), (2, 2.3)])
def test_a_wrong_table_or_a_wrong_look_at_it_is_found(bug, power, scale):
    steps = TrueLaw(power, scale).steps(400)
    assert any(wrong_with_table(draw, steps) for draw in table_draws(power, scale, 6, 6, bug))


class AlwaysAccepts(Acceptance):
    def decide(self, block, step):
        return super().decide(block, step) | True


class AcceptsWhatIsOpen(Acceptance):
    def _decided(self, block, step, word):
        return True


class RejectsWhatIsOpen(Acceptance):
    def _decided(self, block, step, word):
        return False


class AcceptsUpToTheUpperEnd(Acceptance):
    def enclosed(self, block, step):
        _, high = super().enclosed(block, step)
        return high, high


class ForgetsTheStep(Acceptance):
    def decide(self, block, step):
        return super().decide(block, 0 * step + 1)


class ForgetsTheBlock(Acceptance):
    def decide(self, block, step):
        return super().decide(0 * block, step)


def with_acceptance(bug: type[Acceptance]) -> type[Sampler]:
    class Altered(Sampler):
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            self._acceptance.__class__ = bug

    return Altered


class ZeroTwice(Sampler):
    def _attempts(self, size):
        drawn = super()._attempts(size)
        return np.where(drawn < 0, drawn + 1, drawn)


@pytest.mark.bits
@pytest.mark.parametrize(
    "bug",
    [
        *(AlwaysAccepts, AcceptsWhatIsOpen, RejectsWhatIsOpen, AcceptsUpToTheUpperEnd, ForgetsTheStep, ForgetsTheBlock),
        *(ZeroTwice, OffByOne, Rounded, WithoutTail, SameBitsAgain),
    ],
)
def test_a_wrong_attempt_of_a_large_scale_is_found(bug):
    sampler = with_acceptance(bug) if issubclass(bug, Acceptance) else bug
    steps = TrueLaw(2, 9.3 / 2).steps(200, zeros=2)
    assert any(wrong_with_attempt(draw, steps, TrueLaw(2, 9.3), 2) for draw in attempts(2, 9.3, sampler))


@pytest.mark.parametrize(
    ("power", "scale"), [(1, 512.0), (1, 8.7e7), (1, 2.0**50), (2, 2048.0), (2, 5000.0), (2, 8.7e7), (2, 2.0**50)]
)
def test_acceptance_is_enclosed_in_64_bits_up_to_the_last_block_and_seldom_left_open(power, scale):
    """400 blocks and steps, the extreme ones among them: an overflow or a rounding the wrong way would be seen."""
    sampler = system_sampler(power, scale)
    acceptance, q, last = sampler._acceptance, 2**sampler._shift, (len(sampler._lower) - 1) >> 1
    generator = np.random.default_rng(3)
    block = np.append(generator.integers(0, last + 1, 396), [0, 0, last, last])
    step = np.append(generator.integers(0, q + 1, 396), [0, q, 0, q])
    law = TrueLaw(power, scale)
    given = (each.tolist() for each in (block, step, *acceptance.enclosed(block, step)))
    for k, v, low, high in zip(*given, strict=True):
        true = mpmath.ldexp(mpmath.exp(law.exponent(q * k) - law.exponent(q * k + v)), 32)
        assert low <= true <= high <= low + 2**13


@pytest.mark.parametrize("start", [0, 2**32 - 1])
def test_what_32_bits_leave_open_is_decided_by_more(start):
    """In a block beyond the last, where 64 bits decide nothing, and at t = 0, which accepts whatever comes."""
    law, q = TrueLaw(2, 8.7e7), 2**16
    decided = []
    for block, step in ((30_000, q), (30_000, 0)):
        bits = GivenBits(((True, 32, start), (False, 32, start)))
        acceptance = Acceptance(mass_of(2, 8.7e7), 16, 12_000, bits, 64)
        decided.append(bool(acceptance.decide(np.array([block]), np.array([step]))[0]))
    chance = mpmath.exp(law.exponent(q * 30_000) - law.exponent(q * 30_001))
    assert decided == [exact(Fraction(start, 2**32)) < chance, True]


@pytest.mark.parametrize(("power", "least"), [(1, 8.0), (2, 64.0)])
def test_blocks_too_coarse_for_64_bits_are_refused(power, least):
    """The least table of either law is the one that the docstring names; the smallest scales are the coarsest."""
    with pytest.raises(ConfigurationError, match="smaller blocks"):
        Sampler(power, 1024.0, SystemBits(), widest_table=least / 2)
    Sampler(power, 1024.0, SystemBits(), widest_table=least)


@pytest.mark.parametrize(
    "t",
    [Fraction(0), Fraction(1, 2**200), Fraction(1, 3), Fraction(1, 2), Fraction(1), Fraction(355, 113), Fraction(700)],
)
@pytest.mark.parametrize("bits", [1, 4, 64, 128])
def test_exponentials_are_enclosed_and_narrowly(t, bits):
    low, high = exp_minus(t, bits)
    true = mpmath.ldexp(mpmath.exp(-exact(t)), bits)
    assert low <= true <= high <= low + 2
    assert t or low == high == 2**bits


@pytest.mark.parametrize("bits", [3, 5, 8, 12, 20])
def test_exponentials_are_enclosed_however_coarsely_they_are_computed(bits):
    """Without guard bits, where a rounding the wrong way is seen, at 1,000 numbers."""
    generator = np.random.default_rng(bits)
    for numerator, denominator in generator.integers(1, 2000, (1000, 2)).tolist():
        t = Fraction(numerator, denominator)
        low, high = exp_minus(t, bits, guard_bits=0)
        assert low <= mpmath.ldexp(mpmath.exp(-exact(t)), bits) <= high


@pytest.mark.bits
@pytest.mark.parametrize("zeros", [1, 2])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("guard_bits", [3, 4, 6])
def test_the_distribution_is_enclosed_however_coarsely_it_is_computed(power, guard_bits, zeros):
    """The same, with few guard bits, at 60 scales up to 2 and larger ones, where ratios are rounded often."""
    generator = np.random.default_rng(guard_bits)
    larger = (8.0, 9.54, 10.24, 26.55, 29.46) if guard_bits == 6 else ()
    for scale in (*(generator.integers(20, 200, 60) / 100).tolist(), *larger):
        law = TrueLaw(power, scale)
        for bits in (6, 10):
            lower, upper = replace(mass_of(power, scale), guard_bits=guard_bits).distribution(bits, zeros)
            for low, step, high in zip(lower, law.steps(len(lower), zeros), upper, strict=True):
                assert low <= mpmath.ldexp(step, bits) <= high


@pytest.mark.parametrize("zeros", [1, 2])
@pytest.mark.parametrize(
    ("power", "scale", "bits"),
    [(1, 0.1, 64), (1, 3.7, 64), (1, 40.0, 64), (2, 0.1, 64), (2, 3.7, 64), (2, 131.3, 64), (2, 3.7, 128), (2, 3.7, 4)],
)
def test_the_distribution_is_enclosed_narrowly_and_the_rest_is_less_than_one_word(power, scale, bits, zeros):
    lower, upper = mass_of(power, scale).distribution(bits, zeros)
    steps = TrueLaw(power, scale).steps(len(lower), zeros)
    for low, step, high in zip(lower, steps, upper, strict=True):
        assert low <= mpmath.ldexp(step, bits) <= high <= low + 2
    assert lower == sorted(lower) and upper == sorted(upper)
    assert upper[-1] == 2**bits > max(upper[:-1], default=0)


@pytest.mark.bits
@pytest.mark.parametrize(("power", "scale"), [(1, 1.7), (2, 3.7)])
def test_words_of_64_bits_next_to_every_step_of_the_table_lead_where_they_should(power, scale):
    """Among them are words above 2^63, which are negative for whoever takes them for signed."""
    lower, upper = mass_of(power, scale).distribution(64, 1)
    steps = TrueLaw(power, scale).steps(1500)
    words = {end + aside for end in (*lower, *upper) for aside in (-1, 0, 1)} | {0, 2**63 - 1, 2**63, 2**64 - 1}
    for word in (word for word in words if 0 <= word < 2**64):
        for more in (0, 2**64 - 1):
            bits = GivenBits(((True, 64, word), (False, 64, more), (False, 128, 2**127)))
            drawn = Sampler(power, scale, bits, widest_table=2.0**10).draw(1)[0]
            place = exact(Fraction((word << 64 | more) << 128 | 2**127, 2**256))
            assert drawn == signed(bisect_right(steps, place))


def bins(power: int, scale: float, edges: np.ndarray) -> np.ndarray:
    """The law of bins between ascending edges, those beyond them included: an integer belongs to the edge above it."""
    law = TrueLaw(power, scale)
    if scale < 100:
        integers = range(math.floor(edges[0]) + 1, math.floor(edges[-1]) + 1)
        masses = np.array([float(law.mass(x) / law.total()) for x in integers])
        inner = np.bincount(np.searchsorted(edges, np.array(integers)) - 1, masses, len(edges) - 1)
        beyond = (1 - inner.sum()) / 2
        return np.array([beyond, *inner, beyond])
    # Half an integer above a whole edge the continuous law is the discrete one but for 1e-5 of each bin's mass.
    half = [float(_tail(power, (math.floor(edge) + 0.5) / scale)) for edge in edges]
    return -np.diff([1.0, *half, 0.0])


def _tail(power: int, z: float) -> mpmath.mpf:
    if power == 2:
        return 1 - mpmath.ncdf(z)
    return mpmath.exp(-z) / 2 if z > 0 else 1 - mpmath.exp(z) / 2


def follows(draws: np.ndarray, power: int, scale: float) -> bool:
    """χ² over 60 bins or single integers between ±3 scales."""
    reach = 3.0 * scale
    edges = np.linspace(-reach, reach, 61) if scale > 10 else np.arange(-math.ceil(reach) - 0.5, math.ceil(reach) + 1)
    expected = bins(power, scale, edges) * len(draws)
    observed = np.bincount(np.searchsorted(edges, draws), minlength=len(edges) + 1)
    assert expected.min() > 100
    return float(((observed - expected) ** 2 / expected).sum()) < chi2.isf(FAILURE, len(expected) - 1)


SCALES = [(1, 2.0), (1, 700.0), (1, 8.7e7), (2, 2.0), (2, 700.0), (2, 5000.0), (2, 8.7e7), (2, 2.0**50)]


@pytest.mark.parametrize(("power", "scale"), SCALES)
def test_noise_of_the_system_follows_its_law(power, scale):
    """χ² on 200,000 draws, and on their last four bits, which are even but for 1e-6 where scales are large."""
    noise = SystemNoise()
    draws = (noise.laplace if power == 1 else noise.gaussian)(scale, (400, 500))
    assert draws.shape == (400, 500) and draws.dtype == np.int64
    assert follows(draws.ravel(), power, scale)
    if scale > 100:
        ends = np.bincount(draws.ravel() & 15, minlength=16)
        assert float(((ends - 12_500) ** 2 / 12_500).sum()) < chi2.isf(FAILURE, 15)


class WithoutSign(Sampler):
    def draw(self, size):
        return np.abs(super().draw(size))


class BlocksAlone(Sampler):
    def draw(self, size):
        return super().draw(size) >> self._shift << self._shift


class SignedAt64Bits(Sampler):
    def _numbers(self, size):
        words = self._bits.words(size, 64).view(np.int64)
        return np.searchsorted(upper_ends(self)[:-1].view(np.int64), words, side="right")


class NumbersOf32Bits(Sampler):
    """As whoever indexes by the machine's own integers has them where these are of 32 bits."""

    def _numbers(self, size):
        return super()._numbers(size).astype(np.int32)


@pytest.mark.parametrize("bug", [WithoutSign, SignedAt64Bits])
@pytest.mark.parametrize(("power", "scale"), SCALES)
def test_wrong_noise_at_64_bits_is_seen_in_its_law(bug, power, scale):
    """The same χ² on 200,000 draws."""
    sampler = bug(power, scale, SystemBits(), widest_table=2.0**9)
    assert not follows(sampler.draw(200_000), power, scale)


@pytest.mark.parametrize("power", [1, 2])
def test_integers_of_32_bits_are_seen_at_large_scales_and_not_used(power):
    """The same χ² on 200,000 draws."""
    for kind, right in ((NumbersOf32Bits, False), (Sampler, True)):
        sampler = kind(power, 2.0**50, SystemBits(), widest_table=2.0**9)
        assert (sampler._numbers(10).dtype == np.int64) == right
        assert follows(sampler.draw(200_000), power, 2.0**50) == right


def test_noise_that_leaves_the_last_bits_alone_is_seen_in_them():
    """χ² on 200,000 draws."""
    draws = BlocksAlone(2, 8.7e7, SystemBits(), widest_table=2.0**9).draw(200_000)
    ends = np.bincount(draws & 15, minlength=16)
    assert float(((ends - 12_500) ** 2 / 12_500).sum()) > chi2.isf(FAILURE, 15)


@pytest.mark.parametrize("size", [0, 1, 7, 2**16 - 1, 2**16 + 1])
@pytest.mark.parametrize("scale", [3.0, 1e6])
def test_as_many_are_drawn_as_were_asked_for_and_afresh(size, scale):
    """Two draws of at least 2^16 − 1 numbers agree with probability below 2^−2^16."""
    draws = [SystemNoise().gaussian(scale, (size,)) for _ in range(2)]
    assert all(draw.shape == (size,) for draw in draws)
    assert size < 1000 or not np.array_equal(*draws)


@pytest.mark.parametrize("draw", [SystemNoise().gaussian, SystemNoise().laplace])
@pytest.mark.parametrize("scale", [1e-300, 5e-324, 1e-9])
def test_noise_of_next_to_no_scale_is_zero(draw, scale):
    """Another number has probability below e^{−10^9}."""
    assert not draw(scale, (1000,)).any()


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize(
    "scale",
    [0.0, -1.0, -math.inf, math.inf, math.nan, 2.0**51, 2**50 + 1, pytest.param(10**400, id="10^400"), np.float32(0)],
)
def test_a_scale_that_is_none_or_does_not_fit_64_bits_is_refused(power, scale):
    with pytest.raises(ConfigurationError):
        system_sampler(power, scale)
    with pytest.raises(ConfigurationError):
        (SystemNoise().laplace if power == 1 else SystemNoise().gaussian)(scale, (3,))


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("scale", [np.float32(700.5), np.float64(700.5), np.int64(700), 700, Fraction(1401, 2)])
def test_a_scale_may_be_any_real_number(power, scale):
    """The same χ² on 200,000 draws."""
    system_sampler.cache_clear()
    assert follows(system_sampler(power, scale).draw(200_000), power, float(scale))


class Reads(np.ndarray):
    """An array that keeps how many of its entries were read each time."""

    kept: list[int]

    def __getitem__(self, index):
        self.kept.append(np.size(index))
        return super().__getitem__(index).view(np.ndarray)


@pytest.mark.parametrize("scale", [0.3, 3.0, 500.0, 8.7e7])
def test_a_search_takes_the_same_steps_whatever_is_drawn(scale):
    sampler = Sampler(2, scale, SystemBits(), widest_table=2.0**11)
    ends = upper_ends(sampler)
    numbers, last = ends.tolist(), len(ends) - 1
    sampler._upper = sampler._upper.view(Reads)
    for words in (ends, ends[::-1], np.zeros_like(ends), np.full_like(ends, 2**64 - 1)):
        sampler._upper.kept = []
        found = sampler._upper_ends_up_to(words)
        assert found.tolist() == [min(bisect_right(numbers, word), last) for word in words.tolist()]
        assert sampler._upper.kept == [len(words)] * last.bit_length()


@pytest.mark.parametrize(("power", "scale"), [(1, 511.9), (2, 2047.9), (1, 512.0), (2, 2048.0), (2, 2.0**50)])
def test_more_than_64_bits_are_needed_as_seldom_as_stated(power, scale):
    sampler = system_sampler(power, scale)
    steps = zip(sampler._lower.tolist(), upper_ends(sampler).tolist(), strict=True)
    assert len(sampler._lower) < 2**16 and sum(high - low for low, high in steps) < 2**17


@pytest.mark.parametrize(("power", "scale"), [(1, 100.0), (2, 500.0), (2, 3e8)])
def test_the_tables_that_are_searched_are_the_enclosures_to_the_last_bit(power: int, scale: float) -> None:
    """Words of 64 bits, on which a conversion through floats would lose eleven bits."""
    sampler = Sampler(power, scale, SystemBits(), widest_table={1: 2.0**9, 2: 2.0**11}[power])
    lower, upper = sampler._tabled.distribution(64, sampler._zeros)
    assert sampler._lower.tolist() == lower and sampler._upper[: sampler._last].tolist() == upper[:-1]
    assert any(int(float(one)) != one for one in lower)
