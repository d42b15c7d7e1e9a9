"""Which label follows from noisy numbers: rules, the steps that labels follow from, and the mechanisms of such steps.

A rule costs nothing by itself. What is seen of a step decides what it costs: where the coordinator adds the noise, it
is what the rule reads, one bit or a winner; a sum that the parties made noisy is seen as a whole.
"""

from abc import abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collegium_accounting.divergences.grids import NoiseLaw, ThresholdTestLaw
from collegium_accounting.divergences.laws import win_probabilities
from collegium_accounting.mechanisms.base import Mechanism, Noise, Stage
from collegium_accounting.noise.distributed import AddedBy
from collegium_accounting.noise.sources import SeededNoise, SystemNoise
from collegium_accounting.renyi import FloatArray
from collegium_accounting.units import IntArray, checked_counts, winners

ABSTAIN = -1
"""Outcome of a step: the query gets no label (⊥)."""

NEXT_STAGE = -2
"""Outcome of a step: the query goes on to the following one."""

_SIMULATED_DRAWS = 2_000


class Seen(Enum):
    """What is seen of a step's noisy numbers, and nothing else."""

    BIT = "whether one number reaches a threshold"
    WINNER = "which of the numbers is largest"
    VECTOR = "all of the numbers"


class LabelRule(Protocol):
    """Which label follows from noisy numbers about a query."""

    seen: ClassVar[Seen]
    """What it reads of numbers to which the coordinator adds the noise."""

    def compared(self, counts: IntArray) -> IntArray:
        """The numbers, ``[queries, n]``, to which the coordinator adds noise, of ``counts`` ``[queries, classes]``."""
        ...

    def read(self, noisy: IntArray | NDArray[np.float64]) -> IntArray:
        """Outcome per query: a class, ABSTAIN or NEXT_STAGE.

        ``noisy`` are the numbers of `compared` with noise, or all counts, which the parties made noisy.
        """
        ...


@dataclass(frozen=True)
class ArgMax:
    """The class whose noisy count is largest; of equal ones the first."""

    seen: ClassVar[Seen] = Seen.WINNER

    def compared(self, counts: IntArray) -> IntArray:
        return counts

    def read(self, noisy: IntArray | NDArray[np.float64]) -> IntArray:
        return winners(noisy)


@dataclass(frozen=True)
class Threshold:
    """Does the largest count reach T? The query then goes on, else it gets no label."""

    threshold: float
    seen: ClassVar[Seen] = Seen.BIT

    def compared(self, counts: IntArray) -> IntArray:
        return np.asarray(counts.max(axis=1, keepdims=True))

    def read(self, noisy: IntArray | NDArray[np.float64]) -> IntArray:
        return np.where(noisy.max(axis=1) >= self.threshold, NEXT_STAGE, ABSTAIN).astype(np.int64)


@dataclass(frozen=True)
class LabelStage(Stage):
    """A step that labels follow from."""

    @abstractmethod
    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        """Outcome per query for ``counts`` of shape ``[queries, classes]``: a class, ABSTAIN or NEXT_STAGE.

        Noise is drawn unless the parties added it: ``counts`` are noisy already then.
        """


class LabelMechanism(Mechanism):
    """A mechanism from whose releases labels follow; all of its steps but the last may pass a query on."""

    @property
    @abstractmethod
    def stages(self) -> tuple[LabelStage, ...]:
        """Its steps, in their order, as they are where the coordinator adds the noise."""

    def summed(self, added: AddedBy) -> tuple[LabelStage, ...]:
        return cast(tuple[LabelStage, ...], super().summed(added))  # copies of `stages`

    def release(self, votes: ArrayLike, *, noise: Noise | None = None) -> IntArray:
        """Labels for vote histograms, with noise of the coordinator. Whoever releases labels pays for them.

        Parameters
        ----------
        votes : array_like
            Whole numbers of votes, shape ``[queries, classes]``.
        noise : Noise or None
            Where the noise comes from; the operating system's randomness unless a seeded source is given.

        Returns
        -------
        int64 array, shape ``[queries]``: a class, or -1 (`ABSTAIN`) for a query without a label.

        Raises
        ------
        DataError
            If ``votes`` are not counts of that shape.
        """
        return labels_of(self.stages, checked_counts(votes), SystemNoise() if noise is None else noise)

    def noise_law(self, discrete: bool) -> NoiseLaw | None:
        """The law of the noise on each count of which the largest wins; None where that is not how it releases.

        ``discrete`` for the noise of a release, else the continuous noise of the papers.
        """
        return None

    def screen_law(self, discrete: bool) -> ThresholdTestLaw | None:
        """The law of the noisy test that the largest count passes before a release; None where there is none.

        ``discrete`` as for `noise_law`.
        """
        return None

    def expected_agreement(self, counts: IntArray) -> tuple[FloatArray, FloatArray]:
        """How good its labels are on histograms whose first class has most votes.

        Parameters
        ----------
        counts : int64 array
            Vote histograms, shape ``[queries, classes]``.

        Returns
        -------
        Two arrays of shape ``[queries]``: the probability that an answer names the first class, and that there is
        an answer. Where no law of its noise is known they are estimated from 2,000 seeded releases.
        """
        law, screen = self.noise_law(discrete=True), self.screen_law(discrete=True)
        if law is not None:
            passes = np.ones(len(counts)) if screen is None else np.exp(screen.log_pass(counts.max(axis=1)))
            return win_probabilities(counts, law)[:, 0], passes
        drawn = self.release(np.repeat(counts, _SIMULATED_DRAWS, axis=0), noise=SeededNoise(0))
        outcomes = drawn.reshape(len(counts), _SIMULATED_DRAWS)
        answered = (outcomes != ABSTAIN).mean(axis=1)
        return (outcomes == 0).mean(axis=1) / np.maximum(answered, 1.0 / _SIMULATED_DRAWS), answered


def labels_of(stages: tuple[LabelStage, ...], counts: IntArray, noise: Noise) -> IntArray:
    """The label, or ABSTAIN, of each query by the steps in their order; ``counts`` are ``[queries, classes]``."""
    labels = np.full(len(counts), NEXT_STAGE, dtype=np.int64)
    for stage in stages:
        left = np.flatnonzero(labels == NEXT_STAGE)
        if len(left):
            labels[left] = stage.run(counts[left], noise)
    return labels
