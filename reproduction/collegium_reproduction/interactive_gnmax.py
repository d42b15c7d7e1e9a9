"""Interactive-GNMax: where the student is sure already, ask only whether the teachers agree.

It is a rule for votes that are at hand, and no run asks with it: which test a query gets depends on what the student
says of that query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collegium.errors import ConfigurationError
from collegium_accounting.mechanisms.base import Noise, SumMode
from collegium_accounting.mechanisms.gnmax import GaussianVotes
from collegium_accounting.mechanisms.labels import NEXT_STAGE, ArgMax, LabelStage, Seen
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.mechanisms.votes import VoteMechanism
from collegium_accounting.units import IntArray, checked_counts


@register
@dataclass(frozen=True)
class InteractiveGNMax(VoteMechanism):
    """Confirm the student's own confident prediction if its count + N(0, σ₁²) reaches T; else release GNMax.

    Which predictions count as confident is decided from the student alone, which is public. `release` takes the first
    class of every query for the prediction; `answers` takes any.
    """

    name: ClassVar[str] = "interactive-gnmax"
    source: ClassVar[str] = "Papernot et al., ICLR 2018, Algorithm 2, with the exact cost of a threshold test"
    sum_modes: ClassVar[tuple[SumMode, ...]] = ()

    sigma1: Annotated[float, Parameter("noise on the count of the predicted class", "votes")]
    sigma2: Annotated[float, Parameter("noise on each count of a release", "votes")]
    threshold: Annotated[float, Parameter("what the predicted class must reach", "votes", positive=False)]

    @property
    def stages(self) -> tuple[LabelStage, ...]:
        test = GaussianVotes("agreement", self.sigma1, Agreement(self.threshold))
        return test, GaussianVotes("release", self.sigma2, ArgMax())

    def answers(self, votes: ArrayLike, predictions: Sequence[int], noise: Noise) -> IntArray:
        """Labels for vote histograms ``[queries, classes]``, shape ``[queries]``.

        Parameters
        ----------
        predictions : the student's own answers, -1 where it is not sure; such a query has nothing to be confirmed. It
            goes straight to the release, and is charged for that alone.

        Raises
        ------
        ConfigurationError
            If a prediction is no class.
        """
        counts, guesses = checked_counts(votes), np.asarray(predictions, dtype=np.int64)
        if guesses.shape != (len(counts),) or (guesses >= counts.shape[1]).any() or (guesses < -1).any():
            raise ConfigurationError("predictions must hold one class, or -1, per query")
        test, release = self.stages
        labels, rows = release.run(counts, noise), np.flatnonzero(guesses >= 0)
        first = counts[rows].copy()
        first[np.arange(len(rows)), 0] = counts[rows, guesses[rows]]
        confirmed = test.run(first, noise) == 0
        labels[rows[confirmed]] = guesses[rows[confirmed]]
        return labels


@dataclass(frozen=True)
class Agreement:
    """Does the first count reach T? If so, the first class is the label.

    One count moves by at most as much as the largest count does, so the test costs what a threshold test costs.
    """

    threshold: float
    seen: ClassVar[Seen] = Seen.BIT

    def compared(self, counts: IntArray) -> IntArray:
        return counts[:, :1]

    def read(self, noisy: IntArray | NDArray[np.float64]) -> IntArray:
        return np.where(noisy[:, 0] >= self.threshold, 0, NEXT_STAGE).astype(np.int64)
