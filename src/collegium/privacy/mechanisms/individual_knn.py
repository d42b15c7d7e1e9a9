"""Individual k-nearest neighbours: records within a public radius vote, and each has a budget of its own.

Zhu et al. 2023 on the individual Rényi filter of Feldman and Zrnic 2021. Whether a record votes depends on
itself and on public data alone, so a vote of weight w ≤ 1 moves one count by w and costs its record
αw²/(2σ²) at order α. A record leaves for good before its w² pass ``participations`` in sum; the party keeps
count. Counts come in units of 1/``levels``, so that weights are whole numbers. docs/individual-neighbours.md
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigurationError, UnsupportedAccounting
from collegium.limits import MAX_WEIGHT_LEVELS
from collegium.privacy.accounting import pld
from collegium.privacy.mechanisms.base import Noise, Stage
from collegium.privacy.mechanisms.gnmax import GaussianRelease
from collegium.privacy.mechanisms.noised import SOURCE, NoisedStage
from collegium.privacy.mechanisms.registry import register
from collegium.privacy.noise.distributed import noise_share_sigma, noised_sum_curve
from collegium.privacy.renyi import RenyiCurve, gaussian_curve
from collegium.privacy.units import Adjacency, IntArray, Unit
from collegium.privacy.vote_counts import check_positive, checked_counts, winners

_NO_VOTES = (
    "individual neighbours have no data-dependent analysis: a budget that depends on the votes of others would leak "
    "them; the constant per record is tight and may be published, so account without votes"
)


@register
@dataclass(frozen=True)
class IndividualKNN:
    """Argmax of the votes of the records within a radius + N(0, σ²); each record votes at most P times.

    Parameters
    ----------
    sigma : noise on each count, in votes.
    participations : P, votes of full weight that one record may cast over the whole run.
    levels : units of the largest weight, in which the counts come.
    """

    name: ClassVar[str] = "individual-knn"
    source: ClassVar[str] = "Zhu et al. 2023; Feldman and Zrnic 2021, individual Rényi filter"

    sigma: float
    participations: int
    levels: int = 1

    def __post_init__(self) -> None:
        check_positive(self.name, sigma=self.sigma, participations=self.participations, levels=self.levels)
        _check_whole(self.name, participations=self.participations, levels=self.levels)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (IndividualRelease("release", self.sigma, int(self.levels)),)

    def parameters(self) -> dict[str, float | int | str]:
        return {"sigma": self.sigma, "participations": self.participations, "levels": self.levels}

    def charged_queries(self, queries: int) -> int:
        """P, however many ``queries`` were asked: a record that has voted P times is out."""
        return min(int(self.participations), queries)

    def exact_loss(
        self, counts: IntArray, orders: tuple[float, ...], adjacency: Adjacency, discrete: bool
    ) -> NDArray[np.float64]:
        """Never: how many records were still active depends on the records, and so would the figure."""
        raise UnsupportedAccounting(_NO_VOTES)


@dataclass(frozen=True)
class IndividualRelease(GaussianRelease):
    """One noisy argmax, seen from a record that votes in it with full weight.

    ``sigma`` is in votes, the counts are in units of 1/``levels``.
    """

    levels: int = 1

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        """One vote per record appears or disappears: L2 1 for a record, k for k records."""
        return gaussian_curve(float(unit.votes), self.sigma, orders)

    def run(self, counts: IntArray, noise: Noise, predictions: IntArray | None = None) -> IntArray:
        units = checked_counts(counts)
        return winners(units + noise.gaussian(self.sigma * self.levels, units.shape))

    def classic_charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        return self.charge(orders, unit)

    def privacy_loss(self, unit: Unit) -> Any:
        return pld.shifted_gaussian_loss(self.sigma, float(unit.votes))


@register
@dataclass(frozen=True)
class NoisedIndividualKNN:
    """IndividualKNN on a sum that carries Gaussian noise of at least ``sigma`` votes already."""

    name: ClassVar[str] = "noised-individual-knn"
    source: ClassVar[str] = f"{IndividualKNN.source}; {SOURCE}"

    sigma: float
    participations: int
    honest_survivors: int
    levels: int = 1

    def __post_init__(self) -> None:
        check_positive(self.name, sigma=self.sigma, honest_survivors=self.honest_survivors)
        check_positive(self.name, participations=self.participations, levels=self.levels)
        _check_whole(self.name, participations=self.participations, levels=self.levels)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (
            NoisedIndividualStage(
                "noised release",
                self.sigma * self.levels,
                int(self.honest_survivors),
                levels=int(self.levels),
            ),
        )

    def parameters(self) -> dict[str, float | int | str]:
        return {
            "sigma": self.sigma,
            "participations": self.participations,
            "honest_survivors": self.honest_survivors,
            "levels": self.levels,
        }

    def charged_queries(self, queries: int) -> int:
        """P, as for the sum without noise; ``queries`` below P may each be asked more than once."""
        return int(self.participations)

    def exact_loss(
        self, counts: IntArray, orders: tuple[float, ...], adjacency: Adjacency, discrete: bool
    ) -> NDArray[np.float64]:
        raise UnsupportedAccounting(_NO_VOTES)


@dataclass(frozen=True)
class NoisedIndividualStage(NoisedStage):
    """A noised sum in units of 1/``levels``, seen from a record that spends one full-weight participation.

    It may do so in up to ``levels²`` sums, one unit in each: the Gaussian cost is the same, and the part by
    which summed discrete Gaussians differ from one is charged for each of them.
    """

    levels: int = 1

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        share = noise_share_sigma(self.sigma, self.honest_survivors)
        return noised_sum_curve(
            orders,
            share,
            self.honest_survivors,
            l2_squared=float((unit.votes * self.levels) ** 2),
            changed_entries=unit.votes * self.levels**2,
        )


def noised_neighbours(mechanism: IndividualKNN, honest_survivors: int) -> NoisedIndividualKNN:
    """``mechanism`` for sums that ``honest_survivors`` or more honest parties noised."""
    return NoisedIndividualKNN(mechanism.sigma, mechanism.participations, honest_survivors, mechanism.levels)


def _check_whole(mechanism: str, **values: float) -> None:
    for key, value in values.items():
        if value != int(value):
            raise ConfigurationError(f"{mechanism}: {key} must be a whole number")
    if values["levels"] > MAX_WEIGHT_LEVELS:
        raise ConfigurationError(f"{mechanism}: levels must be at most {MAX_WEIGHT_LEVELS}")
