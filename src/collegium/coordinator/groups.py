"""Which group of parties spoils the result: each compared with the others, and judged by what it does for them.

Two things are asked of a group g, at no ε, as all follows from released sums.

*Does it differ?* Honest groups' sums point to the same side but for noise and chance. Of g's sum and that of all other
groups, let m stand out of its noise more than l, and a ≥ 0 be the multiple of m that lies nearest to l. l − a·m is
measured along the axes of the pool's spectrum, weighted by how far they can tell anything beyond the noise. Where the
sums differ in nothing but their size, that is a weighted sum of squares of known variances; an honest group is above
the limit with probability `_BY_CHANCE`.

*Are the others better off without it?* With W a classifier's coefficients, Σ φ(x)ᵀW(e_y − 1/C) = ⟨W, S⟩ says how well
it fits the records behind a sum S, with noise of |W|·ν. Every other group j judges two classifiers without its own sum:
one of all others, and one of all others but g. Where g's records help, the first fits j's records better.

g is named where it differs and every judge of two (more than half of several) finds the second better by `_BETTER`
standard deviations; and, whether or not it differs, where they find that by `_FAR_BETTER`. A group that lies is one
judge, and names nobody alone. Institutions that honestly differ, and help, stay.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from collegium.coordinator.journal import Part
from collegium.errors import Contradiction
from collegium.models.kernel_student import KernelStudent
from collegium.models.noisy_sums import NoisySums, added_up
from collegium.models.pool_spectrum import PoolSpectrum
from collegium.protocol.secure_sum.groups import FEWEST_GROUPS
from collegium_accounting.renyi import FloatArray

Fit = Callable[[NoisySums], KernelStudent]
"""The classifier of sums."""

_BETTER, _FAR_BETTER = 1.0, 3.5
"""Standard deviations by which judges find it better without a group, beside another sign and alone."""
_BY_CHANCE = 0.003
"""With what probability a group of equal honest institutions differs: with three groups, one does in 100 runs."""
_BY_CHANCE_ALONE = 1e-5
"""The same of two sums of the same records; how chance draws records is an approximation."""
_BY_CHANCE_AGAIN, _HALF = 1e-3, 0.5
"""The same of what a group says in several rounds; and how long the difference must be, in units of the sums."""
_MISSED = 1e-12
"""What a probability here may be too large by."""
LEFT_OUT = "are left out, as one of them spoils the result (ask each of them about its classes, units and columns)"


class Suspected(NamedTuple):
    """A group that is to be left out.

    Parameters
    ----------
    group : its number.
    deviations : by how many standard deviations the classifier without it fits the others' records better, by the
        judge that counts.
    """

    group: int
    deviations: float


def suspicion(groups: Sequence[NoisySums], fit: Fit, spectrum: PoolSpectrum, classes: int) -> Suspected | None:
    """Find the group without which the others' records are told better.

    Parameters
    ----------
    groups : the rounds of each, under one kernel map and the same weights.
    spectrum : of the pool under that map.
    """
    numbers = range(len(groups))
    if len(groups) < FEWEST_GROUPS:
        return None
    fitted: dict[tuple[int, ...], FloatArray] = {}
    for size in (len(groups) - 2, len(groups) - 1):
        for chosen in combinations(numbers, size):
            fitted[chosen] = _direction(fit(added_up([groups[number] for number in chosen])), spectrum)
    told_by = [_Told.of(group, spectrum, classes) for group in groups]
    better = []
    for accused in numbers:
        said = []
        for judge in numbers:
            if judge != accused:
                others = tuple(number for number in numbers if number != judge)
                without = tuple(number for number in others if number != accused)
                change = fitted[without] - fitted[others]
                said.append(_better(told_by[judge], change, spectrum))
        # The lesser of two judges, and of more the one that fewer than half are below.
        better.append(sorted(said)[(len(said) - 1) // 2])
    chance = [
        _chance(told_by[one], [told_by[other] for other in numbers if other != one], spectrum, classes)
        for one in numbers
    ]
    told = [one for one in numbers if better[one] > _FAR_BETTER or (better[one] > _BETTER and chance[one] < _BY_CHANCE)]
    return max((Suspected(one, better[one]) for one in told), key=lambda one: one.deviations, default=None)


def differ(one: NoisySums, other: NoisySums, spectrum: PoolSpectrum, classes: int) -> bool:
    """Whether two sums of the same records, under one map, differ by more than noise and chance explain.

    They may for another reason: of a later round the pool tells what its weights took off, and its inputs may lie
    otherwise than the records.
    """
    told = _Told.of(one, spectrum, classes), _Told.of(other, spectrum, classes)
    return _chance(told[0], told[1:], spectrum, classes) < _BY_CHANCE_ALONE


def changed(before: Sequence[NoisySums], after: Sequence[NoisySums], spectrum: PoolSpectrum, classes: int) -> list[int]:
    """The groups that say something else of their records than they did, as no other does.

    What a group says of one record on average in later rounds, less what it said in the first, is compared with the
    same of each other group: how wrongly the pool tells what weights took off is much the same for all of them. An
    honest group is above the limit with probability `_BY_CHANCE_AGAIN` at most; and as groups' records may lie
    otherwise, the difference must be half as long as what they say.

    Parameters
    ----------
    before, after : of each group, its first round and the mean of later ones, under one map.
    """
    said = [_PerRecord.of(*sums, spectrum, classes) for sums in zip(before, after, strict=True)]
    return [
        number
        for number, own in enumerate(said)
        if all(own.differs(one, spectrum.eigenvalues, classes) for one in said if one is not own)
    ]


@dataclass(frozen=True)
class _PerRecord:
    """What a group says of one record on average in two rounds, as `_Told` has it; ``count`` is of its records.

    One count serves for both rounds: with one of each, the noise of the counts would be a difference.
    """

    rounds: tuple["_Told", "_Told"]
    count: float

    @classmethod
    def of(cls, before: NoisySums, after: NoisySums, spectrum: PoolSpectrum, classes: int) -> "_PerRecord":
        told = [_Told.of(sums, spectrum, classes) for sums in (before, after)]
        count = sum(one.count / one.noise**2 for one in told) / sum(one.noise**-2 for one in told)
        first, second = (_Told(one.along / count, one.noise / count, 1.0) for one in told)
        return cls((first, second), count)

    @property
    def change(self) -> FloatArray:
        first, second = self.rounds
        return second.along - first.along

    def differs(self, other: "_PerRecord", eigenvalues: FloatArray, classes: int) -> bool:
        rounds, change = (*self.rounds, *other.rounds), self.change - other.change
        variance = sum(one.noise**2 for one in rounds)
        weights = eigenvalues / (eigenvalues + 9.0 * variance * min(self.count, other.count))
        drawn = _drawn(eigenvalues, classes) * (1.0 / self.count + 1.0 / other.count)
        longest = max(_squares(one.along, weights, classes, one.noise**2) for one in rounds)
        chance = _beyond((change**2).sum(axis=1) / (variance + drawn), weights, classes)
        return chance < _BY_CHANCE_AGAIN and _squares(change, weights, classes, variance) > _HALF**2 * longest


def _direction(student: KernelStudent, spectrum: PoolSpectrum) -> FloatArray:
    """The classifier's coefficients in the spectrum's axes, for scores of spread 1 over the pool; without constants."""
    coefficients = spectrum.axes.T @ student.coefficients[:-1]
    coefficients = coefficients - coefficients.mean(axis=1, keepdims=True)
    spread = math.sqrt(float((spectrum.eigenvalues[:, None] * coefficients**2).sum()))
    return np.asarray(coefficients / max(spread, 1e-300))


@dataclass(frozen=True, eq=False)
class _Told:
    """What a group's rounds tell, in contributions: `_along` the axes, with ``noise`` on every entry."""

    along: FloatArray
    noise: float
    count: float

    @classmethod
    def of(cls, group: NoisySums, spectrum: PoolSpectrum, classes: int) -> "_Told":
        along = _along(group.class_sums(spectrum, classes)[:-1], spectrum)
        return cls(along, group.noise(classes), group.count(classes))


def _along(sums: FloatArray, spectrum: PoolSpectrum) -> FloatArray:
    """Sums along the axes, ``[axes, classes]``, less what lies along the pool's mean.

    There the sums say how frequent classes are, which differs among honest institutions.
    """
    own, mean = spectrum.axes.T @ sums, spectrum.axes.T @ spectrum.mean
    return np.asarray(own - np.outer(mean, mean @ own) / max(float(mean @ mean), 1e-300))


def _better(judge: _Told, change: FloatArray, spectrum: PoolSpectrum) -> float:
    """By how many standard deviations a ``change`` of the classifier fits the judge's records better."""
    noise = judge.noise**2 * float((change**2).sum())
    drawn = judge.count * float((spectrum.eigenvalues[:, None] * change**2).sum())
    return float((change * judge.along).sum()) / math.sqrt(max(noise + drawn, 1e-300))


def _chance(own: _Told, others: Sequence[_Told], spectrum: PoolSpectrum, classes: int) -> float:
    """With what probability an honest group differs from all others as much as ``own`` does."""
    sides = []
    for side in ([own], others):
        along = np.sum([one.along for one in side], axis=0)
        variance = sum(one.noise**2 for one in side)
        sides.append((float((along**2).sum()) / variance, along, variance, sum(one.count for one in side)))
    (_, less, less_noise, less_count), (_, more, more_noise, more_count) = sorted(sides, key=lambda side: side[0])
    drawn = _drawn(spectrum.eigenvalues, classes)
    weights = spectrum.eigenvalues * less_count / (spectrum.eigenvalues * less_count + 9.0 * less_noise)
    weighted = weights[:, None]
    # The square of m holds its noise: without that, a is not drawn towards 0.
    square = max(_squares(more, weights, classes, more_noise), 0.1 * _squares(more, weights, classes), 1e-300)
    multiple = max(0.0, float((weighted * less * more).sum()) / square)
    spread_of_each = less_noise + drawn * less_count + multiple**2 * (more_noise + drawn * more_count)
    return _beyond(((less - multiple * more) ** 2).sum(axis=1) / spread_of_each, weights, classes)


def _drawn(eigenvalues: FloatArray, classes: int) -> FloatArray:
    """The variance that drawing one record gives an entry along each axis."""
    return eigenvalues * (1.0 - 1.0 / classes) / classes


def _squares(along: FloatArray, weights: FloatArray, classes: int, noise: float = 0.0) -> float:
    """The weighted squares of a sum, ``[axes, classes]``, less what noise of this variance gives them."""
    return float((weights[:, None] * along**2).sum()) - (classes - 1.0) * noise * float(weights.sum())


def _beyond(squares: FloatArray, weights: FloatArray, classes: int) -> float:
    """With what probability a weighted sum of ``squares`` is so large, ``[axes]``, in units of their own variance.

    Each is χ² with one degree of freedom less than there are classes. The law of their sum follows from its
    characteristic function (Imhof 1961), summed at steps (Davies 1980) so short that what is above 1/step too has the
    probability `_MISSED` at most (Chernoff's bound), and as long as terms are larger; what may lack is added.
    """
    degrees, largest = classes - 1.0, max(float(weights.max()), 1e-300)
    shares, found = weights / largest, float((weights * squares).sum()) / largest
    longest = -4.0 * math.log(_MISSED) - 2.0 * degrees * float(np.log1p(-shares / 2.0).sum())
    if found >= longest:
        return _MISSED
    step, chance, first, length = 2.0 * math.pi / longest, 0.5, 0, 1.0
    while length > _MISSED and first < 2**18:
        places = first + np.arange(256) + 0.5
        turned = 2.0 * step * places[:, None] * shares
        lengths = np.exp(-degrees / 4.0 * np.log1p(turned**2).sum(axis=1))
        angles = degrees / 2.0 * np.arctan(turned).sum(axis=1) - step * places * found
        chance += float((lengths * np.sin(angles) / (math.pi * places)).sum())
        first, length = first + 256, float(lengths[-1])
    return min(1.0, max(0.0, chance) + length + _MISSED)


@dataclass(frozen=True)
class Verdict:
    """Which group is left out, and why.

    Parameters
    ----------
    members : the parties of each group.
    left_out : the number of a group; None where all stay.
    """

    members: tuple[tuple[str, ...], ...]
    left_out: int | None = None
    why: str = ""

    @property
    def spoilt(self) -> frozenset[str]:
        """The parties that are left out."""
        return frozenset() if self.left_out is None else frozenset(self.members[self.left_out])

    def kept(self, groups: Sequence[Part]) -> tuple[Part, ...]:
        """The groups without a party that is left out.

        Raises Contradiction where all were summed together.
        """
        kept = tuple(group for group in groups if self.spoilt.isdisjoint(group.parties))
        if not kept:
            raise Contradiction(f"this sum was taken of all parties together: {self.why}")
        return kept


def judged(groups: Sequence[Part], check: Callable[[Part], None], suspected: Callable[[], Suspected | None]) -> Verdict:
    """Leave out the one group whose sum no records give, or that the others' sums name.

    Parameters
    ----------
    check : raises Contradiction for a sum that no records give.
    suspected : called where all groups pass.

    Raises
    ------
    Contradiction
        Where several groups' sums contradict themselves, or there are no groups to go on with.
    """
    members = tuple(group.parties for group in groups)
    if (false := contradicted(groups, check)) is not None:
        number, spoilt = false
        return Verdict(members, number, f"{', '.join(members[number])} {LEFT_OUT}: {spoilt.why}")
    if (found := suspected()) is None:
        return Verdict(members)
    told = f"the records of all other groups are told better without them, by {found.deviations:.1f} standard errors"
    return Verdict(members, found.group, f"{', '.join(members[found.group])} {LEFT_OUT}: {told}")


def contradicted(groups: Sequence[Part], check: Callable[[Part], None]) -> tuple[int, Contradiction] | None:
    """The one group for which ``check`` raises; its error where there are several, or no groups to go on with."""
    false = dict[int, Contradiction]()
    for number, group in enumerate(groups):
        try:
            check(group)
        except Contradiction as error:
            false[number] = error
    if false and (len(groups) < FEWEST_GROUPS or len(false) > 1):
        raise next(iter(false.values()))
    return next(iter(false.items()), None)
