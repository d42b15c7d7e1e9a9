"""A mechanism of one file: GNMax that gives no label where the last class wins, which stands for "unsure"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from collegium_accounting.mechanisms.gnmax import GaussianVotes
from collegium_accounting.mechanisms.labels import ABSTAIN, ArgMax, LabelStage
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.mechanisms.votes import VoteMechanism
from collegium_accounting.units import IntArray


@register
@dataclass(frozen=True)
class GNMaxUnlessUnsure(VoteMechanism):
    """Argmax of the counts + N(0, σ²), and no label where that is the last class."""

    name: ClassVar[str] = "gnmax-unless-unsure"
    source: ClassVar[str] = "Papernot et al., ICLR 2018, Proposition 8; leaving out a result is post-processing"

    sigma: Annotated[float, Parameter("standard deviation of the Gaussian noise on each count", "votes")]

    @property
    def stages(self) -> tuple[LabelStage, ...]:
        return (GaussianVotes("release", self.sigma, UnlessUnsure()),)

    @classmethod
    def plans(cls, noise_votes: float, teachers: int) -> Iterable[Self]:
        return (cls(sigma=float(f"{noise_votes:.3g}")),)


@dataclass(frozen=True)
class UnlessUnsure(ArgMax):
    """The class whose noisy count is largest, or no label. It costs what the noisy argmax costs."""

    def read(self, noisy: IntArray | NDArray[np.float64]) -> IntArray:
        labels = super().read(noisy)
        return np.where(labels == noisy.shape[1] - 1, ABSTAIN, labels)
