"""A mechanism of one file: GNMax that gives no label where a class called unsure wins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from collegium.privacy.mechanisms.base import ABSTAIN, Mechanism, Noise, Stage
from collegium.privacy.mechanisms.gnmax import GaussianRelease
from collegium.privacy.mechanisms.parameters import Parameter
from collegium.privacy.mechanisms.registry import register
from collegium.privacy.units import IntArray


@register
@dataclass(frozen=True)
class UnlessUnsure(Mechanism):
    """Argmax of the counts + N(0, σ²), and no label where that is the class ``unsure``."""

    name: ClassVar[str] = "gnmax-unless-unsure"
    source: ClassVar[str] = "Papernot et al., ICLR 2018, Proposition 8; leaving out a result is post-processing"

    sigma: Annotated[float, Parameter("standard deviation of the Gaussian noise on each count", "votes")]
    unsure: Annotated[int, Parameter("number of the class that stands for no answer")]

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (ReleaseUnlessUnsure("release", self.sigma, self.unsure),)


@dataclass(frozen=True)
class ReleaseUnlessUnsure(GaussianRelease):
    """The noisy argmax, or no label. It costs what the noisy argmax costs."""

    unsure: int

    def run(self, counts: IntArray, noise: Noise, predictions: IntArray | None = None) -> IntArray:
        labels = super().run(counts, noise, predictions)
        return np.where(labels == self.unsure, ABSTAIN, labels)
