"""What a ledger's charges add up to: ε for both privacy units and both grids of orders, and as queries went by.

Everything here is data-independent and may be published.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from collegium.coordinator.mechanisms import Adjacency, Stage, Unit, create
from collegium.protocol.ledger import Ledger
from collegium.protocol.ledger_entry import Charge
from collegium.protocol.renyi import PAPER_ORDERS, WIDE_ORDERS, Conversion, Epsilon, RenyiCurve

_NOT_PARAMETERS = ("name", "votes_per_unit", "adjacency")
_POINTS = 60


def spending(ledger: Ledger, votes_per_unit: dict[str, int]) -> dict[str, Any]:
    """ε of everything charged.

    Parameters
    ----------
    votes_per_unit : how many votes one neighbour may change, by the unit's name (``record``, ``party``).

    Returns
    -------
    ``epsilon`` as the ledger counts it; per unit ``wide`` (68 orders, the ledger's conversion) and
    ``paper`` (moments λ ≤ 8, classic conversion, as in PATE); ``by_queries``: pairs of queries asked
    so far and ε.
    """
    charges = [entry.content for entry in ledger.entries() if isinstance(entry.content, Charge)]
    settings = ledger.settings
    units: dict[str, Any] = {}
    for name, votes in votes_per_unit.items():
        units[name] = {
            "votes": votes,
            "wide": as_dict(_total(charges, WIDE_ORDERS, votes).to_epsilon(settings.delta, settings.conversion)),
            "paper": as_dict(_total(charges, PAPER_ORDERS, votes).to_epsilon(settings.delta, Conversion.CLASSIC)),
        }
    return {
        "delta": settings.delta,
        "epsilon": as_dict(ledger.epsilon()),
        "queries_charged": ledger.queries_charged(),
        "units": units,
        "by_queries": _by_queries(ledger),
    }


def as_dict(epsilon: Epsilon) -> dict[str, Any]:
    """An ε with all that it takes to read it."""
    return {
        "epsilon": epsilon.epsilon,
        "delta": epsilon.delta,
        "order": epsilon.order,
        "conversion": epsilon.conversion.value,
    }


def stage_of(charge: Charge) -> Stage:
    """The stage that a charge paid for, made again from what the ledger says of it."""
    parameters = {key: value for key, value in charge.mechanism.items() if key not in _NOT_PARAMETERS}
    mechanism = create(str(charge.mechanism["name"]), **parameters)  # type: ignore[arg-type]
    return next(stage for stage in mechanism.stages if stage.name == charge.purpose)


def _total(charges: Iterable[Charge], orders: tuple[float, ...], votes: int) -> RenyiCurve:
    counted: dict[tuple[Any, ...], tuple[Charge, int]] = {}
    for charge in charges:
        key = (charge.purpose, *sorted(charge.mechanism.items()))
        counted[key] = (charge, counted.get(key, (charge, 0))[1] + charge.queries)
    total = RenyiCurve.zero(orders)
    for charge, queries in counted.values():
        unit = Unit(votes, Adjacency(str(charge.mechanism["adjacency"])))
        total = total + stage_of(charge).charge(orders, unit) * queries
    return total


def _by_queries(ledger: Ledger) -> list[tuple[int, float]]:
    """A query counts where it enters the mechanism; what later stages add shows as a rise on the spot."""
    charges = [entry.content for entry in ledger.entries() if isinstance(entry.content, Charge)]
    total = sum(charge.queries for charge in charges)
    step = max(1, total // _POINTS)
    asked, spent = 0, RenyiCurve.zero(ledger.settings.orders)
    first_stages: dict[str, str] = {}
    points = [(0, 0.0)]
    for charge in charges:
        enters = first_stages.setdefault(str(charge.mechanism["name"]), charge.purpose) == charge.purpose
        for done in [*range(step, charge.queries, step), charge.queries]:
            at = ledger.settings.epsilon(spent + charge.curve * done).epsilon
            points.append((asked + done if enters else asked, at))
        spent = spent + charge.curve * charge.queries
        asked += charge.queries if enters else 0
    return points
