"""The strongest attack that we can plan against T rounds of a mechanism: the game of its accountant on real histograms.

The attacker knows all votes but one. In every round it chooses a histogram, after it has seen the winners so far; at
the end it says which of two neighbouring data sets was there. Its state is the privacy loss so far, rounded to a grid.
Backwards over the rounds, the plan takes for every state the pair of histograms with the largest
α − e^{ε − loss}·β, where α and β are the rates of a hit from there on, under the one and the other data set. The
plan follows from stated laws or from a pilot, never from the runs that it is judged by.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium_accounting.divergences.laws import win_probabilities
from collegium_accounting.mechanisms.base import Noise
from collegium_accounting.mechanisms.labels import LabelMechanism
from collegium_accounting.noise.sources import SeededNoise
from collegium_accounting.renyi import FloatArray
from collegium_accounting.units import Adjacency, IntArray

Histogram = tuple[int, ...]

_PILOT_RUNS = 20_000
_STEPS_PER_DEVIATION = 16
_DEVIATIONS = 8.0
_COST_OF_A_ROUND = 0.03
"""A run goes on only where a round adds more than this share of the attack's value: others are no hits."""

_USUAL_LOSES, _USUAL_KEEPS = 0.25, 0.7
"""The most telling pair is asked for where another gains less than this share of the attack's value, and it keeps that
share of what the best pair is worth. The same noise then makes the hits with both data sets alike, and a plan that fits
one law less closely shows a wrong law more clearly."""


@dataclass(frozen=True)
class Pairs:
    """Neighbouring histograms, ``[pairs, classes]``, and the laws of what `seen` makes of a release, ``[pairs, 4]``.

    ``known`` says whether the laws are those that the mechanism states, rather than rates of a pilot.
    """

    first: IntArray
    second: IntArray
    law: FloatArray
    other_law: FloatArray
    known: bool

    def reversed(self) -> "Pairs":
        """The same with the data sets exchanged."""
        return Pairs(self.second, self.first, self.other_law, self.law, self.known)


@dataclass(frozen=True)
class Attack:
    """A planned attack on the labels of a mechanism: what to ask for in every round and state, and which are a hit.

    Attributes
    ----------
    pairs : the pairs of histograms that are asked for.
    gain : by how many steps of the grid an outcome moves the state, shape ``[pairs, 4]``.
    choice : the pair that is asked for, shape ``[rounds, states]``; −1 where the run is over.
    hit : whether a run that is over in this state is a hit, shape ``[states]``.
    rate, other_rate : α and β, the rates of a hit under either data set, if the laws are those of ``pairs``.
    """

    mechanism: LabelMechanism
    pairs: Pairs
    gain: IntArray
    choice: IntArray
    hit: NDArray[np.bool_]
    rate: float
    other_rate: float

    @property
    def start(self) -> int:
        """The state of a run before its first round."""
        return len(self.hit) // 2

    @property
    def known(self) -> bool:
        """Whether the rates follow from what the mechanism states."""
        return self.pairs.known

    def play(self, noise: Noise, runs: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Whether each of ``runs`` runs is a hit, with the one data set and with the other."""
        states, last = np.full((2, runs), self.start), len(self.hit) - 1
        for choice in self.choice:
            chosen = choice[states]
            rows = np.flatnonzero((chosen >= 0).any(axis=0))
            if not len(rows):
                break
            same = _SameNoise(noise)
            for side, histograms in enumerate((self.pairs.first, self.pairs.second)):
                same.rewind()
                asked = chosen[side, rows]
                found = seen(self.mechanism, same, histograms[np.maximum(asked, 0)])
                moved = np.where(asked >= 0, self.gain[asked, found], 0)
                states[side, rows] = np.clip(states[side, rows] + moved, 0, last)
        return self.hit[states[0]], self.hit[states[1]]


class _SameNoise:
    """Hands out the noise of ``source`` while a first histogram is released, and the same again for its neighbour."""

    def __init__(self, source: Noise) -> None:
        self._source = source
        self._drawn: list[tuple[tuple[object, ...], Any]] = []
        self._again = 0

    @property
    def private(self) -> bool:
        return self._source.private

    def rewind(self) -> None:
        """From here on, the noise from the beginning."""
        self._again = 0

    def laplace(self, scale: float, shape: tuple[int, ...]) -> Any:
        return self._noise(("laplace", scale, shape), lambda: self._source.laplace(scale, shape))

    def gaussian(self, sigma: float, shape: tuple[int, ...]) -> Any:
        return self._noise(("gaussian", sigma, shape), lambda: self._source.gaussian(sigma, shape))

    def gumbel_argmax(self, counts: IntArray, scale: float) -> IntArray:
        return self._source.gumbel_argmax(counts, scale)

    def _noise(self, asked: tuple[object, ...], draw: Callable[[], Any]) -> Any:
        self._again += 1
        if self._again <= len(self._drawn) and self._drawn[self._again - 1][0] == asked:
            return self._drawn[self._again - 1][1]
        # A second stage that other queries reach asks for another shape: it gets noise of its own.
        self._drawn[self._again - 1 :] = [(asked, draw())]
        return self._drawn[-1][1]


def pairs_of(mechanism: LabelMechanism, teachers: int, classes: int) -> list[Pairs]:
    """What an attacker may ask for: one set of pairs for each order of the data sets that has to be tried."""
    adjacency = mechanism.unit().adjacency
    found = list(neighbours(_asked(mechanism, teachers, classes), adjacency))
    if adjacency is Adjacency.REPLACE:
        found = [pair for pair in found if pair[0][0] > pair[1][0]]
    first, second = (np.array([pair[side] for pair in found], dtype=np.int64) for side in (0, 1))
    laws = _stated_laws(mechanism, np.concatenate([first, second]))
    known = laws is not None
    if laws is None:
        laws = _pilot_laws(mechanism, np.concatenate([first, second]))
    pairs = Pairs(first, second, laws[: len(found)], laws[len(found) :], known)
    # A vote that moves the other way exchanges two classes; one that appears may be there with either data set.
    return [pairs] if adjacency is Adjacency.REPLACE else [pairs, pairs.reversed()]


def plan_attack(mechanism: LabelMechanism, pairs: Pairs, rounds: int, epsilon: float) -> Attack:
    """The attack that is best at telling the data sets apart by more than e^``epsilon``, but for rounding."""
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.where(pairs.law > 0.0, np.log(pairs.law / pairs.other_law), 0.0)
    loss = np.clip(loss, -20.0, 20.0)
    deviation = math.sqrt(float((pairs.law * loss**2).sum(axis=1).max())) or 1.0
    step = deviation / _STEPS_PER_DEVIATION
    gain = np.rint(loss / step).astype(np.int64)
    half = min(int(np.abs(gain).max()) * rounds, math.ceil(_DEVIATIONS * deviation * math.sqrt(rounds) / step))
    half = max(half, math.ceil(1.5 * epsilon / step)) + 1
    states = np.arange(-half, half + 1)
    moved = np.clip(states + gain[:, :, None] + half, 0, 2 * half)
    against = np.exp(np.clip(epsilon - states * step, -50.0, 50.0))
    hit = against < 1.0

    usual = int((pairs.law * loss**2).sum(axis=1).argmax())

    def backwards(cost: float, loses: float) -> tuple[IntArray, FloatArray, FloatArray]:
        alpha, beta = hit.astype(np.float64), hit.astype(np.float64)
        choice = np.full((rounds, len(states)), -1)
        for played in reversed(range(rounds)):
            rates = np.einsum("po,pos->ps", pairs.law, alpha[moved])
            others = np.einsum("po,pos->ps", pairs.other_law, beta[moved])
            worth = rates - against * others
            best, most = worth.argmax(axis=0), worth.max(axis=0)
            best = np.where(worth[usual] >= np.maximum(most - loses, _USUAL_KEEPS * most), usual, best)
            goes_on = most - cost > np.maximum(0.0, 1.0 - against)
            choice[played] = np.where(goes_on, best, -1)
            chosen = best[None], np.arange(len(states))[None]
            alpha = np.where(goes_on, rates[chosen][0], hit)
            beta = np.where(goes_on, others[chosen][0], hit)
        return choice, alpha, beta

    choice, alpha, beta = backwards(0.0, 0.0)
    value = float(alpha[half] - against[half] * beta[half])
    choice, alpha, beta = backwards(_COST_OF_A_ROUND * value, _USUAL_LOSES * value)
    return Attack(mechanism, pairs, gain, choice, hit, float(alpha[half]), float(beta[half]))


def _asked(mechanism: LabelMechanism, teachers: int, classes: int) -> list[Histogram]:
    """Histograms of ``teachers`` votes: two classes lead, level or apart, with few or many votes for the others."""
    step = max(1, round(mechanism.noise_votes / 8.0)) if math.isfinite(mechanism.noise_votes) else 1
    found = dict.fromkeys(histograms(teachers, classes))
    for share in (0.0, 0.25, 0.5, 0.75, 1.0) if classes > 2 else (0.0,):
        others = round(share * teachers * (classes - 2) / classes)
        left = teachers - others
        rest = tuple(others // (classes - 2) + (k < others % (classes - 2)) for k in range(classes - 2))
        for k in range(-12, 13):
            top = (left + 1) // 2 + k * step
            if 0 <= top <= left:
                found[(top, left - top, *rest)] = None
    return list(found)


def histograms(teachers: int, classes: int) -> list[Histogram]:
    """Up to 12 histograms of ``teachers`` votes for two of the classes, from an even split to agreement."""
    tops = np.unique(np.linspace(math.ceil(teachers / 2), teachers, 12).astype(int)).tolist()
    return [(int(top), teachers - int(top)) + (0,) * (classes - 2) for top in tops]


def neighbours(bases: list[Histogram], adjacency: Adjacency) -> Iterator[tuple[Histogram, Histogram]]:
    """Each of ``bases`` with those that one vote makes of it: moved to the other leading class, or taken away."""
    for base in bases:
        for loses, gains in ((0, 1), (1, 0)):
            moved = list(base)
            if moved[loses] == 0:
                continue
            moved[loses] -= 1
            if adjacency is Adjacency.REPLACE:
                moved[gains] += 1
            yield base, tuple(moved)


def _stated_laws(mechanism: LabelMechanism, counts: IntArray) -> FloatArray | None:
    """The law of `seen` on each row of ``counts``, by the noise that the mechanism states; None without one."""
    noise, screen = mechanism.noise_law(discrete=True), mechanism.screen_law(discrete=True)
    if noise is None:
        return None
    passes = np.ones((len(counts), 1)) if screen is None else np.exp(screen.log_pass(counts.max(axis=1)))[:, None]
    wins = passes * win_probabilities(counts, noise)
    return np.concatenate([1.0 - passes, wins[:, :2], wins[:, 2:].sum(axis=1, keepdims=True)], axis=1)


def _pilot_laws(mechanism: LabelMechanism, counts: IntArray) -> FloatArray:
    """The same by running it: rates of every outcome, none of them 0."""
    noise, rates = SeededNoise(0), []
    for histogram in counts:
        found = seen(mechanism, noise, np.tile(histogram, (_PILOT_RUNS, 1)))
        rates.append(np.bincount(found, minlength=4) + 0.5)
    return np.asarray(np.array(rates) / np.sum(rates, axis=1, keepdims=True))


def seen(mechanism: LabelMechanism, noise: Noise, counts: IntArray) -> IntArray:
    """Of the release of every row of ``counts``: 0 without a label, 1 or 2 for the leading classes, 3 for another."""
    return np.minimum(mechanism.release(counts, noise=noise), 2) + 1
