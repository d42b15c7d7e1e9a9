"""What a ledger's charges add up to: ε for both privacy units and both grids of orders, and as queries went by.

Everything here is data-independent and may be published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collegium.coordinator.run.labeller import charge_of
from collegium.privacy.accounting.pld import composed_epsilon
from collegium.privacy.ledger.entry import Charge
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
    queries: int

    def unit(self, votes: int) -> Unit:
        return Unit(votes, self.adjacency)


def spending(ledger: Ledger, votes_per_unit: Mapping[str, int]) -> dict[str, Any]:
    """ε of everything charged.

    Parameters
    ----------
    votes_per_unit : how many votes one neighbour may change, by the unit's name (``record``, ``party``).

    Returns
    -------
    ``epsilon`` as the ledger counts it; ``adaptive``, true where charges depended on answers: then the
    guarantee is the budget that the ledger's filter kept, not what was charged; per unit ``wide`` (68
    orders, the ledger's conversion), ``classic`` (the same by the published bound), ``paper`` (moments
    λ ≤ 8, classic conversion, published bound, as in PATE) and ``pld`` (privacy loss distributions of the
    published mechanisms; None where they do not apply, or ε is past 50); ``by_queries``: pairs of queries
    asked so far and ε; ``adjacency``: what neighbouring data sets are; ``from_utc`` and ``until_utc``: when the
    first and the last charge were made, None before any.
    """
    entries = [entry for entry in ledger.entries() if isinstance(entry.content, Charge)]
    charges = [entry.content for entry in entries if isinstance(entry.content, Charge)]
    gathered = gather(charges)
    adaptive = ledger.settings.filter_order is not None
    return {
        "delta": ledger.settings.delta,
        "epsilon": as_dict(ledger.epsilon()),
        "adaptive": adaptive,
        "queries_charged": sum(charge.queries for charge in charges if charge.queries_sha256),
        "units": {
            name: _unit(gathered, votes, ledger.settings.delta, ledger.settings.conversion, adaptive)
            for name, votes in votes_per_unit.items()
        },
        "by_queries": _by_queries(ledger, charges),
        "adjacency": sorted({spent.adjacency.value for spent in gathered}),
        "from_utc": entries[0].time_utc if entries else None,
        "until_utc": entries[-1].time_utc if entries else None,
    }


def as_dict(epsilon: Epsilon) -> dict[str, Any]:
    """An ε with all that it takes to read it."""
    return {
        "epsilon": epsilon.epsilon,
        "delta": epsilon.delta,
        "order": epsilon.order,
        "conversion": epsilon.conversion.value,
    }


def gather(charges: Sequence[Charge]) -> list[Spent]:
    """The charges with equal ones added up, each stage made again from what the ledger says of it."""
    queries: dict[tuple[Any, ...], int] = {}
    example: dict[tuple[Any, ...], Charge] = {}
    for charge in charges:
        if not charge.curve.values.any() and not charge.curve.delta:
            continue  # paid for with the run as a whole
        key = (charge.purpose, *sorted(charge.mechanism.items()))
        queries[key] = queries.get(key, 0) + charge.queries
        example[key] = charge
    gathered = []
    for key, charge in example.items():
        terms = dict(charge.mechanism)
        parameters = {name: value for name, value in terms.items() if name not in _NOT_PARAMETERS}
        mechanism = create(str(terms["name"]), **parameters)
        stage = next(stage for stage in mechanism.stages if stage.name == charge.purpose)
        gathered.append(Spent(stage, Adjacency(str(terms["adjacency"])), str(terms["bound"]), queries[key]))
    return gathered


def epsilon_by_unit(ledger: Ledger, votes_per_unit: Mapping[str, int]) -> dict[str, float]:
    """ε of everything charged, for each unit (``record``, ``party``), at the ledger's δ; see `spending`."""
    settings = ledger.settings
    gathered = gather([entry.content for entry in ledger.entries() if isinstance(entry.content, Charge)])
    return {
        name: _total(gathered, votes, WIDE_ORDERS, None).to_epsilon(settings.delta, settings.conversion).epsilon
        for name, votes in votes_per_unit.items()
    }


def _total(gathered: Sequence[Spent], votes: int, orders: tuple[float, ...], bound: str | None) -> RenyiCurve:
    """What was charged, for a unit of so many votes; by its own bounds where ``bound`` is None."""
    curve = RenyiCurve.zero(orders)
    for spent in gathered:
        curve = curve + charge_of(spent.stage, bound or spent.bound, orders, spent.unit(votes)) * spent.queries
    return curve


def _unit(
    gathered: Sequence[Spent], votes: int, delta: float, conversion: Conversion, adaptive: bool
) -> dict[str, Any]:
    classic = _total(gathered, votes, WIDE_ORDERS, "classic").to_epsilon(delta, conversion)
    finite = classic.epsilon <= _LARGEST_PLD_EPSILON and not adaptive
    return {
        "votes": votes,
        "wide": as_dict(_total(gathered, votes, WIDE_ORDERS, None).to_epsilon(delta, conversion)),
        "classic": as_dict(classic),
        "paper": as_dict(_total(gathered, votes, PAPER_ORDERS, "classic").to_epsilon(delta, Conversion.CLASSIC)),
        "pld": _by_loss_distributions(gathered, votes, delta) if finite else None,
    }


def _by_loss_distributions(gathered: Sequence[Spent], votes: int, delta: float) -> float | None:
    losses = [spent.stage.privacy_loss(spent.unit(votes)) for spent in gathered]
    if any(loss is None for loss in losses):
        return None
    return composed_epsilon([(loss, spent.queries) for loss, spent in zip(losses, gathered, strict=True)], delta)


def _by_queries(ledger: Ledger, charges: Sequence[Charge]) -> list[tuple[int, float]]:
    """A query counts where it enters the mechanism; what later stages add shows as a rise on the spot."""
    total = sum(charge.queries for charge in charges if charge.queries_sha256)
    step = max(1, total // _POINTS)
    asked, spent = 0, RenyiCurve.zero(ledger.settings.orders)
    first_stages: dict[str, str] = {}
    points = [(0, 0.0)]
    for charge in charges:
        if not charge.queries_sha256:  # for the run as a whole
            spent = spent + charge.curve * charge.queries
            continue
        enters = first_stages.setdefault(str(charge.mechanism["name"]), charge.purpose) == charge.purpose
        for done in [*range(step, charge.queries, step), charge.queries]:
            at = ledger.settings.epsilon(spent + charge.curve * done).epsilon
            points.append((asked + done if enters else asked, at))
        spent = spent + charge.curve * charge.queries
        asked += charge.queries if enters else 0
    return points
