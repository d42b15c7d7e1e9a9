"""Whole numbers that enclose exponentials and distribution functions, by arithmetic on Python's integers alone.

An enclosure at b bits of a real number y is a pair of integers with ``low ≤ 2^b·y ≤ high``. Every operation rounds its
lower end down and its upper end up, so that an enclosure holds whatever the precision is; a low precision only makes it
wide. No floating point occurs, and the scale of the noise is the rational number that a double is.
"""

from dataclasses import dataclass
from fractions import Fraction


def exp_minus(t: Fraction, bits: int, guard_bits: int = 16) -> tuple[int, int]:
    """An enclosure of e^{−t}, t ≥ 0, whose ends are at most 2 apart; with fewer than 16 guard bits they may be wider.

    With h halvings t/2^h < 1/2, so that each term of the series Σ (t/2^h)^n/n! is at most half of the one before it;
    e^{−t} is the reciprocal of its sum, squared h times.
    """
    halvings = max(0, t.numerator.bit_length() - t.denominator.bit_length() + 2)
    precision = bits + 2 * halvings + guard_bits
    whole, parts = t.numerator << precision, t.denominator << halvings
    square = 1 << 2 * precision
    low = square // _series(-(-whole // parts), precision, rounded_up=True)
    high = -(-square // _series(whole // parts, precision, rounded_up=False))
    for _ in range(halvings):
        low, high = low * low >> precision, -(-high * high >> precision)
    return low >> precision - bits, -(-high >> precision - bits)


def _series(x: int, precision: int, *, rounded_up: bool) -> int:
    """2^p·Σ_n (x/2^p)^n/n! for x/2^p ≤ 1/2 with p = ``precision``, rounded down or up."""
    total, n = 0, 0
    term = 1 << precision
    while term > rounded_up:
        total += term
        n += 1
        parts = n << precision
        term = (term * x + rounded_up * (parts - 1)) // parts
    return total + 2 * term * rounded_up  # a term and all that follow it are at most twice the term


@dataclass(frozen=True)
class Mass:
    """The law on the integers with mass ∝ e^{−E(|x|)}, E(x) = x^power/unit.

    Parameters
    ----------
    power : 1 for discrete Laplace noise, 2 for a discrete Gaussian.
    unit : the scale of Laplace noise; 2σ² of a Gaussian.
    guard_bits : beyond the bits asked for; a table of n entries loses fewer than 3·log2(n) of them to rounding.
    """

    power: int
    unit: Fraction
    guard_bits: int = 64

    def exponent(self, x: int) -> Fraction:
        """E(x)."""
        return Fraction(x**self.power) / self.unit

    def distribution(self, bits: int, zeros: int) -> tuple[list[int], list[int]]:
        """Enclosures of the distribution function F at ``bits`` bits, in the order 0, 1, −1, 2, −2, …

        Parameters
        ----------
        bits : int
            Of the enclosures; what is left beyond the last of them is less than 2^−bits.
        zeros : int
            1, or 2 to count 0 twice, as +0 and −0.

        Returns
        -------
        (lower, upper), one entry for each integer: lower ≤ 2^bits·F ≤ upper, both ascending. The last upper one alone
        is 2^bits.

        Notes
        -----
        Masses follow from one another: with ρ_x = e^{−E(x+1) + E(x)} they are w_{x+1} = w_x·ρ_x, and
        ρ_{x+1} = ρ_x·e^{−E(2) + 2E(1)}, as E(x + 1) − E(x) is linear in x. ρ_x never grows, so the masses from x on add
        up to at most w_x/(1 − ρ_x).
        """
        precision = bits + self.guard_bits
        one = 1 << precision
        first = self.exponent(1)
        bend_low, bend_high = exp_minus(self.exponent(2) - 2 * first, precision)
        ratio_low, ratio_high = exp_minus(first, precision)
        mass_low = mass_high = one
        sum_low = sum_high = 0
        sums_low, sums_high = [], []
        copies = zeros
        while True:
            for _ in range(copies):
                sum_low += mass_low
                sum_high += mass_high
                sums_low.append(sum_low)
                sums_high.append(sum_high)
            mass_low, mass_high = mass_low * ratio_low >> precision, -(-mass_high * ratio_high >> precision)
            ratio_low, ratio_high = ratio_low * bend_low >> precision, -(-ratio_high * bend_high >> precision)
            copies = 2
            rest_high = -(-2 * mass_high * one // (one - ratio_high))
            if rest_high << bits < sum_low:
                break
        return _shares(sums_low, sums_high, rest_high, bits)


def _shares(sums_low: list[int], sums_high: list[int], rest_high: int, bits: int) -> tuple[list[int], list[int]]:
    """Sums of masses over the sum of all, at most ``rest_high`` more than the last sum; see `Mass.distribution`."""
    whole = 1 << bits
    all_low, all_high = sums_low[-1], sums_high[-1] + rest_high
    upper = [min(whole, -(-(one << bits) // all_low)) for one in sums_high]
    kept = upper.index(whole) + 1
    return [(one << bits) // all_high for one in sums_low[:kept]], upper[:kept]
