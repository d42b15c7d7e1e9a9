"""What a run's terms allow one record, in whole numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from collegium.protocol.errors import Refused
from collegium.protocol.limits import MAX_WEIGHT_LEVELS
from collegium.protocol.messages import CastNeighbours, CountNearest, Terms

NEIGHBOUR_MECHANISMS = ("individual-knn", "noised-individual-knn")
"""Mechanisms whose cost falls on single records."""

SAMPLED_MECHANISM = "knn"
"""The mechanism that a fresh sample of the records answers."""

DEFAULT_RECORD_RHO = 0.01
"""What one record may spend over all runs unless the institution's policy says otherwise (ε = 0.6 at δ = 1e-5)."""

_LARGEST_PARTICIPATIONS = 10**6


@dataclass(frozen=True)
class RunTerms:
    """The terms of one run.

    Parameters
    ----------
    sigma : noise on each entry of the sum, in units of a weight.
    levels : units of the largest weight.
    participations : full-weight votes that one record may cast.
    """

    sigma: float
    levels: int
    participations: int

    @classmethod
    def of(cls, terms: Terms) -> RunTerms:
        """Read from a request's terms; Refused where they do not state a record's cost."""
        if terms.mechanism not in NEIGHBOUR_MECHANISMS:
            raise Refused(f"this party cannot tell what the mechanism {terms.mechanism!r} would cost a record")
        if terms.adjacency != "add-remove":
            raise Refused("neighbours are answered under add-remove adjacency alone")
        sigma = terms.parameters.get("sigma", math.nan)
        levels = _whole(terms, "levels", MAX_WEIGHT_LEVELS)
        participations = _whole(terms, "participations", _LARGEST_PARTICIPATIONS)
        if not sigma > 0:
            raise Refused(f"the terms of {terms.mechanism} lack a positive sigma")
        return cls(sigma, levels, participations)

    @property
    def noise_votes(self) -> float:
        """σ in votes of the largest weight."""
        return self.sigma / self.levels

    @property
    def budget_units_squared(self) -> int:
        """What the squares of a record's weights, in units, may add up to within the run."""
        return self.participations * self.levels**2

    @property
    def rho_per_unit_squared(self) -> float:
        """Zero-concentrated cost of a weight of one unit: 1/(2σ²)."""
        return 1.0 / (2.0 * self.sigma**2)

    @property
    def rho_of_one_participation(self) -> float:
        return self.levels**2 * self.rho_per_unit_squared


def neighbour_noise_votes(body: CastNeighbours | CountNearest) -> float:
    """The smallest noise of the terms, in votes; Refused where they do not state it."""
    if isinstance(body, CountNearest):
        check_sampled(body)
        return min(body.terms.parameters["sigma1"], body.terms.parameters["sigma2"])
    return RunTerms.of(body.terms).noise_votes


def check_sampled(body: CountNearest) -> None:
    """Raise Refused unless the terms state what an answer costs a record, and can be kept."""
    terms = body.terms
    if terms.mechanism != SAMPLED_MECHANISM:
        raise Refused(f"this party cannot tell what the mechanism {terms.mechanism!r} would cost a record")
    if terms.adjacency != "add-remove":
        raise Refused("samples of the records answer under add-remove adjacency alone")
    if terms.sum_mode == "masked+noised":
        raise Refused("knn needs exact sums, by which the k-th neighbour is found: ask in the mode 'masked'")
    for name in ("sigma1", "sigma2"):
        if not terms.parameters.get(name, math.nan) > 0:
            raise Refused(f"the terms of {terms.mechanism} lack a positive {name}")


def _whole(terms: Terms, name: str, largest: int) -> int:
    value = terms.parameters.get(name, math.nan)
    if not (1 <= value <= largest and value == int(value)):
        raise Refused(f"the terms of {terms.mechanism} need {name} as a whole number from 1 to {largest}")
    return int(value)
