"""Individual k-nearest neighbours: records within a public radius vote, and each has a budget of its own.

Zhu et al. 2023 on the individual Rényi filter of Feldman and Zrnic 2021. Whether a record votes depends on
itself and on public data alone, so each vote moves one count by at most 1 and costs its record
α/(2σ²) at order α. A record that voted ``participations`` times leaves for good; the party keeps count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from collegium.coordinator.accounting import pld
from collegium.coordinator.mechanisms.base import Stage, Unit
from collegium.coordinator.mechanisms.gnmax import GaussianRelease
from collegium.coordinator.mechanisms.registry import register
from collegium.coordinator.mechanisms.votes import check_positive
from collegium.protocol.errors import ConfigurationError
from collegium.protocol.renyi import RenyiCurve, gaussian_curve


@register
@dataclass(frozen=True)
class IndividualKNN:
    """Argmax of the votes of the records within a radius + N(0, σ²); each record votes at most P times.

    Parameters
    ----------
    sigma : noise on each count, in votes.
    participations : P, votes that one record may cast over the whole run.
    """

    name: ClassVar[str] = "individual-knn"
    source: ClassVar[str] = "Zhu et al. 2023; Feldman and Zrnic 2021, individual Rényi filter"

    sigma: float
    participations: int

    def __post_init__(self) -> None:
        check_positive(self.name, sigma=self.sigma, participations=self.participations)
        if self.participations != int(self.participations):
            raise ConfigurationError(f"{self.name}: participations must be a whole number")

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (IndividualRelease("release", self.sigma),)

    def parameters(self) -> dict[str, float | int | str]:
        return {"sigma": self.sigma, "participations": self.participations}

    def charged_queries(self, queries: int) -> int:
        """P, however many ``queries`` were asked: a record that has voted P times is out."""
        return min(int(self.participations), queries)


@dataclass(frozen=True)
class IndividualRelease(GaussianRelease):
    """One noisy argmax, seen from a record that votes in it."""

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        """One vote per record appears or disappears: L2 1 for a record, k for k records."""
        return gaussian_curve(float(unit.votes), self.sigma, orders)

    def classic_charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        return self.charge(orders, unit)

    def privacy_loss(self, unit: Unit) -> Any:
        return pld.shifted_gaussian_loss(self.sigma, float(unit.votes))
