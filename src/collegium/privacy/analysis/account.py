"""The figures of `collegium account`: every ε that can be said of a plan or of saved votes, side by side."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from collegium.errors import ConfigurationError, UnsupportedAccounting
from collegium.privacy.accounting.pld import composed_epsilon
from collegium.privacy.mechanisms.base import HasClassicCharge, HasExactLoss, HasPaperBound, HasRunCharge, Mechanism
from collegium.privacy.renyi import Conversion, Epsilon, FloatArray, RenyiCurve
from collegium.privacy.units import IntArray, Unit

SECRET_FIGURES = ("epsilon_paper_bound", "epsilon_exact", "epsilon_exact_released")
"""Figures that depend on the votes: they may leave a consortium only through smooth sensitivity."""


@dataclass(frozen=True)
class AccountQuery:
    """What is asked: the plan, the target δ, the unit and how to convert."""

    mechanism: Mechanism
    queries: int
    delta: float
    orders: tuple[float, ...]
    conversion: Conversion = Conversion.IMPROVED
    unit: Unit = field(default_factory=Unit)
    answered: int | None = None
    classic: bool = False

    def queries_per_stage(self) -> tuple[int, ...]:
        """The first stage sees every query, later ones those that went on (all, unless ``answered`` says)."""
        if self.queries < 0 or (self.answered is not None and not 0 <= self.answered <= self.queries):
            raise ConfigurationError(f"answered must lie between 0 and the {self.queries} queries; got {self.answered}")
        later = self.queries if self.answered is None else self.answered
        counts = (self.queries,) + (later,) * (len(self.mechanism.stages) - 1)
        if isinstance(self.mechanism, HasRunCharge):
            return tuple(self.mechanism.charged_queries(count) for count in counts)
        return counts


@dataclass(frozen=True)
class PrivacyReport:
    """Every ε at one δ. ``None`` where an analysis does not apply, with the reason in ``notes``."""

    mechanism: str
    parameters: dict[str, float | int | str]
    queries: int
    answered: int | None
    unit: str
    votes_per_unit: int
    adjacency: str
    delta: float
    bound: str
    epsilon_data_independent: float
    epsilon_data_independent_classic: float | None
    epsilon_data_independent_pld: float | None
    epsilon_paper_bound: float | None
    epsilon_exact: float | None
    epsilon_exact_released: float | None
    order: float
    order_paper_bound: float | None
    order_exact: float | None
    orders: tuple[float, ...]
    conversion: str
    secret: tuple[str, ...]
    notes: tuple[str, ...]
    extra: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: infinite values as the string "inf"."""
        plain = asdict(self)
        plain.update(plain.pop("extra"))
        return {key: _json(value) for key, value in plain.items()}


def _json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "inf" if value > 0 else None
    return list(value) if isinstance(value, tuple) else value


def data_independent(question: AccountQuery) -> RenyiCurve:
    """The composed curve of the plan: what a budget stops on."""
    return _composed(question, question.classic)


def _composed(question: AccountQuery, classic: bool) -> RenyiCurve:
    total = RenyiCurve.zero(question.orders)
    for stage, count in zip(question.mechanism.stages, question.queries_per_stage(), strict=True):
        if classic and not isinstance(stage, HasClassicCharge):
            raise UnsupportedAccounting(f"{question.mechanism.name} has no published bound of its {stage.name}")
        one = stage.classic_charge if classic and isinstance(stage, HasClassicCharge) else stage.charge
        total = total + one(question.orders, question.unit) * count
    return total


def state(question: AccountQuery, votes: IntArray | None = None) -> PrivacyReport:
    """Account for a plan, or for ``votes`` of shape ``[queries, classes]``.

    Raises UnsupportedAccounting when votes are given for a mechanism whose loss must not be computed
    from votes.
    """
    published = all(isinstance(stage, HasClassicCharge) for stage in question.mechanism.stages)
    independent = data_independent(question).to_epsilon(question.delta, question.conversion)
    notes: list[str] = []
    paper, exact, released = _from_votes(question, votes, notes)
    return PrivacyReport(
        mechanism=question.mechanism.name,
        parameters=question.mechanism.parameters(),
        queries=question.queries,
        answered=question.answered,
        unit="record" if question.unit.votes == 1 else "party",
        votes_per_unit=question.unit.votes,
        adjacency=question.unit.adjacency.value,
        delta=question.delta,
        bound="classic" if question.classic else "argmax",
        epsilon_data_independent=independent.epsilon,
        epsilon_data_independent_classic=(
            _composed(question, True).to_epsilon(question.delta, question.conversion).epsilon if published else None
        ),
        epsilon_data_independent_pld=_loss_distribution_epsilon(question) if published else None,
        epsilon_paper_bound=paper.epsilon if paper else None,
        epsilon_exact=exact.epsilon if exact else None,
        epsilon_exact_released=released.epsilon if released else None,
        order=independent.order,
        order_paper_bound=paper.order if paper else None,
        order_exact=exact.order if exact else None,
        orders=question.orders,
        conversion=question.conversion.value,
        secret=SECRET_FIGURES if votes is not None else (),
        notes=tuple(notes),
    )


def _loss_distribution_epsilon(question: AccountQuery) -> float:
    parts = [
        (stage.privacy_loss(question.unit), count)
        for stage, count in zip(question.mechanism.stages, question.queries_per_stage(), strict=True)
        if isinstance(stage, HasClassicCharge)
    ]
    return composed_epsilon(parts, question.delta)


def _from_votes(
    question: AccountQuery, votes: IntArray | None, notes: list[str]
) -> tuple[Epsilon | None, Epsilon | None, Epsilon | None]:
    if votes is None:
        return None, None, None
    mechanism = question.mechanism
    paper = None
    if isinstance(mechanism, HasPaperBound):
        paper = _converted(question, mechanism.paper_bound(votes, question.orders, question.unit))
        notes.append("the paper's bound covers one direction only")
    if not isinstance(mechanism, HasExactLoss):
        notes.append(f"{mechanism.name} has no exact analysis of votes")
        return paper, None, None
    notes.append("figures computed from the votes are secret")
    if question.unit.votes > 1:
        notes.append("the exact loss is computed for units of one vote")
        return paper, None, None
    continuous, discrete = (
        _converted(question, mechanism.exact_loss(votes, question.orders, question.unit.adjacency, kind))
        for kind in (False, True)
    )
    return paper, continuous, discrete


def _converted(question: AccountQuery, losses: FloatArray) -> Epsilon:
    return RenyiCurve(question.orders, losses.sum(axis=0)).to_epsilon(question.delta, question.conversion)
