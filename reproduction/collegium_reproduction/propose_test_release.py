"""Propose-test-release of the exact argmax: what the near-zero-cost idea looks like when it is sound.

d = max(0, ⌈gap/2⌉ − 1) votes can move before the winner can change, the tie rule included. One vote that moves,
comes or goes changes d by at most 1, so whether d + Laplace(1/ε) > log(1/2δ)/ε costs ε; where d = 0 the answer
leaves with probability at most δ, and where d ≥ 1 all neighbours have the same winner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from collegium.errors import ConfigurationError
from collegium_accounting.mechanisms.base import Noise
from collegium_accounting.mechanisms.labels import ABSTAIN, LabelStage
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.mechanisms.votes import VoteMechanism
from collegium_accounting.renyi import RenyiCurve, discrete_laplace_curve, laplace_curve
from collegium_accounting.units import IntArray, Unit, checked_counts, winners
from collegium_reproduction.loss_distributions import loss_of, pure_loss


@register
@dataclass(frozen=True)
class ProposeTestRelease(VoteMechanism):
    """Release the argmax without noise if it is far enough from changing, decided with noise; else abstain."""

    name: ClassVar[str] = "ptr"
    source: ClassVar[str] = "Dwork and Lei 2009, propose-test-release; proof in docs/privacy.md"

    epsilon: Annotated[float, Parameter("ε of one query for a single moved vote")]
    delta: Annotated[float, Parameter("δ of one query for a single moved vote")]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta >= 0.5:
            raise ConfigurationError(f"{self.name}: delta must be below 0.5; got {self.delta}")

    @classmethod
    def completed(cls, given: Mapping[str, Any], *, delta: float, queries: int) -> dict[str, Any]:
        """Half of δ pays for unstable winners, spread over the queries; the other half is for the conversion."""
        return {"delta": delta / (2 * max(queries, 1)), **given}

    @property
    def stages(self) -> tuple[LabelStage, ...]:
        return (StableRelease("release", self.epsilon, self.delta),)


@dataclass(frozen=True)
class StableRelease(LabelStage):
    """The test and, if it passes, the argmax."""

    epsilon: float
    delta: float

    @property
    def noise_votes(self) -> float:
        """The scale of the noise on d, which is a number of votes."""
        return 1.0 / self.epsilon

    @property
    def cut(self) -> int:
        """Smallest whole number that Laplace(1/ε) noise passes with probability at most δ, discrete or not."""
        return math.ceil(math.log(1.0 / (2.0 * self.delta)) / self.epsilon)

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        """Laplace noise on d, and δ for the event that an unstable winner leaves.

        k votes are k neighbours in a row: (kε, k·e^{(k−1)ε}·δ), which counts as a failure probability.
        """
        if unit.votes == 1:
            noisy = laplace_curve(1, 1.0 / self.epsilon, orders).at_least(
                discrete_laplace_curve(1, 1.0 / self.epsilon, orders).values
            )
            return RenyiCurve(orders, noisy.values, self.delta)
        pure, failure = unit.votes * self.epsilon, self.failure(unit)
        if failure >= 1.0:
            return RenyiCurve(orders, np.full(len(orders), np.inf))
        return RenyiCurve(orders, np.minimum(pure, np.asarray(orders) * pure * pure / 2.0), failure)

    def failure(self, unit: Unit) -> float:
        """The probability with which an unstable winner of the unit leaves, at most."""
        return unit.votes * self.delta * math.exp(min((unit.votes - 1) * self.epsilon, 700.0))

    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        votes = checked_counts(counts)
        noisy = votes_to_change(votes) + noise.laplace(1.0 / self.epsilon, (votes.shape[0],))
        return np.where(noisy > self.cut, winners(votes), ABSTAIN).astype(np.int64)


@loss_of.register
def _(stage: StableRelease, unit: Unit) -> Any:
    return pure_loss(unit.votes * stage.epsilon, min(stage.failure(unit), 1.0))


def votes_to_change(counts: IntArray) -> IntArray:
    """d = max(0, ⌈gap/2⌉ − 1) per query; a single class never changes and counts as all its votes apart."""
    ordered = -np.sort(-counts, axis=1)
    second = ordered[:, 1] if counts.shape[1] > 1 else np.zeros(counts.shape[0], dtype=np.int64)
    distance: IntArray = np.maximum(0, -((second - ordered[:, 0]) // 2) - 1)
    return distance
