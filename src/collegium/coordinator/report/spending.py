"""What a ledger's charges add up to: ε for both privacy units and both grids of orders, and as queries went by.

Everything here is data-independent and may be published.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collegium.coordinator.run.labeller import charge_of
from collegium.privacy.accounting.pld import composed_epsilon
from collegium.privacy.ledger.chain import Entry
from collegium.privacy.ledger.entry import Charge, Terms
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.mechanisms import Adjacency, Stage, Unit, create
from collegium.privacy.renyi import PAPER_ORDERS, WIDE_ORDERS, Conversion, Epsilon, RenyiCurve

_NOT_PARAMETERS = ("name", "votes_per_unit", "adjacency", "bound")
_POINTS = 60
_LARGEST_PLD_EPSILON = 50.0
"""Beyond it a loss distribution fills the memory to say that there is no privacy."""


@dataclass(frozen=True)
class Spent:
    """Equal charges gathered: a stage, how it was charged, and for how many queries."""

    stage: Stage
    adjacency: Adjacency
    bound: str
    votes_per_unit: Mapping[str, int]
    queries: int

    def unit(self, name: str) -> Unit:
        return Unit(self.votes_per_unit[name], self.adjacency)


def spending(ledger: Ledger) -> dict[str, Any]:
    """ε of everything charged, from the ledger's entries alone.

    Returns
    -------
    ``epsilon`` as the ledger counts it; ``guarantee``, the ε that may be published for the budget's ``unit``;
    ``adaptive``, true where charges depended on answers: then the guarantee is the largest budget that the ledger's
    filter kept, not what was charged; ``mechanism``, ``parameters``, ``noise_source``, ``unit`` and ``budget`` of the
    terms in force, ``earlier_terms`` for those before under which something was charged; per unit ``wide`` (as
    entered, the ledger's conversion), ``classic`` (the same by the published bound), ``paper`` (moments
    λ ≤ 8, classic conversion, published bound, as in PATE) and ``pld`` (privacy loss distributions of the
    published mechanisms; None where they do not apply, or ε is past 50); ``by_queries``: pairs of queries
    asked so far and ε; ``adjacency``: what neighbouring data sets are; ``from_utc`` and ``until_utc``: when the
    first and the last charge were made, None before any.
    """
    entries = [entry for entry in ledger.entries() if isinstance(entry.content, Charge)]
    charges = [entry.content for entry in entries if isinstance(entry.content, Charge)]
    gathered = gather(entries)
    terms = ledger.terms()
    adaptive = terms.filter_order is not None
    charged = {json.dumps(_described(entry.terms), sort_keys=True): _described(entry.terms) for entry in entries}
    return {
        **_described(terms),
        "earlier_terms": [described for described in charged.values() if described != _described(terms)],
        "guarantee": ledger.guarantee(),
        "delta": ledger.settings.delta,
        "epsilon": as_dict(ledger.epsilon()),
        "adaptive": adaptive,
        "queries_charged": sum(charge.queries for charge in charges if charge.queries_sha256),
        "units": {
            name: _unit(ledger, name, gathered, adaptive)
            for name, adjacency in ledger.units()
            if adjacency == terms.adjacency
        },
        "by_queries": _by_queries(ledger, entries),
        "adjacency": sorted({spent.adjacency.value for spent in gathered}),
        "from_utc": entries[0].time_utc if entries else None,
        "until_utc": entries[-1].time_utc if entries else None,
    }


def _described(terms: Terms) -> dict[str, Any]:
    parameters = {name: value for name, value in terms.mechanism.items() if name not in _NOT_PARAMETERS}
    return {
        "mechanism": terms.mechanism.get("name", "any"),
        "parameters": parameters,
        "noise_source": terms.noise,
        "unit": terms.unit,
        "budget": terms.epsilon_budget,
        "votes_per_unit": dict(terms.votes_per_unit),
    }


def as_dict(epsilon: Epsilon) -> dict[str, Any]:
    """An ε with all that it takes to read it."""
    return {
        "epsilon": epsilon.epsilon,
        "delta": epsilon.delta,
        "order": epsilon.order,
        "conversion": epsilon.conversion.value,
    }


def gather(entries: Iterable[Entry]) -> list[Spent]:
    """The charges with equal ones added up, each stage made again from what the ledger says of it."""
    queries: dict[tuple[Any, ...], int] = {}
    example: dict[tuple[Any, ...], tuple[Charge, Terms]] = {}
    for entry in entries:
        charge = entry.content
        if not isinstance(charge, Charge):
            continue
        curve = charge.curves[entry.terms.unit]
        if not curve.values.any() and not curve.delta:
            continue  # paid for with the run as a whole
        votes = tuple(sorted(entry.terms.votes_per_unit.items()))
        key = (charge.purpose, votes, *sorted(charge.mechanism.items()))
        queries[key] = queries.get(key, 0) + charge.queries
        example[key] = charge, entry.terms
    gathered = []
    for key, (charge, held) in example.items():
        terms = dict(charge.mechanism)
        parameters = {name: value for name, value in terms.items() if name not in _NOT_PARAMETERS}
        mechanism = create(str(terms["name"]), **parameters)
        stage = next(stage for stage in mechanism.stages if stage.name == charge.purpose)
        gathered.append(
            Spent(stage, Adjacency(str(terms["adjacency"])), str(terms["bound"]), held.votes_per_unit, queries[key])
        )
    return gathered


def epsilon_by_unit(ledger: Ledger) -> dict[str, float]:
    """ε of everything charged, for each unit (``record``, ``party``) that charges are stated for."""
    settings, adjacency = ledger.settings, ledger.terms().adjacency
    return {
        unit[0]: ledger.spent(unit).to_epsilon(settings.delta, settings.conversion).epsilon
        for unit in ledger.units()
        if unit[1] == adjacency and ledger.queries_charged()
    }


def _total(gathered: Sequence[Spent], unit: str, orders: tuple[float, ...]) -> RenyiCurve:
    """What was charged to ``unit``, by the published bounds."""
    curve = RenyiCurve.zero(orders)
    for spent in gathered:
        curve = curve + charge_of(spent.stage, "classic", orders, spent.unit(unit)) * spent.queries
    return curve


def _unit(ledger: Ledger, name: str, gathered: Sequence[Spent], adaptive: bool) -> dict[str, Any]:
    settings, terms = ledger.settings, ledger.terms()
    delta, conversion = settings.delta, settings.conversion
    entered = ledger.spent((name, terms.adjacency)).to_epsilon(delta, conversion)
    shown = {"votes": terms.votes_per_unit.get(name), "wide": as_dict(entered)}
    covered = all(name in spent.votes_per_unit and spent.adjacency == terms.adjacency for spent in gathered)
    if not covered:
        return shown | {"classic": as_dict(entered), "paper": as_dict(entered), "pld": None}
    classic = _total(gathered, name, WIDE_ORDERS).to_epsilon(delta, conversion)
    finite = classic.epsilon <= _LARGEST_PLD_EPSILON and not adaptive
    return shown | {
        "classic": as_dict(classic),
        "paper": as_dict(_total(gathered, name, PAPER_ORDERS).to_epsilon(delta, Conversion.CLASSIC)),
        "pld": _by_loss_distributions(gathered, name, delta) if finite else None,
    }


def _by_loss_distributions(gathered: Sequence[Spent], unit: str, delta: float) -> float | None:
    losses = [spent.stage.privacy_loss(spent.unit(unit)) for spent in gathered]
    if any(loss is None for loss in losses):
        return None
    return composed_epsilon([(loss, spent.queries) for loss, spent in zip(losses, gathered, strict=True)], delta)


def _by_queries(ledger: Ledger, entries: Sequence[Entry]) -> list[tuple[int, float]]:
    """A query counts where it enters the mechanism; what later stages add shows as a rise on the spot."""
    terms = ledger.terms()
    charges = [
        (charge, charge.curves[terms.unit])
        for entry in entries
        if isinstance(charge := entry.content, Charge)
        and terms.unit in charge.curves
        and entry.terms.adjacency == terms.adjacency
    ]
    total = sum(charge.queries for charge, _ in charges if charge.queries_sha256)
    step = max(1, total // _POINTS)
    asked, spent = 0, RenyiCurve.zero(ledger.settings.orders)
    first_stages: dict[str, str] = {}
    points = [(0, 0.0)]
    for charge, curve in charges:
        if not charge.queries_sha256:  # for the run as a whole
            spent = spent + curve * charge.queries
            continue
        enters = first_stages.setdefault(str(charge.mechanism["name"]), charge.purpose) == charge.purpose
        for done in [*range(step, charge.queries, step), charge.queries]:
            at = ledger.settings.epsilon(spent + curve * done, terms.filter_order).epsilon
            points.append((asked + done if enters else asked, at))
        spent = spent + curve * charge.queries
        asked += charge.queries if enters else 0
    return points
