"""Private evaluation: how often a classifier is right on the parties' own records, as one noisy vector of counts.

Every record adds to `Layout.parts` cells for each of K candidates, whatever the classifiers are: somebody who chooses
them to learn of a record moves no more than these cells.

* Two classes: one cell, by the true class and the bin of the second class's probability. A bin ends at 1/2, so the
  cells say how often each class is predicted.
* More classes: one cell by true and predicted class, one by the true class and the bin of its probability, and one by
  another class and the bin of its probability. That other class is drawn by a hash of the record alone.

A record adds ONE to each cell, a person with g records ⌊ONE/g⌋ for each of them, and under the unit party a party with
n records ⌊ONE/n⌋ for each. So the vector of a unit has L1 norm at most ONE in each part of each candidate, hence L2
norm at most ONE·√(parts·K), all entries at least 0. Add-remove moves the sum by that; replace by at most √2 times as
much, since |a − b|² ≤ |a|² + |b|² where no entry is below 0. Everything is in whole numbers.

``sigma`` is the standard deviation of the noise on every count, in records. The whole vector is released and charged.
"""

import hashlib
import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigurationError
from collegium.limits import MAX_CANDIDATES, MAX_CLASSES
from collegium.privacy.accounting.game.laws import Law
from collegium.privacy.mechanisms.base import AnsweredBy, Mechanism, Noise, SumMode
from collegium.privacy.mechanisms.gaussian_stage import GaussianStage
from collegium.privacy.mechanisms.noised import SOURCE, HonestSurvivors, NoisedByParties, NoisedRelease
from collegium.privacy.mechanisms.parameters import Parameter
from collegium.privacy.mechanisms.registry import register
from collegium.privacy.noise.distributed import NoiseShare
from collegium.privacy.renyi import FloatArray, RenyiCurve
from collegium.privacy.units import Adjacency, IntArray, Unit, checked_counts, winners

ONE = 2**20
"""What one record, or one person, adds to a cell."""

EDGES = (0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99)
"""Where a bin of a probability ends; the end belongs to it."""
BINS = len(EDGES) + 1
MIDDLES = (np.array([0.0, *EDGES]) + np.array([*EDGES, 1.0])) / 2.0


@dataclass(frozen=True)
class Layout:
    """The cells of one candidate: which a record adds to, and what each counts."""

    classes: int

    def __post_init__(self) -> None:
        if not 2 <= self.classes <= MAX_CLASSES:
            raise ConfigurationError(f"an evaluation needs 2 to {MAX_CLASSES} classes; got {self.classes}")

    @property
    def parts(self) -> int:
        """The cells that one record adds to."""
        return 1 if self.classes == 2 else 3

    @property
    def length(self) -> int:
        """The number of cells."""
        return 2 * BINS if self.classes == 2 else self.classes * (self.classes + 2 * BINS)

    @property
    def rest(self) -> int:
        """How many records of other classes a counted one stands for where one class is set against the rest."""
        return self.classes - 1

    def cells(self, labels: IntArray, probabilities: FloatArray, others: IntArray) -> IntArray:
        """The cells that each record adds to, shape ``[n, parts]``.

        Parameters
        ----------
        labels : true classes, shape ``[n]``.
        probabilities : of the candidate, shape ``[n, classes]``.
        others : another class than the true one for each record, shape ``[n]``; see `other_classes`.
        """
        bins = np.searchsorted(EDGES, probabilities, side="left")
        rows = np.arange(len(labels))
        if self.classes == 2:
            return (labels * BINS + bins[:, 1])[:, None]
        squares = self.classes**2
        return np.stack(
            [
                labels * self.classes + probabilities.argmax(axis=1),
                squares + labels * BINS + bins[rows, labels],
                squares + self.classes * BINS + others * BINS + bins[rows, others],
            ],
            axis=1,
        )

    def views(self) -> tuple[list[tuple[int, int]], FloatArray, FloatArray]:
        """True and predicted class of each cell (−1 where it does not say them), and the cells that count scores.

        The latter are two arrays of 0 and 1, shape ``[questions, bins, length]``, of records of a class and of others
        by the bin of that class's probability: one question with two classes, else one for each class.
        """
        whole = np.eye(self.length)
        if self.classes == 2:
            confusion = [(true, int(middle > EDGES[BINS // 2 - 1])) for true in range(2) for middle in MIDDLES]
            return confusion, whole[None, BINS:], whole[None, :BINS]
        squares, scores = self.classes**2, self.classes * BINS
        confusion = [divmod(cell, self.classes) if cell < squares else (-1, -1) for cell in range(self.length)]
        shape = (self.classes, BINS, self.length)
        return confusion, whole[squares : squares + scores].reshape(shape), whole[squares + scores :].reshape(shape)


def other_classes(x: NDArray[np.generic], labels: IntArray, classes: int) -> IntArray:
    """For each record another class than its own, drawn by a hash of its encoded inputs ``[n, …]``; shape ``[n]``."""
    rows = np.ascontiguousarray(x)
    drawn = [int.from_bytes(hashlib.sha256(row.tobytes()).digest()[:8], "big") % (classes - 1) for row in rows]
    return np.asarray((labels + 1 + np.array(drawn, dtype=np.int64)) % classes)


def weights_of(groups: NDArray[np.str_] | None, records: int, *, per_party: bool) -> IntArray:
    """What each record adds to a cell, shape ``[records]``: ONE, divided among the records of its person or party."""
    if per_party:
        return np.full(records, ONE // max(records, 1), dtype=np.int64)
    if groups is None:
        return np.full(records, ONE, dtype=np.int64)
    _, person, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    return np.asarray(ONE // sizes[person], dtype=np.int64)


def counts_of(cells: IntArray, weights: IntArray, length: int) -> IntArray:
    """The sum over all records of what they add to their cells, int64 ``[length]``."""
    counts = np.zeros(length, dtype=np.int64)
    np.add.at(counts, cells, weights[:, None])
    return counts


def noisy(sums: IntArray, sigma: float, noise: Noise) -> IntArray:
    """The released vector: ``sums`` in parts of a record, with noise of ``sigma`` records on each."""
    return sums + np.rint(noise.gaussian(sigma * ONE, sums.shape)).astype(np.int64)


SOURCE_OF_COUNTS = "one cell a record in each part: this module's docstring"
_NO_VOTES = "an evaluation is one noisy vector of counts and no votes: account without votes"

Classes = Annotated[int, Parameter("classes of the task", at_most=MAX_CLASSES)]
Candidates = Annotated[int, Parameter("classifiers that are measured at once", at_most=MAX_CANDIDATES)]


@dataclass(frozen=True)
class _Counts:
    """How far a unit moves the counts of ``candidates`` classifiers of ``classes`` classes."""

    classes: int
    candidates: int

    @property
    def length(self) -> int:
        return self.candidates * Layout(self.classes).length

    @property
    def most(self) -> float:
        """The L2 norm of the largest contribution, in records."""
        return math.sqrt(Layout(self.classes).parts * self.candidates)

    def moved(self, unit: Unit) -> float:
        """In L2 and in records: the largest contribution, √2 times as much where one replaces another."""
        return unit.votes * self.most * (math.sqrt(2.0) if unit.adjacency is Adjacency.REPLACE else 1.0)


@dataclass(frozen=True)
class CountsRelease(GaussianStage):
    """One noisy vector of counts; ``sigma`` in records."""

    counts: _Counts

    @property
    def noise_votes(self) -> float:
        """σ in units of the largest contribution of one record."""
        return self.sigma / self.counts.most

    def moved(self, unit: Unit) -> float:
        return self.counts.moved(unit)

    def entries(self, unit: Unit) -> int:
        return self.counts.length

    @property
    def parts_of_a_vote(self) -> float:
        return ONE

    def run(self, counts: IntArray, noise: Noise, predictions: IntArray | None = None) -> IntArray:
        """The largest entry of each noisy row of records."""
        return winners(noisy(checked_counts(counts) * ONE, self.sigma, noise))


@register
@dataclass(frozen=True)
class Evaluation(Mechanism):
    """The counts of all records' cells + Gaussian noise of σ records on every count."""

    name: ClassVar[str] = "evaluation-counts"
    source: ClassVar[str] = SOURCE_OF_COUNTS
    adjacencies: ClassVar[tuple[Adjacency, ...]] = (Adjacency.ADD_REMOVE, Adjacency.REPLACE)
    answered_by: ClassVar[AnsweredBy] = AnsweredBy.ALL_RECORDS
    sum_modes: ClassVar[tuple[SumMode, ...]] = tuple(SumMode)
    gives_labels: ClassVar[bool] = False
    no_votes_because: ClassVar[str] = _NO_VOTES

    sigma: Annotated[float, Parameter("standard deviation of the noise on each count", "records")]
    classes: Classes
    candidates: Candidates = 1

    @property
    def stages(self) -> tuple[CountsRelease, ...]:
        return (CountsRelease("evaluation", self.sigma, _Counts(self.classes, self.candidates)),)

    def party_unit(self, teachers: int, adjacency: Adjacency | None = None) -> Unit:
        """A party moves the counts by as much as a record does, where parties send shares."""
        return self.unit(1, adjacency)

    def noised_by_parties(self, honest_survivors: int) -> "NoisedEvaluation":
        return NoisedEvaluation(self.sigma, self.classes, honest_survivors, self.candidates)


@dataclass(frozen=True)
class NoisedCountsRelease(NoisedRelease):
    """A vector of counts that carries the parties' noise already."""

    counts: _Counts

    @property
    def noise_votes(self) -> float:
        return self.noise.sigma / ONE / self.counts.most

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        moved = self.counts.moved(unit) * ONE
        return self.noise.curve(orders, l2_squared=moved * moved, changed_entries=self.counts.length)

    def law(self, unit: Unit, classes: int | None = None) -> Law:
        return self.noise.law(self.counts.moved(unit) * ONE, self.counts.length)


@register
@dataclass(frozen=True)
class NoisedEvaluation(NoisedByParties):
    """Evaluation on counts that carry Gaussian noise of at least σ records already."""

    name: ClassVar[str] = "noised-evaluation-counts"
    source: ClassVar[str] = f"{SOURCE_OF_COUNTS}; {SOURCE}"
    adjacencies: ClassVar[tuple[Adjacency, ...]] = Evaluation.adjacencies
    answered_by: ClassVar[AnsweredBy] = Evaluation.answered_by
    gives_labels: ClassVar[bool] = False
    no_votes_because: ClassVar[str] = _NO_VOTES

    sigma: Annotated[float, Parameter("standard deviation of the noise that the honest parties add", "records")]
    classes: Classes
    honest_survivors: HonestSurvivors
    candidates: Candidates = 1

    @property
    def stages(self) -> tuple[NoisedCountsRelease, ...]:
        share = NoiseShare(self.sigma * ONE, self.honest_survivors)
        return (NoisedCountsRelease("noised evaluation", share, _Counts(self.classes, self.candidates)),)

    def party_unit(self, teachers: int, adjacency: Adjacency | None = None) -> Unit:
        return self.unit(1, adjacency)
