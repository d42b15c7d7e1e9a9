"""Individual k-nearest neighbours: records within a public radius vote, and each has a budget of its own.

Zhu et al. 2023 on the individual Rényi filter of Feldman and Zrnic 2021. Whether a record votes depends on
itself and on public data alone, so each vote moves one count by at most 1 and costs its record
α/(2σ²) at order α. A record that voted ``participations`` times leaves for good; the party keeps count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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

    def run_charge(self, queries: int, orders: tuple[float, ...], unit: Unit | None = None) -> RenyiCurve:
        """Cost of a whole run to any unit of ``unit.votes`` records, however many ``queries`` were asked."""
        rounds = min(int(self.participations), queries)
        return self.stages[0].charge(orders, unit or Unit()) * rounds


@dataclass(frozen=True)
class IndividualRelease(GaussianRelease):
    """One noisy argmax, seen from a record that votes in it."""

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        """One vote per record appears or disappears: L2 1 for a record, k for k records."""
        return gaussian_curve(float(unit.votes), self.sigma, orders)
