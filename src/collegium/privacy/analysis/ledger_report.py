"""What a ledger's entries come to: ε for every privacy unit, and as queries went by.

Everything here is data-independent, follows from the entries alone, and may be published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collegium.privacy.analysis.epsilons import Epsilons, StageCharge, all_epsilons
from collegium.privacy.ledger.entry import Charge, Terms
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.mechanisms import Adjacency, Stage, Unit, create, mechanism_named
from collegium.privacy.renyi import Epsilon, RenyiCurve

_NOT_PARAMETERS = ("name", "votes_per_unit", "adjacency", "bound")
_POINTS = 60


@dataclass(frozen=True)
class LedgerReport:
    """The terms of a ledger and what was charged.

    Parameters
    ----------
    terms : Terms
        Those in force.
    source : str
        The paper and theorem behind the charges of their mechanism; empty where they name none.
    earlier_terms : tuple of Terms
        Those before them under which something was charged.
    delta : float
        δ of every ε here.
    guarantee : float
        The ε that may be published for the unit of the terms.
    units : mapping
        Every ε for each unit (``record``, ``party``) that charges are stated for under the adjacency in force.
    queries_charged : int
        Answers that were paid for.
    by_queries : tuple of pairs
        Queries asked so far, and the ε after them for the unit of the terms.
    adjacency : tuple of str
        What neighbouring data sets were, over all charges.
    from_utc, until_utc : str or None
        When the first and the last charge were made; None before any.
    """

    terms: Terms
    source: str
    earlier_terms: tuple[Terms, ...]
    delta: float
    guarantee: float
    units: Mapping[str, Epsilons]
    queries_charged: int
    by_queries: tuple[tuple[int, float], ...]
    adjacency: tuple[str, ...]
    from_utc: str | None
    until_utc: str | None

    @property
    def epsilon(self) -> Epsilon:
        """What was charged to the unit of the terms, as the budget counts it."""
        return self.units[self.terms.unit].charged

    @property
    def adaptive(self) -> bool:
        """Whether charges depended on earlier answers: the guarantee is then a budget that the filter kept."""
        return self.terms.filter_order is not None


def charged_epsilons(ledger: Ledger) -> dict[str, Epsilon]:
    """ε of everything charged, for each unit that charges are stated for under the adjacency in force."""
    adjacency = ledger.terms().adjacency
    return {unit[0]: ledger.epsilon(unit) for unit in ledger.units() if unit[1] == adjacency}


def ledger_report(ledger: Ledger) -> LedgerReport:
    """Every ε of everything charged, from the ledger's entries alone."""
    entries = [entry for entry in ledger.entries() if isinstance(entry.content, Charge)]
    charges = [(entry.content, entry.terms) for entry in entries if isinstance(entry.content, Charge)]
    terms, adaptive = ledger.terms(), ledger.terms().filter_order is not None
    earlier: list[Terms] = []
    for _, held in charges:
        if held != terms and held not in earlier:
            earlier.append(held)
    units = {}
    for name, charged in charged_epsilons(ledger).items():
        stages = _stage_charges(charges, name, terms.adjacency)
        units[name] = (
            Epsilons(charged) if stages is None else all_epsilons(stages, charged, loss_distribution=not adaptive)
        )
    return LedgerReport(
        terms=terms,
        source=mechanism_named(name).source if (name := str(terms.mechanism.get("name", ""))) else "",
        earlier_terms=tuple(earlier),
        delta=ledger.settings.delta,
        guarantee=ledger.guarantee(),
        units=units,
        queries_charged=sum(charge.queries for charge, _ in charges if charge.queries_sha256),
        by_queries=_by_queries(ledger, charges),
        adjacency=tuple(sorted({str(charge.mechanism["adjacency"]) for charge, _ in charges})),
        from_utc=entries[0].time_utc if entries else None,
        until_utc=entries[-1].time_utc if entries else None,
    )


def _stage_charges(charges: Sequence[tuple[Charge, Terms]], unit: str, adjacency: str) -> list[StageCharge] | None:
    """Equal charges added up, their stages made from the entries; None where one is not stated for the unit."""
    queries: dict[tuple[Any, ...], int] = {}
    for charge, terms in charges:
        curve = charge.curves[terms.unit]
        if not curve.values.any() and not curve.delta:
            continue  # paid for with the run as a whole
        if unit not in terms.votes_per_unit or charge.mechanism["adjacency"] != adjacency:
            return None
        key = (charge.purpose, terms.votes_per_unit[unit], *sorted(charge.mechanism.items()))
        queries[key] = queries.get(key, 0) + charge.queries
    return [
        StageCharge(_stage(purpose, dict(held)), Unit(votes, Adjacency(adjacency)), count)
        for (purpose, votes, *held), count in queries.items()
    ]


def _stage(purpose: str, held: Mapping[str, Any]) -> Stage:
    mechanism = create(held["name"], **{name: value for name, value in held.items() if name not in _NOT_PARAMETERS})
    return next(stage for stage in mechanism.stages if stage.name == purpose)


def _by_queries(ledger: Ledger, charges: Sequence[tuple[Charge, Terms]]) -> tuple[tuple[int, float], ...]:
    """A query counts where it enters the mechanism; what later stages add shows as a rise on the spot."""
    settings, terms = ledger.settings, ledger.terms()
    stated = [
        (charge, charge.curves[terms.unit])
        for charge, held in charges
        if terms.unit in charge.curves and held.adjacency == terms.adjacency
    ]
    total = sum(charge.queries for charge, _ in stated if charge.queries_sha256)
    step = max(1, total // _POINTS)
    asked, spent = 0, RenyiCurve.zero(settings.orders)
    first_stages: dict[str, str] = {}
    points = [(0, 0.0)]
    for charge, curve in stated:
        if charge.queries_sha256:  # else it pays for the run as a whole
            enters = first_stages.setdefault(str(charge.mechanism["name"]), charge.purpose) == charge.purpose
            for done in [*range(step, charge.queries, step), charge.queries]:
                at = settings.epsilon(spent + curve * done, terms.filter_order).epsilon
                points.append((asked + done if enters else asked, at))
            asked += charge.queries if enters else 0
        spent = spent + curve * charge.queries
    return tuple(points)
