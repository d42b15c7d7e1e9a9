"""A mechanism of one file: GNMax that gives no label where the last class wins, which stands for "unsure"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import numpy as np

from collegium_accounting.mechanisms.base import ABSTAIN, Mechanism, Noise, Stage
from collegium_accounting.mechanisms.gnmax import GaussianRelease
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.units import IntArray


@register
@dataclass(frozen=True)
class UnlessUnsure(Mechanism):
    """Argmax of the counts + N(0, σ²), and no label where that is the last class."""

    name: ClassVar[str] = "gnmax-unless-unsure"
    source: ClassVar[str] = "Papernot et al., ICLR 2018, Proposition 8; leaving out a result is post-processing"

    sigma: Annotated[float, Parameter("standard deviation of the Gaussian noise on each count", "votes")]

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (ReleaseUnlessUnsure("release", self.sigma),)

    @classmethod
    def plans(cls, noise_votes: float, teachers: int) -> Iterable[Self]:
        return (cls(sigma=float(f"{noise_votes:.3g}")),)


@dataclass(frozen=True)
class ReleaseUnlessUnsure(GaussianRelease):
    """The noisy argmax, or no label. It costs what the noisy argmax costs."""

    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        labels = super().run(counts, noise)
        return np.where(labels == counts.shape[1] - 1, ABSTAIN, labels)
