"""Noisy class sums of one or several rounds, and the classifier that they are fitted to.

With b the sum of φ(x) ⊗ (e_y − 1/C) over n records, and M the sum of φφᵀ over the same records, M⁻¹b is the
least-squares estimate of Pr[y | x] − Pr[y] where φ has mean 0. Mean and M are estimated by the pool's own. In M's
eigenbasis, b is multiplied by λ/(λ² + λ + κ²) in a direction of eigenvalue λ: a Wiener filter. The λ beside κ² stands
for what the sample of records itself adds to the noise. κ is 3 times the noise on an entry; the factor, like
the other constants of the default, was chosen on records that were held out from the parties' own, never on a test set.
n is read from the sum's last entry, which carries the same noise. The constant entry of φ gives Pr[y] − 1/C.

**Rounds.** A later round asks for the sum G of φ(x) ⊗ (e_y − p(x)) under weights W that follow from the rounds before:
p(x) are the shares of multinomial logistic regression, softmax(Wᵀφ(x)). Every round gives its own Newton estimate B = G
+ h·M·W of what the weights should satisfy, where h = 1/2 bounds the curvature of softmax (Böhning 1992). The estimates
are averaged and filtered. The average of T estimates whose noise is σ√T has noise σ. So where noise rules, T rounds are
worth one. The weights of a round follow from an average in which the s-th estimate has weight s: it forgets the first
ones sooner, and its fixed point satisfies the records' own logistic regression, whatever the covariance of the pool is.
Where the records are four times those that the noise of all rounds needs, the last classifier follows from that average
too. Where they are less than half of those, weights would follow from noise: there are none, and the rounds are one
sum.

**The pool.** What the noise hides, the pool's own structure shows in part. After the last round, the classifier gives
every input of the pool a share in each class (`pool_shares.shares_in_classes`), where the classes are as frequent as
the sums say that they are among the records. The next classifier is fitted to the sums, to the extent that noise
leaves them trusted, and to these shares, where each input of the pool weighs as much as one record, and all of them at
most 0.3 of what the records weigh. It gives shares again; the third such classifier is the final one. With two classes
the filtered classifier of several rounds is the final one, and that of one round after one pass, whose shares are as
they are; the rarer class is then named more often (`pool_shares.threshold`). Where whole parties are protected, the
sums do not say how frequent classes are: with two classes the filtered classifier is the final one, with more the first
fit to the pool. All of this follows from released sums and public inputs.

**Without a pool.** Where the pool was drawn from the public schema (`data.drawn_pool`), it has no structure that tells
classes apart. The filtered classifier is the final one, and the moment M is corrected by the rounds themselves
(`PoolSpectrum.raised`). M·W is still wrong by much, and by less the later W is: every later round is under weights,
and the s-th estimate has weight s in the last average too.

References
----------
Wiener, "Extrapolation, interpolation, and smoothing of stationary time series", 1949.
Böhning, "Multinomial logistic regression algorithm", Annals of the Institute of Statistical Mathematics 1992.
Balog, Tolstikhin and Schölkopf, "Differentially private database release via kernel mean embeddings", ICML 2018.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.drawn_pool import DRAWN, drawn_by
from collegium.data.task import Task
from collegium.models.codes import Weights
from collegium.models.kernel_student import KernelStudent
from collegium.models.kernels import KernelSpec
from collegium.models.pool_shares import of_frequencies, shares_in_classes, threshold
from collegium.models.pool_spectrum import DROWNED, KAPPA, SHORT, PoolSpectrum
from collegium_accounting.mechanisms.class_sums import ONE, code_one, count_of_one
from collegium_accounting.units import IntArray

Floats = NDArray[np.float64]

PARTY_CONTRIBUTIONS = 3.0
"""What the vector of a whole party counts as in contributions: so much longer is it made than the mean of its records.

On held-out records of three sets it is 2.7 to 4.3 times as long; the filter works alike from 2 to 4.
"""
_FEWEST_RECORDS = 10.0
_CLEAR, _ENOUGH, _PLENTY = 0.25, 0.5, 4.0
"""Of what noise asks for, in contributions: for networks, weights, and a mean in which later rounds count more."""
_POOL_WEIGHT = 0.3
_PASSES = 3
_SURELY = 0.005
_FITS = 4
_FINE = 0.005


@dataclass(frozen=True, eq=False)
class Round:
    """One sum as it was released; public.

    Parameters
    ----------
    values : int64 ``[classes · dimensions + 1]``: class by class, then the count.
    noise : standard deviation of the noise on every entry.
    weights : those under which the sum was asked for; None where every class was as likely as another.
    """

    values: IntArray
    noise: float
    weights: Weights | None = None


@dataclass(frozen=True)
class _Link:
    """How scores become shares, and what a fit needs of that.

    Parameters
    ----------
    curvature : h, of which M is multiplied.
    ridge : what stands beside it.
    steps : of one fit to the pool.
    doubt : how many times what noise explains is taken off how frequent classes seem. Weights that name a wrong class
        everywhere would be taken back by a few rounds in part only.
    """

    curvature: float
    ridge: float
    steps: int
    doubt: float


_LINEAR = _Link(1.0, 1.0, 1, 1.0)
_LOGISTIC = _Link(0.5, 0.3, 4, 4.0)


@dataclass(frozen=True, eq=False)
class _Filtered:
    """What the rounds say in the pool's axes, and what noise leaves of it.

    Parameters
    ----------
    spectrum : of the pool.
    differing, coefficients : ``[landmarks, classes]``, in the axes.
    eigenvalues, trusted, filtered : ``[landmarks, 1]``.
    constant : by how much each class is named beyond what its inputs say, ``[classes]``; ``variance`` of the noise on
        it over all classes together.
    noise : on an entry of the mean of the rounds, in contributions.
    count : how many contributions a sum stands for.
    """

    spectrum: PoolSpectrum
    differing: Floats
    coefficients: Floats
    eigenvalues: Floats
    trusted: Floats
    filtered: Floats
    constant: Floats
    variance: float
    noise: float
    count: float

    def weights(self, coefficients: Floats) -> Floats:
        """``coefficients`` in the axes as weights of φ, ``[dimensions, classes]``."""
        own = self.spectrum.axes @ coefficients
        return np.concatenate([own, ((self.constant - self.spectrum.mean @ own) / SHORT)[None]])


@dataclass(frozen=True, eq=False)
class _Classes:
    """What the rounds say of classes, whatever weights they were asked for under.

    Parameters
    ----------
    differing : in the pool's axes, ``[landmarks, classes]``.
    prior : how frequent classes are, ``[classes]``: positive, and 1 in all.
    """

    differing: Floats
    prior: Floats


@dataclass(frozen=True, eq=False)
class NoisySums:
    """The class sums of some rounds under one map, as they were released; public.

    Parameters
    ----------
    kernel : the map under which records contributed.
    rounds : in their order.
    contributions : how many contributions a sum stands for, where that is public; read from the counts where None.
    drawn : whether the pool was drawn from the public schema, so that its structure says nothing of the records'.
    late : whether the s-th round counts s times in their mean, in place of all alike.
    of_inputs : the sum of the inputs themselves, by whose shares the map's inputs are drawn, while there is no round.
        Then the drawn inputs stand for the records.
    """

    kernel: KernelSpec
    rounds: tuple[Round, ...]
    contributions: float | None = None
    drawn: bool = False
    late: bool = False
    of_inputs: Round | None = None
    _found: list["OfPool"] = field(default_factory=list, init=False, repr=False)

    def of_pool(self, pool: NDArray[Any], task: Task, device: str = "cpu") -> "OfPool":
        """What these rounds say of the pool's inputs; computed once."""
        if not self._found:
            spectrum = PoolSpectrum.under(self.kernel, pool, task.inputs, device)
            sums = _or_drawn(self, spectrum, task)
            student, known, said = sums._fit(spectrum, task)
            clear = _has(sums, _CLEAR, spectrum, len(task.classes), sums._noise())
            self._found.append(OfPool(student, student.probabilities(pool), clear, sums, known, said))
        return self._found[0]

    def count(self, classes: int) -> float:
        """How many contributions a sum stands for."""
        if self.contributions is not None:
            return self.contributions
        counted = sum(share * float(one.values[-1]) for share, one in _shared(self.rounds)) / count_of_one(classes)
        return max(_FEWEST_RECORDS, counted)

    def _count(self, classes: int, link: _Link) -> float:
        """The `count` by which rounds are fitted: at least the deviation of the noise on it, where weights follow.

        So many could be there unseen, and with fewer the noise decides in any case.
        """
        if self.contributions is not None or link is _LINEAR:
            return self.count(classes)
        return max(self.count(classes), _noise_of(self.rounds) / count_of_one(classes))

    def classifier(
        self, pool: NDArray[Any], task: Task, device: str = "cpu", spectrum: PoolSpectrum | None = None
    ) -> KernelStudent:
        """The classifier that these rounds and the pool are fitted to.

        Parameters
        ----------
        pool : the one whose inputs are the landmarks.
        spectrum : of that pool under ``kernel``; computed where it is None.
        """
        found = spectrum or PoolSpectrum.under(self.kernel, pool, task.inputs, device)
        return _or_drawn(self, found, task)._fit(found, task)[0]

    def _fit(self, found: PoolSpectrum, task: Task) -> tuple[KernelStudent, _Filtered, _Classes]:
        """The classifier, and what it was fitted to."""
        classes = len(task.classes)
        if self.residual and not self.late and (self.drawn or _has(self, _PLENTY, found, classes, self._noise())):
            return replace(self, late=True)._fit(found, task)
        known = self._filtered(self._of_records(found, classes) if self.drawn else found, classes, self._link)
        said = self._of_classes(known)
        of_records = self.contributions is None
        # A party weights its classes by the roots of their numbers, so that its sums do not say how frequent they are.
        # With two classes, more passes only make the shares surer.
        matched = of_records and classes > 2
        passes = _PASSES if matched else int((of_records and not self.residual) or classes > 2)
        weights = known.weights(known.coefficients)
        if passes and not self.drawn:
            weights = _fitted_to_pool(known, said, self._link, passes, matched=matched)
        if classes == 2 and of_records and not self.drawn:
            lead = np.diff(found.scores(weights))[:, 0]
            moved = threshold(lead, float(said.prior[1]), known.variance / classes)
            weights[-1] -= np.array([-0.5, 0.5]) * moved / SHORT
        return KernelStudent(task, found.kernel, weights, self.residual, drawn=self.drawn), known, said

    def next_weights(
        self, spectrum: PoolSpectrum, classes: int, rounds: int, noise: float | None = None
    ) -> Weights | None:
        """Those under which a further one of so many ``rounds`` is asked for: from the filtered mean of the estimates.

        None where the noise of all rounds would leave too little of them, unless the pool was drawn. ``noise`` is what
        an entry of the further rounds will have; that of the last one where it is None.
        """
        further = [Round(self.rounds[-1].values, noise or self.rounds[-1].noise)] * (rounds - len(self.rounds))
        noise = _noise_of([*self.rounds, *further])
        if not self.drawn and not _has(self, _ENOUGH, spectrum, classes, noise):
            return None
        late = replace(self, late=True)
        found = late._of_records(spectrum, classes) if self.drawn else spectrum
        known = late._filtered(found, classes, _LOGISTIC)
        return Weights.of(known.weights(known.coefficients))

    @property
    def residual(self) -> bool:
        """Whether a round was asked for under weights."""
        return any(one.weights is not None for one in self.rounds)

    @property
    def _link(self) -> _Link:
        return _LOGISTIC if self.residual else _LINEAR

    def _noise(self) -> float:
        """Standard deviation of the noise on an entry of the mean of the rounds, in the units of the sums."""
        return _noise_of(self.rounds, self.late)

    def _mean(self, spectrum: PoolSpectrum, classes: int, of_weights: Callable[[Floats], Floats]) -> Floats:
        """The mean over rounds of the sum, in contributions, and of what ``of_weights`` adds to it."""
        mean = np.zeros((len(spectrum.mean) + 1, classes))
        for share, one in _shared(self.rounds, self.late):
            mean += share * _in_contributions(one, classes)
            if one.weights is not None:
                mean += share * of_weights(one.weights.values)
        return mean

    def class_sums(self, spectrum: PoolSpectrum, classes: int) -> Floats:
        """The mean over rounds of the sum of φ ⊗ (e_y − 1/C), in contributions, ``[dimensions, classes]``.

        To later rounds is added what the pool says that their weights took off.
        """
        count = self._count(classes, self._link)

        def taken_off(weights: Floats) -> Floats:
            return count * spectrum.sum_of(_softmax(spectrum.scores(weights)) - 1.0 / classes)

        return self._mean(spectrum, classes, taken_off)

    def noise(self, classes: int) -> float:
        """Standard deviation of the noise on an entry of the mean of the rounds, in contributions."""
        return self._noise() / (ONE * code_one(classes) * classes)

    def _of_records(self, spectrum: PoolSpectrum, classes: int) -> PoolSpectrum:
        """The spectrum of a drawn pool, corrected by what later rounds show of the records."""
        first, *later = self.rounds
        known = [(one, one.weights.values) for one in later if one.weights is not None]
        if not known:
            return spectrum
        counted = _LOGISTIC.curvature * self._count(classes, _LOGISTIC)
        fell = [_in_contributions(first, classes) - _in_contributions(one, classes) for one, _ in known]
        noise = float(np.mean([first.noise**2 + one.noise**2 for one, _ in known]))
        variance = noise * (1.0 - 1.0 / classes) / (ONE * code_one(classes) * classes * counted) ** 2
        weights = np.concatenate([own for _, own in known], axis=1)
        return spectrum.raised(weights, np.concatenate(fell, axis=1) / counted, variance)

    def _filtered(self, spectrum: PoolSpectrum, classes: int, link: _Link) -> _Filtered:
        count, noise = self._count(classes, link), self.noise(classes)
        estimate = self._mean(
            spectrum, classes, lambda weights: link.curvature * count * spectrum.moment_times(weights)
        )
        counted = SHORT * count  # what a class sums in the constant entry, if all contributions are of it
        constant, variance = _less_noise(estimate[-1] / counted, noise / counted, link.doubt)
        differing = spectrum.axes.T @ (estimate[:-1] - count * np.outer(spectrum.mean, constant))
        eigenvalues = (spectrum.eigenvalues * count)[:, None]
        trusted = eigenvalues / (eigenvalues + (KAPPA * noise) ** 2)
        filtered = trusted / (trusted * link.curvature * eigenvalues + link.ridge)
        return _Filtered(
            spectrum,
            differing,
            filtered * differing,
            eigenvalues,
            trusted,
            filtered,
            constant / link.curvature,
            variance,
            noise,
            count,
        )

    def _of_classes(self, known: _Filtered) -> _Classes:
        """Of the sums of φ ⊗ (e_y − 1/C): of later rounds less what the pool says that their weights took off."""
        classes, spectrum, differing, frequent = len(known.constant), known.spectrum, known.differing, known.constant
        if self.residual:
            count, sums = known.count, self.class_sums(spectrum, classes)
            frequent, _ = _less_noise(sums[-1] / (SHORT * count), known.noise / (SHORT * count))
            differing = spectrum.axes.T @ (sums[:-1] - count * np.outer(spectrum.mean, frequent))
        prior = np.maximum(frequent + 1.0 / classes, 0.1 / classes)
        return _Classes(differing, np.asarray(prior / prior.sum()))


def _or_drawn(sums: NoisySums, spectrum: PoolSpectrum, task: Task) -> NoisySums:
    """The sums themselves; where there are no rounds yet, what the drawn inputs with their classes would add up to."""
    if sums.of_inputs is None or sums.kernel.shares is None:
        return sums
    classes = len(task.classes)
    _, labels = drawn_by(sums.kernel.shares, task.inputs)
    drawn = np.eye(classes)[labels] - 1.0 / classes if len(labels) else np.zeros((DRAWN, classes))
    one = ONE * code_one(classes) * classes * max(sums.of_inputs.values[-1] / count_of_one(classes), 1.0)
    values = np.append(np.rint(spectrum.sum_of(drawn).T * one), sums.of_inputs.values[-1]).astype(np.int64)
    return replace(sums, rounds=(Round(values, sums.of_inputs.noise),), of_inputs=None)


def added_up(parts: Sequence[NoisySums]) -> NoisySums:
    """The rounds of all ``parts``, which were asked for under the same map and weights, added up."""
    rounds = []
    for same in zip(*(part.rounds for part in parts), strict=True):
        values = np.asarray(np.sum([one.values for one in same], axis=0, dtype=np.int64))
        rounds.append(Round(values, math.hypot(*(one.noise for one in same)), same[0].weights))
    counted = [part.contributions for part in parts if part.contributions is not None]
    return NoisySums(parts[0].kernel, tuple(rounds), sum(counted) if counted else None, parts[0].drawn)


def _has(sums: NoisySums, times: float, spectrum: PoolSpectrum, classes: int, noise: float) -> bool:
    """Whether there are so many times the contributions that a sum with this noise needs."""
    return sums.count(classes) >= times * spectrum.contributions_needed(noise, classes)


def _shared(rounds: Sequence[Round], late: bool = False) -> list[tuple[float, Round]]:
    """Each round with its part of the mean; these add up to 1. A round with less noise counts for more."""
    shares = [(s if late else 1) / max(one.noise, 1e-9) ** 2 for s, one in enumerate(rounds, 1)]
    return [(share / sum(shares), one) for share, one in zip(shares, rounds, strict=True)]


def _noise_of(rounds: Sequence[Round], late: bool = False) -> float:
    """Standard deviation of the noise on an entry of the mean of these rounds, in the units of the sums."""
    return math.hypot(*(share * one.noise for share, one in _shared(rounds, late)))


def _fitted_to_pool(known: _Filtered, said: _Classes, link: _Link, passes: int, *, matched: bool) -> Floats:
    """Weights that fit the rounds and the shares that the pool's inputs have by them, after so many passes."""
    spectrum, classes = known.spectrum, len(known.constant)
    count, of_axes = known.count, known.coefficients
    # How well the scores of records agree with their classes, less what the noise itself adds to that.
    by_noise = known.noise**2 * (classes - 1) * float(known.filtered.sum())
    agreement = (float((of_axes * said.differing).sum()) - by_noise) / count
    weight = min(len(spectrum.vectors) / count, _POOL_WEIGHT)
    for _ in range(passes):
        scores = spectrum.scores(known.weights(of_axes)) - known.constant
        shares = shares_in_classes(scores, said.prior, agreement)
        shares = of_frequencies(shares, said.prior) if matched else shares
        for _ in range(link.steps):
            pull, own = shares - shares.mean(axis=0), np.zeros_like(of_axes)
            if link is _LOGISTIC:
                named = _softmax(spectrum.scores(known.weights(of_axes)))
                pull, own = pull - (named - named.mean(axis=0)), link.curvature * known.eigenvalues * of_axes
            learned = weight * (count * (spectrum.axes.T @ spectrum.sum_of(pull)[:-1]) + own)
            curved = (known.trusted + weight) * link.curvature * known.eigenvalues + link.ridge
            of_axes = (known.trusted * known.differing + learned) / curved
    return known.weights(of_axes)


@dataclass(frozen=True, eq=False)
class OfPool:
    """What rounds of class sums say of a pool's inputs.

    Parameters
    ----------
    student : the classifier.
    probabilities : by it, ``[inputs, classes]``.
    clear : whether networks may learn from these. Where the sum stands for less than a quarter of the contributions
        that it needs (`PoolSpectrum.contributions_needed`), so many labels are wrong that features learned from them
        tell less than the same sum taken once more.
    """

    student: KernelStudent
    probabilities: Floats
    clear: bool
    _sums: NoisySums
    _known: _Filtered
    _said: _Classes

    @property
    def spectrum(self) -> PoolSpectrum:
        """Of the pool, under the map of the sums."""
        return self._known.spectrum

    @property
    def drowned(self) -> tuple[int, int] | None:
        """How many records the sums count, and up to how many noise decides; None where there are more.

        None too where whole parties are protected: the sums do not count their records.
        """
        classes, sums = len(self.student.task.classes), self._sums
        count, needed = sums.count(classes), self.spectrum.contributions_needed(sums._noise(), classes)
        few = sums.contributions is None and DROWNED * count < needed
        return (round(count), int(needed // DROWNED)) if few else None

    def worse(self, probabilities: Floats) -> bool:
        """Whether the records' classes surely agree less with these ``probabilities`` than with the student's.

        What labels of the pool's inputs have in common with φ is fitted by least squares. How far the records' classes
        follow that fit, as the sums say, is compared with how far the labels themselves do. Errors without a pattern
        in φ are not seen. The student was fitted to the noise as well, so what it owes to that is taken off: fits to
        sums with further noise show how much. Surely: by half a hundredth, and by twice the deviation of what the noise
        does to the difference.
        """
        spectrum, known, classes = self._known.spectrum, self._known, probabilities.shape[1]
        owed, sums = [], self._sums
        for number in range(_FITS):
            draws = np.random.default_rng([number, 0x6E])
            noised = replace(sums, rounds=tuple(_with_noise(one, draws) for one in sums.rounds))
            student, _, said = noised._fit(spectrum, self.student.task)
            labels = spectrum.scores(student.coefficients).argmax(axis=1)
            moved = said.differing - self._said.differing
            owed.append(float((self._follows(labels, classes) * moved).sum()))
        every = -(-len(probabilities) // len(spectrum.vectors))
        own, other = (
            self._follows(one[::every].argmax(axis=1), classes) for one in (self.probabilities, probabilities)
        )
        less = float(((own - other) * self._said.differing).sum()) - float(np.mean(owed))
        return less > _SURELY + 2.0 * known.noise * float(np.linalg.norm(own - other))

    def _follows(self, labels: NDArray[np.int64], classes: int) -> Floats:
        """What an entry of the sum, along the axes, adds to how far the records' classes follow these labels."""
        spectrum, known = self._known.spectrum, self._known
        codes = np.eye(classes)[labels]
        common = spectrum.axes.T @ spectrum.sum_of(codes - codes.mean(axis=0))[:-1]
        fitted = common / (spectrum.eigenvalues[:, None] + _FINE)
        return np.asarray(fitted / max(known.count * float((fitted * common).sum()), 1e-300))


def _with_noise(one: Round, draws: np.random.Generator) -> Round:
    """The round with noise once more, but for its count."""
    noise = np.rint(draws.normal(0.0, one.noise, len(one.values))).astype(np.int64)
    noise[-1] = 0
    return replace(one, values=one.values + noise)


def _in_contributions(one: Round, classes: int) -> Floats:
    """The sum of a round in contributions, ``[dimensions, classes]``."""
    sums = one.values[:-1].reshape(classes, -1).T / (ONE * code_one(classes) * classes)
    return np.asarray(sums - sums.mean(axis=1, keepdims=True))  # codes add up to 0 over the classes, noise not


def _less_noise(values: Floats, noise: float, doubt: float = 1.0) -> tuple[Floats, float]:
    """``values`` less as much of them as noise explains (James and Stein 1961), and the variance of that noise.

    Where noise hides how frequent classes are, it would decide the class of every input.
    """
    variance = len(values) * noise**2
    return values * max(0.0, 1.0 - doubt * variance / max(float(values @ values), 1e-300)), variance


def _softmax(scores: Floats) -> Floats:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
