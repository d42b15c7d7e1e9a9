"""The account of a plan or of saved votes: what `collegium account` and `collegium.account` show."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import ArrayLike

from collegium_accounting.analysis.epsilons import (
    Bound,
    SecretEpsilons,
    attained_epsilon,
    exact_epsilon,
    planned_charges,
    published_curve,
    value_of,
)
from collegium_accounting.errors import ConfigurationError
from collegium_accounting.extras import of_distribution
from collegium_accounting.mechanisms.base import Mechanism
from collegium_accounting.noise.distributed import COORDINATOR, AddedBy
from collegium_accounting.progress import Listener, telling
from collegium_accounting.renyi import PAPER_ORDERS, WIDE_ORDERS, Conversion, Epsilon
from collegium_accounting.units import Adjacency, Unit, checked_counts

ANY_NUMBER = 10**9
"""Queries of a run that is charged once, whatever their number."""

SECRET_FIGURES = ("epsilon_paper_bound", "epsilon_exact", "epsilon_exact_released")
"""Figures that depend on the votes: they may leave a consortium only through smooth sensitivity."""


@dataclass(frozen=True, repr=False)
class PrivacyReport:
    """Every ε of a plan or of saved votes.

    Parameters
    ----------
    mechanism, queries, answered, delta, bound, orders, conversion
        What was asked; see `account`.
    unit : Unit
        Whose data are protected.
    added : AddedBy
        Who adds the noise.
    epsilon : float
        The ε to publish, on which a budget stops: it holds whatever the votes are. By the exact accountant ε of every
        adversary is at most this; the published bounds where these were asked for.
    attained : float or None
        What a concrete adversary forces; see `epsilons.attained_epsilon`. None too where the exact accountant was not
        asked for.
    published : Epsilon
        By the Rényi bounds of published accountants.
    moments : Epsilon
        The same on moments λ ≤ 8 by the classic conversion, as in PATE (2017).
    from_votes : SecretEpsilons or None
        What follows from the votes, which is as secret as they are; None for a plan.
    notes : tuple of str
        What a reader should know of these figures.
    other : dict
        Further figures of the mechanism, by the names that they have in JSON.

    Examples
    --------
    >>> from collegium_accounting import GNMax, account
    >>> report = account(GNMax(sigma=40), queries=286, bound="classic")
    >>> f"{report.queries} queries, ε = {report.epsilon:.2f} at δ = {report.delta:g}"
    '286 queries, ε = 2.64 at δ = 1e-05'
    """

    mechanism: Mechanism
    queries: int
    answered: int | None
    unit: Unit
    added: AddedBy
    delta: float
    bound: Bound
    orders: tuple[float, ...]
    conversion: Conversion
    epsilon: float
    attained: float | None
    published: Epsilon
    moments: Epsilon
    from_votes: SecretEpsilons | None
    notes: tuple[str, ...]
    other: dict[str, float]

    def __repr__(self) -> str:
        asked = "released once" if self.mechanism.charged_once else f"{self.queries:,} queries"
        votes = f" for a party of {self.unit.votes} votes" if self.unit.votes > 1 else ""
        return f"{self.mechanism}, {asked}: ε = {self.epsilon:.4g} at δ = {self.delta:g}{votes}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON: infinite values as the string "inf", None where an analysis does not apply."""
        secret = self.from_votes or SecretEpsilons()
        values = {
            "mechanism": self.mechanism.name,
            "parameters": self.mechanism.parameters(),
            "queries": self.queries,
            "answered": self.answered,
            "unit": "record" if self.unit.votes == 1 else "party",
            "votes_per_unit": self.unit.votes,
            "adjacency": self.unit.adjacency.value,
            "noise_added_by": "parties" if self.added.parties else "coordinator",
            "honest_survivors": self.added.honest_survivors or None,
            "delta": self.delta,
            "bound": self.bound,
            "epsilon": self.epsilon,
            "epsilon_attained": self.attained,
            "epsilon_gap": None if self.attained is None else self.epsilon - self.attained,
            "epsilon_data_independent": self.epsilon,
            "epsilon_data_independent_classic": self.published.epsilon,
            "epsilon_data_independent_moments": self.moments.epsilon,
            "epsilon_paper_bound": value_of(secret.paper_bound),
            "epsilon_exact": value_of(secret.exact),
            "epsilon_exact_released": value_of(secret.exact_released),
            "order": self.published.order,
            "order_paper_bound": secret.paper_bound and secret.paper_bound.order,
            "order_exact": secret.exact and secret.exact.order,
            "orders": self.orders,
            "conversion": self.conversion.value,
            "secret": () if self.from_votes is None else SECRET_FIGURES,
            "notes": self.notes,
            **self.other,
        }
        return {key: _json(value) for key, value in values.items()}


def account(  # noqa: PLR0913 -- one call with names for a notebook; each is an option of the command
    mechanism: Mechanism,
    *,
    queries: int | None = None,
    votes: ArrayLike | None = None,
    delta: float = 1e-5,
    answered: int | None = None,
    unit: Literal["record", "party"] = "record",
    teachers_per_party: int = 1,
    adjacency: Adjacency | None = None,
    added: AddedBy = COORDINATOR,
    bound: Bound = "exact",
    classes: int | None = None,
    orders: tuple[float, ...] = WIDE_ORDERS,
    conversion: Conversion = Conversion.IMPROVED,
    progress: Listener | None = None,
) -> PrivacyReport:
    """The ε of a plan, or of saved votes, by every analysis that applies.

    Parameters
    ----------
    mechanism : Mechanism
        What releases the labels, such as ``ClassSums(sigma=4, classes=10)`` or ``GNMax(sigma=40)``, noise in votes.
    queries : int, optional
        Number of queries. Give it or ``votes``; class sums, which are charged once, need neither.
    votes : array_like, optional
        Whole numbers of votes, shape ``[queries, classes]``. Figures computed from them are secret, and need
        collegium-reproduction.
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
    added : AddedBy
        Who adds the noise; ``AddedBy(3)`` where parties do, of which at least 3 honest ones survive.
    bound : Bound
        What ``epsilon`` is: by the exact accountant (may take a minute where nothing is kept from an earlier call), or
        by published bounds.
    classes : int, optional
        Number of classes; two cost less. That of ``votes`` where these are given.
    orders : tuple of float
        Rényi orders of the published bounds and of what follows from votes.
    conversion : Conversion
        From Rényi to (ε, δ).
    progress : callable, optional
        Called with each `SearchStep` of a search that takes its time. Without it a line on standard error says within
        a second how far the search is.

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
    MissingExtra
        If there are ``votes``, and collegium-reproduction is not installed.

    References
    ----------
    Papernot et al. 2017 and 2018 for the mechanisms; Canonne, Kamath and Steinke 2020, Proposition 12, for the
    conversion of Rényi divergences; docs/research/exact-accountant.md for the bound of the argmax.

    Examples
    --------
    >>> from collegium_accounting import GNMax, account
    >>> round(account(GNMax(sigma=40), queries=286, bound="classic").epsilon, 3)
    2.644
    """
    if queries is None and votes is None and mechanism.charged_once:
        queries = mechanism.charged_queries(ANY_NUMBER, added)
    if (queries is None) == (votes is None):
        raise ConfigurationError("say what to account for: either queries=N or votes=[queries, classes]")
    counts = None if votes is None else checked_counts(votes)
    protected = mechanism.party_unit(teachers_per_party, adjacency) if unit == "party" else mechanism.unit(1, adjacency)
    number = queries if queries is not None else 0 if counts is None else len(counts)
    charges = planned_charges(mechanism, protected, number, answered, added)
    known, secret = classes, None
    if counts is not None:  # refused at once, before the exact accountant takes its time
        known = counts.shape[1]
        analysis = of_distribution("what follows from votes", "collegium_reproduction.secret_epsilons")
        secret = analysis.secret_epsilons(
            mechanism, counts, delta, unit=protected, added=added, orders=orders, conversion=conversion
        )
    published = published_curve(charges, orders).to_epsilon(delta, conversion)
    epsilon, attained = published.epsilon, None
    if bound == "exact":
        with telling(progress):
            attained, epsilon = attained_epsilon(charges, delta, known), exact_epsilon(charges, delta, known)
    return PrivacyReport(
        mechanism=mechanism,
        queries=number,
        answered=answered,
        unit=protected,
        added=added,
        delta=delta,
        bound=bound,
        orders=orders,
        conversion=conversion,
        epsilon=epsilon,
        attained=attained,
        published=published,
        moments=published_curve(charges, PAPER_ORDERS).to_epsilon(delta, Conversion.CLASSIC),
        from_votes=secret,
        notes=() if secret is None else tuple(_notes(mechanism, protected, secret)),
        other=mechanism.other_figures(number, delta, orders, counts),
    )


def _notes(mechanism: Mechanism, unit: Unit, secret: SecretEpsilons) -> list[str]:
    notes = [] if secret.paper_bound is None else ["the paper's bound covers one direction only"]
    if unit.votes > 1:
        return [*notes, "the exact loss is computed for units of one vote"]
    if secret.exact is None:
        return [*notes, f"{mechanism.name} has no exact analysis"]
    return [*notes, "figures computed from the votes are secret"]


def _json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "inf" if value > 0 else None
    return list(value) if isinstance(value, tuple) else value
