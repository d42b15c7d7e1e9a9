"""The figures of `collegium account`: every ε that can be said of a plan or of saved votes, side by side."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from numpy.typing import ArrayLike

from collegium.errors import ConfigurationError
from collegium.privacy.accounting.pld import composed_epsilon
from collegium.privacy.mechanisms.base import Mechanism
from collegium.privacy.renyi import WIDE_ORDERS, Conversion, Epsilon, FloatArray, RenyiCurve
from collegium.privacy.units import Adjacency, IntArray, Unit
from collegium.privacy.vote_counts import checked_counts

SECRET_FIGURES = ("epsilon_paper_bound", "epsilon_exact", "epsilon_exact_released")
"""Figures that depend on the votes: they may leave a consortium only through smooth sensitivity."""


@dataclass(frozen=True)
class AccountQuery:
    """What is asked: the plan, the target δ, the unit and how to convert.

    Parameters
    ----------
    mechanism : Mechanism
        What releases the labels.
    queries : int
        Queries that enter its first stage.
    delta : float
        δ of the guarantee.
    orders : tuple of float
        Rényi orders of the account.
    conversion : Conversion
        From Rényi to (ε, δ).
    unit : Unit or None
        Whose data are protected; one vote under the mechanism's own adjacency where it is None.
    answered : int or None
        Queries that reach the later stages; all of them where it is None.
    classic : bool
        By the published bound in place of the best that is proven here.

    Raises
    ------
    UnsupportedAccounting
        If the mechanism's charge does not cover the unit.
    """

    mechanism: Mechanism
    queries: int
    delta: float
    orders: tuple[float, ...]
    conversion: Conversion = Conversion.IMPROVED
    unit: Unit | None = None
    answered: int | None = None
    classic: bool = False

    @property
    def protected(self) -> Unit:
        """The unit that is accounted for."""
        return self.mechanism.checked_unit(self.unit)


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

    @property
    def epsilon(self) -> float:
        """The ε to publish: it holds whatever the votes are."""
        return self.epsilon_data_independent

    def as_dict(self) -> dict[str, Any]:
        """For JSON: infinite values as the string "inf"."""
        plain = asdict(self)
        plain.update(plain.pop("extra"))
        return {key: _json(value) for key, value in plain.items()}


def account(
    mechanism: Mechanism,
    *,
    queries: int | None = None,
    votes: ArrayLike | None = None,
    delta: float = 1e-5,
    answered: int | None = None,
    unit: Literal["record", "party"] = "record",
    teachers_per_party: int = 1,
    adjacency: Adjacency | None = None,
) -> PrivacyReport:
    """The ε of a plan, or of saved votes, by every analysis that applies.

    Parameters
    ----------
    mechanism : Mechanism
        What releases the labels, such as ``GNMax(sigma=40)``; its noise is in votes.
    queries : int, optional
        Number of queries. Give it or ``votes``.
    votes : array_like, optional
        Whole numbers of votes, shape ``[queries, classes]``. Figures computed from them are secret.
    delta : float
        δ of the guarantee, in (0, 1).
    answered : int, optional
        Queries that pass the first stage of a mechanism with several; all of them where it is left out.
    unit : str
        Whose data the ε is about: ``record`` or ``party``.
    teachers_per_party : int
        Votes that one party casts; for the unit ``party``.
    adjacency : Adjacency, optional
        Whether a vote moves (``replace``) or comes and goes; the mechanism's own where it is left out.

    Returns
    -------
    PrivacyReport
        Its ``epsilon`` may be published; ``as_dict()`` holds all figures.

    Raises
    ------
    ConfigurationError
        If neither or both of ``queries`` and ``votes`` are given, or a number is out of range.
    DataError
        If ``votes`` are not counts.
    UnsupportedAccounting
        If the mechanism's analysis does not cover the unit, the adjacency or votes.

    References
    ----------
    Papernot et al. 2017 and 2018 for the mechanisms; Canonne, Kamath and Steinke 2020, Proposition 12, for the
    conversion of Rényi divergences; docs/privacy.md for the bound of the argmax.
    """
    if (queries is None) == (votes is None):
        raise ConfigurationError("say what to account for: either queries=N or votes=[queries, classes]")
    counts = None if votes is None else checked_counts(votes)
    protected = mechanism.party_unit(teachers_per_party, adjacency) if unit == "party" else mechanism.unit(1, adjacency)
    number = queries if queries is not None else 0 if counts is None else len(counts)
    question = AccountQuery(mechanism, number, delta, WIDE_ORDERS, unit=protected, answered=answered)
    return state(question, counts)


def _json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "inf" if value > 0 else None
    return list(value) if isinstance(value, tuple) else value


def data_independent(question: AccountQuery, classic: bool | None = None) -> RenyiCurve:
    """The composed curve of the plan: what a budget stops on."""
    return question.mechanism.charge(
        question.orders,
        question.protected,
        queries=question.queries,
        answered=question.answered,
        published=question.classic if classic is None else classic,
    )


def state(question: AccountQuery, votes: IntArray | None = None) -> PrivacyReport:
    """Account for a plan, or for ``votes`` of shape ``[queries, classes]``.

    Raises UnsupportedAccounting when votes are given for a mechanism whose loss must not be computed
    from votes, or when the unit is not one that it accounts for.
    """
    mechanism, unit = question.mechanism, question.protected
    independent, classic = (
        data_independent(question, bound).to_epsilon(question.delta, question.conversion) for bound in (None, True)
    )
    notes: list[str] = []
    paper, exact, released = _from_votes(question, votes, notes)
    return PrivacyReport(
        mechanism=mechanism.name,
        parameters=mechanism.parameters(),
        queries=question.queries,
        answered=question.answered,
        unit="record" if unit.votes == 1 else "party",
        votes_per_unit=unit.votes,
        adjacency=unit.adjacency.value,
        delta=question.delta,
        bound="classic" if question.classic else "argmax",
        epsilon_data_independent=independent.epsilon,
        epsilon_data_independent_classic=classic.epsilon,
        epsilon_data_independent_pld=_loss_distribution_epsilon(question),
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
        extra=mechanism.other_figures(question.queries, question.delta, question.orders, votes),
    )


def _loss_distribution_epsilon(question: AccountQuery) -> float | None:
    mechanism = question.mechanism
    losses = [stage.privacy_loss(question.protected) for stage in mechanism.stages]
    if any(loss is None for loss in losses):
        return None
    counts = mechanism.queries_per_stage(question.queries, question.answered)
    return composed_epsilon(zip(losses, counts, strict=True), question.delta)


def _from_votes(
    question: AccountQuery, votes: IntArray | None, notes: list[str]
) -> tuple[Epsilon | None, Epsilon | None, Epsilon | None]:
    if votes is None:
        return None, None, None
    mechanism, unit = question.mechanism, question.protected
    paper = _converted(question, mechanism.paper_bound(votes, question.orders, unit))
    if paper is not None:
        notes.append("the paper's bound covers one direction only")
    if unit.votes > 1:
        notes.append("the exact loss is computed for units of one vote")
        return paper, None, None
    continuous, discrete = (
        _converted(question, mechanism.exact_loss(votes, question.orders, unit.adjacency, kind))
        for kind in (False, True)
    )
    known = continuous is not None
    notes.append("figures computed from the votes are secret" if known else f"{mechanism.name} has no exact analysis")
    return paper, continuous, discrete


def _converted(question: AccountQuery, losses: FloatArray | None) -> Epsilon | None:
    if losses is None:
        return None
    return RenyiCurve(question.orders, losses.sum(axis=0)).to_epsilon(question.delta, question.conversion)
