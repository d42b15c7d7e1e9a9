"""The strongest attack against whole noisy vectors: a threshold on their sum along the direction of the difference.

Neighbours differ by a vector of fixed length, the same in every round. For Gaussian noise the likelihood ratio of all
rounds grows with the sum of the noisy vectors along that vector, so by Neyman and Pearson no other test tells the data
sets apart better, and no adaptive choice helps (Dong, Roth and Su 2022). The direction does not matter: one entry bears
the whole difference.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium_accounting.mechanisms.base import Mechanism, Noise
from collegium_accounting.mechanisms.gaussian_stage import GaussianStage


@dataclass(frozen=True)
class VectorAttack:
    """A hit is a sum of all rounds, along the difference, of ``threshold`` or more.

    Parameters
    ----------
    sigma : of the noise on an entry.
    moved : L2 norm by which neighbours differ in each round, in units of an entry; a whole number.
    rounds : vectors that are released.
    """

    sigma: float
    moved: int
    rounds: int
    threshold: int
    known: ClassVar[bool] = True

    @property
    def rate(self) -> float:
        """The probability of a hit with the first data set; integer noise of many units is as good as continuous."""
        return self._rate(self.rounds * self.moved)

    @property
    def other_rate(self) -> float:
        """The probability of a hit with its neighbour."""
        return self._rate(0)

    def _rate(self, mean: int) -> float:
        from scipy.special import ndtr  # takes half a second to load

        return float(ndtr((mean - self.threshold + 0.5) / (self.sigma * math.sqrt(self.rounds))))

    def play(self, noise: Noise, runs: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Whether each of ``runs`` runs is a hit, with the one data set and with the other; the noise is the same."""
        drawn = np.rint(noise.gaussian(self.sigma, (runs, self.rounds))).astype(np.int64).sum(axis=1)
        return drawn + self.rounds * self.moved >= self.threshold, drawn >= self.threshold


def vector_attacks(mechanism: Mechanism, rounds: int) -> list[VectorAttack]:
    """Thresholds to choose from, against ``rounds`` vectors with the noise that the mechanism's release adds."""
    (stage,) = mechanism.stages
    assert isinstance(stage, GaussianStage)  # whole vectors have Gaussian noise
    sigma, moved = stage.sigma * stage.parts_of_a_vote, stage.moved(mechanism.unit()) * stage.parts_of_a_vote
    reach = sigma * math.sqrt(rounds)
    least = math.floor(moved)  # no neighbour is further than the bound
    return [
        VectorAttack(sigma, least, rounds, math.ceil(rounds * moved + z * reach)) for z in np.linspace(-2.0, 5.0, 57)
    ]
