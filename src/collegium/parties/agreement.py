"""Whether the other institutions' records tell the classes apart as the party's own do, by the first class sum.

The first sum that is released is of all institutions. Taken apart from what the party itself added, it is the others',
with known noise. Along the direction in which the own records tell the classes apart, the others' should count as the
own do, and the own as the others' along theirs. Where classes are called by each other's names, here or at an
institution that counts more than all others, they count the other way round; where labels were drawn by lot, not at
all.

Nothing of it leaves the party: it is for its own log, and for the people who read it.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data import Examples
from collegium.models.codes import Codes
from collegium_accounting.mechanisms.class_sums import code_one, count_of_one

SAMPLE = 2048
"""So many of the own records are compared at most."""
_FEWEST = 20
_FEWEST_OF_CLASS = 10
"""With fewer records of a class, or of all others, their own spread does not tell how far chance moves them."""
_LEAST = 0.5
_ERRORS = 3.3
"""Within so many standard errors nothing is told: for one figure of normal noise, once in 2,000 cases."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """How well records tell the classes apart, along a direction in which others do; each with its standard error.

    Parameters
    ----------
    both : own records along the others' direction, which is as well the others' along the own; ``[2]``, of one class
        against all others ``[2, classes]``.
    own : own records along the direction of other own ones.
    others : the others' records along the direction of other ones of theirs.
    alike : what part of ``own`` and of ``others`` both would be, by how frequent the classes are here and there; at
        most 1, and NaN where the records are too few to tell.
    """

    both: Array
    own: Array
    others: Array
    alike: Array

    def broken(self, cases: int = 1) -> NDArray[np.bool_]:
        """Whether both agree, at best, by less than half of what they would by what one does with itself at worst.

        Parameters
        ----------
        cases : of so many, none should be called broken by chance.
        """
        errors = math.sqrt(_ERRORS**2 + 2.0 * math.log(cases))
        sides = zip((self.own, self.others), self.alike, strict=True)
        apart = np.maximum(*((value - errors * error) * alike for (value, error), alike in sides))
        return np.asarray(self.both[0] + errors * self.both[1] < _LEAST * apart)


@dataclass(frozen=True)
class Compared:
    """Own records and the others', by all classes together and by each."""

    altogether: Agreement
    by_class: Agreement

    @property
    def broken(self) -> bool:
        """Whether the records tell the classes apart in different ways."""
        return bool(self.altogether.broken()) or bool(self.classes)

    @property
    def classes(self) -> list[int]:
        """The classes of which that can be said."""
        return np.flatnonzero(self.by_class.broken(self.by_class.own.shape[1])).tolist()


def sampled(examples: Examples) -> NDArray[np.int64]:
    """Which of the own records are compared: one of each person, in a random order that is always the same."""
    order = np.random.default_rng(0).permutation(len(examples))
    if examples.groups is not None:
        order = order[np.sort(np.unique(examples.groups[order], return_index=True)[1])]
    return order[:SAMPLE]


@np.errstate(all="ignore")  # a coordinator may show any finite numbers
def compared(
    sample: Array,
    labels: NDArray[np.int64],
    others: Array,
    noise: float,
) -> Compared | None:
    """Compare the others' first class sum with a sample of the own records; None where these are too few.

    Parameters
    ----------
    sample : vectors φ of own records in random order, one of each person, ``[n, dimensions]``; see `sampled`.
    labels : their classes, ``[n]``.
    others : the class sums of the others, ``[classes · dimensions + 1]``, the count last.
    noise : its standard deviation on every number of ``others``.
    """
    classes = (len(others) - 1) // sample.shape[1]
    known = float(others[-1]) / count_of_one(classes)
    if known < _FEWEST or len(sample) < _FEWEST:
        return None
    halves = np.arange(len(sample)) % 2 == 0
    codes, mean = Codes(classes).of(sample, labels).astype(np.float64), sample.mean(axis=0)
    theirs = others[:-1].reshape(classes, -1) / known
    theirs -= theirs.mean(axis=0)
    if not np.isfinite([np.square(theirs).sum() ** 2, known]).all():
        return None
    alike, alike_altogether = _alike(sample, labels, theirs / code_one(classes), known)
    theirs = _apart(theirs, mean)
    own, directions = np.empty((len(sample), classes)), list[Array]()
    for half in (halves, ~halves):
        directions.append(_apart((codes[half] - codes[half].mean(axis=0)).T @ sample[half] / half.sum(), mean))
        own[~half] = codes[~half] * (sample[~half] @ directions[-1].T)
    both, lengths = codes * (sample @ theirs.T), np.linalg.norm(sum(directions), axis=1) / len(directions)

    # What the others' records differ by from each other adds to a squared mean, all of it in one direction at worst.
    apart = np.square(sample).sum(axis=1).mean() - np.square(sample @ mean).mean() / (mean @ mean)

    def agreement(  # noqa: PLR0913 -- the figures of one direction
        along: Array, alone: Array, long: Any, squared: Any, free: int, code: int, alike: Array
    ) -> Agreement:
        error, spread = noise / known, apart * code * code_one(classes) ** 2 / known
        strength = squared - error**2 * free - spread
        of_noise = error * np.sqrt(2.0 * error**2 * free + 4.0 * np.maximum(squared, 0.0))
        of_records = np.hypot(np.sqrt(2.0) * spread, 2.0 * along.std(axis=0, ddof=1) / np.sqrt(known))
        return Agreement(
            np.array([along.mean(axis=0), np.hypot(_error(along), error * long)]),
            np.array([alone.mean(axis=0), _error(alone)]),
            np.array([strength, np.hypot(of_noise, of_records)]),
            alike,
        )

    squared, free = np.square(theirs).sum(axis=1), sample.shape[1] - 1
    altogether = both.sum(axis=1), own.sum(axis=1), float(np.linalg.norm(lengths)), float(squared.sum())
    return Compared(
        agreement(*altogether, (classes - 1) * free, classes * (classes - 1), alike_altogether),
        agreement(both, own, lengths, squared, free, (classes - 1) ** 2, alike),
    )


def _error(values: Array) -> Array:
    """The standard error of means over the first axis."""
    return np.asarray(values.std(axis=0, ddof=1) / math.sqrt(len(values)))


def _apart(sums: Array, mean: Array) -> Array:
    """Sums ``[classes, dimensions]`` without what lies along the mean record, so that frequencies do not count."""
    return np.asarray(sums - np.outer(sums @ mean, mean) / (mean @ mean))


def _alike(sample: Array, labels: NDArray[np.int64], theirs: Array, known: float) -> tuple[Array, Array]:
    """`Agreement.alike` of each class, ``[2, classes]``, and of all together, ``[2]``.

    How frequent the classes are among the others follows from how long their sums are along the mean own record, or
    along that of each class; the smaller part counts. Every two classes are taken to be as far apart as any two.

    Parameters
    ----------
    theirs : the others' sum of each class, in records, of sum 0 over the classes, ``[classes, dimensions]``.
    known : how many the others are.
    """
    classes, mean = len(theirs), sample.mean(axis=0)
    counts = np.bincount(labels, minlength=classes).astype(np.float64)
    here, apart = counts / counts.sum(), np.eye(classes) - counts / counts.sum()
    means = np.tile(mean, (classes, 1))
    there = np.maximum((1.0 + theirs @ mean / (mean @ mean)) / classes, 0.0)
    few = np.minimum(counts, counts.sum() - counts) < _FEWEST_OF_CLASS
    few |= np.minimum(there, 1.0 - there) * known < _FEWEST_OF_CLASS
    for label in np.flatnonzero(counts):
        means[label] = sample[labels == label].mean(axis=0)
    own, parts = (classes * np.diag(here) - here) @ apart, list[Array]()
    for shares in (there, _frequencies(means, theirs)):
        others = (classes * np.diag(shares) - shares) @ apart
        figures = np.array([(own * others).sum(axis=1), np.square(own).sum(axis=1), np.square(others).sum(axis=1)])
        figures = np.column_stack([figures, figures.sum(axis=1)])
        parts.append(np.clip(figures[0] / np.where(figures[1:] > 0.0, figures[1:], np.inf), 0.0, 1.0))
    smaller = np.where([*few, counts.sum() - counts.max() < _FEWEST_OF_CLASS], np.nan, np.minimum(*parts))
    return smaller[:, :-1], smaller[:, -1]


def _frequencies(means: Array, theirs: Array) -> Array:
    """The shares q, by least squares of the sums C·q_c·means_c − Σ q_k·means_k of each class, with Σ q = 1."""
    classes, lengths = len(means), np.square(means).sum(axis=1)
    unit = float(lengths.mean()) or 1.0
    normal = np.pad((classes * np.diag(lengths) - means @ means.T) / unit, (0, 1), constant_values=1.0)
    normal[-1, -1] = 0.0
    wanted = np.append((theirs * means).sum(axis=1) / unit, 1.0)
    found = np.maximum(np.linalg.lstsq(normal, wanted, rcond=None)[0][:-1], 0.0)
    return np.asarray(found / (found.sum() or 1.0))
