"""The account of a plan or of saved votes: what `collegium account` and `collegium.account` show."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from numpy.typing import ArrayLike

from collegium.errors import ConfigurationError
from collegium.privacy.analysis.epsilons import (
    LARGEST_PLD_EPSILON,
    Bound,
    Epsilons,
    ExactEpsilon,
    SecretEpsilons,
    StageCharge,
    all_epsilons,
    exact_epsilon,
    planned_charges,
    secret_epsilons,
    value_of,
)
from collegium.privacy.mechanisms.base import Mechanism
from collegium.privacy.renyi import WIDE_ORDERS, Conversion, Epsilon
from collegium.privacy.units import Adjacency, IntArray, Unit, checked_counts

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
    bound : Bound
        The bound of the headline. The exact accountant may take a minute where nothing is kept from an earlier call.
    classes : int or None
        The number of classes, where it is known: two classes cost less.
    loss_distribution : bool
        Also compute the value by privacy loss distributions.

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
    bound: Bound = "exact"
    classes: int | None = None
    loss_distribution: bool = False

    @property
    def protected(self) -> Unit:
        """The unit that is accounted for."""
        return self.mechanism.checked_unit(self.unit)

    @property
    def charges(self) -> tuple[StageCharge, ...]:
        """What each stage is charged."""
        return planned_charges(self.mechanism, self.protected, self.queries, self.answered)

    @property
    def renyi(self) -> Epsilon:
        """ε by the composed Rényi curve of the plan."""
        curve = self.mechanism.charge(self.orders, self.protected, queries=self.queries, answered=self.answered)
        return curve.to_epsilon(self.delta, self.conversion)


@dataclass(frozen=True)
class PrivacyReport:
    """Every ε of a plan or of saved votes.

    Parameters
    ----------
    question : AccountQuery
        What was asked.
    independent : Epsilons
        What holds whatever the votes are.
    from_votes : SecretEpsilons or None
        What follows from the votes, which is as secret as they are; None for a plan.
    notes : tuple of str
        What a reader should know of these figures.
    other : dict
        Further figures of the mechanism, by the names that they have in JSON.
    """

    question: AccountQuery
    independent: Epsilons
    from_votes: SecretEpsilons | None
    notes: tuple[str, ...]
    other: dict[str, float]

    @property
    def epsilon(self) -> float:
        """The ε to publish: it holds whatever the votes are."""
        return self.independent.epsilon

    @property
    def delta(self) -> float:
        """The δ of every ε here."""
        return self.question.delta

    def as_dict(self) -> dict[str, Any]:
        """For JSON: infinite values as the string "inf", None where an analysis does not apply."""
        asked, found, secret = self.question, self.independent, self.from_votes or SecretEpsilons()
        unit = asked.protected
        values = {
            "mechanism": asked.mechanism.name,
            "parameters": asked.mechanism.parameters(),
            "queries": asked.queries,
            "answered": asked.answered,
            "unit": "record" if unit.votes == 1 else "party",
            "votes_per_unit": unit.votes,
            "adjacency": unit.adjacency.value,
            "delta": asked.delta,
            "bound": asked.bound,
            "epsilon": self.epsilon,
            "epsilon_attained": found.attained,
            "epsilon_gap": None if found.attained is None else found.epsilon - found.attained,
            "epsilon_data_independent": self.epsilon,
            "epsilon_data_independent_classic": value_of(found.published),
            "epsilon_data_independent_moments": value_of(found.moments),
            "epsilon_data_independent_pld": found.loss_distribution,
            "epsilon_paper_bound": value_of(secret.paper_bound),
            "epsilon_exact": value_of(secret.exact),
            "epsilon_exact_released": value_of(secret.exact_released),
            "order": found.published and found.published.order,
            "order_paper_bound": secret.paper_bound and secret.paper_bound.order,
            "order_exact": secret.exact and secret.exact.order,
            "orders": asked.orders,
            "conversion": asked.conversion.value,
            "secret": () if self.from_votes is None else SECRET_FIGURES,
            "notes": self.notes,
            **self.other,
        }
        return {key: _json(value) for key, value in values.items()}


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
    bound: Bound = "exact",
    classes: int | None = None,
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
    bound : Bound
        What ``epsilon`` is: by the exact accountant (may take a minute where nothing is kept from an earlier call), or
        by published bounds.
    classes : int, optional
        Number of classes; two cost less. That of ``votes`` where it is left out.

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
    question = AccountQuery(
        mechanism, number, delta, WIDE_ORDERS, unit=protected, answered=answered, bound=bound, classes=classes
    )
    return privacy_report(question, counts)


def privacy_report(question: AccountQuery, votes: IntArray | None = None) -> PrivacyReport:
    """Account for a plan, or for ``votes`` of shape ``[queries, classes]``.

    Raises UnsupportedAccounting when votes are given for a mechanism whose loss must not be computed
    from votes, or when the unit is not one that it accounts for.
    """
    mechanism, secret = question.mechanism, None
    classes, charges = question.classes if votes is None else votes.shape[1], question.charges
    independent = all_epsilons(
        charges,
        exact_epsilon(charges, question.delta, classes) if question.bound == "exact" else ExactEpsilon(math.inf, None),
        question.delta,
        orders=question.orders,
        conversion=question.conversion,
        loss_distribution=question.loss_distribution,
    )
    if question.bound == "classic" and independent.published is not None:
        independent = replace(independent, epsilon=independent.published.epsilon)
    if votes is not None:
        secret = secret_epsilons(
            mechanism,
            votes,
            question.delta,
            unit=question.protected,
            orders=question.orders,
            conversion=question.conversion,
        )
    return PrivacyReport(
        question=question,
        independent=independent,
        from_votes=secret,
        notes=(*_notes_on_size(question, independent), *(() if secret is None else _notes(question, secret))),
        other=mechanism.other_figures(question.queries, question.delta, question.orders, votes),
    )


def _notes_on_size(question: AccountQuery, found: Epsilons) -> list[str]:
    if not question.loss_distribution or found.published is None or found.published.epsilon <= LARGEST_PLD_EPSILON:
        return []
    return [f"no loss distribution is computed where the published bound is above ε = {LARGEST_PLD_EPSILON:g}"]


def _notes(question: AccountQuery, secret: SecretEpsilons) -> list[str]:
    notes = [] if secret.paper_bound is None else ["the paper's bound covers one direction only"]
    if question.protected.votes > 1:
        return [*notes, "the exact loss is computed for units of one vote"]
    if secret.exact is None:
        return [*notes, f"{question.mechanism.name} has no exact analysis"]
    return [*notes, "figures computed from the votes are secret"]


def _json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "inf" if value > 0 else None
    return list(value) if isinstance(value, tuple) else value
