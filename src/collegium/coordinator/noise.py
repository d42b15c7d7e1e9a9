"""The one place where the coordinator draws noise."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collegium_accounting.mechanisms import IntArray, LabelStage, SeededNoise, Stage, SystemNoise


@dataclass(frozen=True)
class CoordinatorNoise:
    """Noise from the operating system's randomness, or from a seed for runs that are not private.

    With a seed, the noise follows from the seed and from what it is drawn for, so that it is the same however a run is
    cut into batches or resumed.
    """

    seed: int | None = None

    def outcomes(self, stage: LabelStage, counts: IntArray, queries: Sequence[str]) -> IntArray:
        """What ``stage`` says of each query, shape ``[queries]``, from counts of shape ``[queries, classes]``."""
        if self.seed is None or stage.added.parties:
            return stage.run(counts, SystemNoise())
        outcomes = np.empty(len(queries), dtype=np.int64)
        for row, query in enumerate(queries):
            outcomes[row] = stage.run(counts[row : row + 1], self._source(f"{stage.name}|{query}"))[0]
        return outcomes

    def vector(self, stage: Stage, values: IntArray, drawn_for: str) -> IntArray:
        """A whole vector ``[length]`` with the noise of ``stage`` on every entry; as it is where parties added it.

        ``drawn_for`` names the vector where the noise follows from a seed.
        """
        if stage.added.parties:
            return values
        drawn = self._source(f"{stage.name}|{drawn_for}").gaussian(noise_on_entries(stage, 0), values.shape)
        return values + np.asarray(drawn, dtype=np.int64)

    def _source(self, drawn_for: str) -> SystemNoise | SeededNoise:
        if self.seed is None:
            return SystemNoise()
        digest = hashlib.sha256(f"{self.seed}|{drawn_for}".encode()).digest()
        return SeededNoise(int.from_bytes(digest[:16], "big"))


def noise_on_entries(stage: Stage, answered: int) -> float:
    """The standard deviation of the noise on every entry of a vector that ``answered`` parties sum."""
    if stage.share is not None:
        return stage.share.sigma_share * math.sqrt(answered)  # more parties than needed add more noise than charged
    return stage.noise_on_entries
