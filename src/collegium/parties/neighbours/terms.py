"""What a run's terms allow one record, in whole numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from collegium.data.task import Task
from collegium.errors import Refused
from collegium.limits import MAX_WEIGHT_LEVELS
from collegium.privacy.multilabel import MAX_LABELS
from collegium.protocol.messages import CastNeighbours, CountNearest, Terms

NEIGHBOUR_MECHANISMS = ("individual-knn", "noised-individual-knn")
"""Mechanisms whose cost falls on single records."""

SAMPLED_KNN = "knn"
MULTILABEL_KNN = "multilabel-knn"
SAMPLED_MECHANISMS = (SAMPLED_KNN, MULTILABEL_KNN)
"""Mechanisms that a fresh sample of the records answers; by the second, records hold several labels."""

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
        return min(body.terms.parameters[name] for name in _noise_names(body.terms))
    return RunTerms.of(body.terms).noise_votes


def check_sampled(body: CountNearest) -> None:
    """Raise Refused unless the terms state what an answer costs a record, and can be kept."""
    terms = body.terms
    if terms.mechanism not in SAMPLED_MECHANISMS or (terms.mechanism == MULTILABEL_KNN) != (body.tau is not None):
        raise Refused(f"this party cannot tell what the mechanism {terms.mechanism!r} would cost a record")
    if terms.adjacency != "add-remove":
        raise Refused("samples of the records answer under add-remove adjacency alone")
    if terms.sum_mode == "masked+noised":
        raise Refused("knn needs exact sums, by which the k-th neighbour is found: ask in the mode 'masked'")
    for name in _noise_names(terms):
        if not terms.parameters.get(name, math.nan) > 0:
            raise Refused(f"the terms of {terms.mechanism} lack a positive {name}")
    if terms.mechanism == MULTILABEL_KNN:
        _whole(terms, "labels", MAX_LABELS)


def check_task(body: CountNearest, task: Task) -> None:
    """Raise Refused unless the terms are about as many labels a record as the task's records hold."""
    several = body.terms.mechanism == MULTILABEL_KNN
    if several != task.multilabel:
        held = "any of the classes" if task.multilabel else "one class each"
        raise Refused(f"{body.terms.mechanism} does not suit this task, whose records hold {held}")
    if several and body.terms.parameters["labels"] != len(task.classes):
        raise Refused(f"the terms of {body.terms.mechanism} are about another number of labels than the task has")


def _noise_names(terms: Terms) -> tuple[str, ...]:
    return ("sigma",) if terms.mechanism == MULTILABEL_KNN else ("sigma1", "sigma2")


def _whole(terms: Terms, name: str, largest: int) -> int:
    value = terms.parameters.get(name, math.nan)
    if not (1 <= value <= largest and value == int(value)):
        raise Refused(f"the terms of {terms.mechanism} need {name} as a whole number from 1 to {largest}")
    return int(value)
