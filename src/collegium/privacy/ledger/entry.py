"""What a ledger's entry says, and the canonical line of JSON that it is written as.

Reading is strict: a line that means anything else than one of the four contents is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from collegium.errors import LedgerCorrupt
from collegium.privacy.renyi import Conversion, Epsilon, RenyiCurve, check_orders

FORMAT = 2
ABSTENTION = -1
"""What a ledger holds for a query that was charged and got no label (⊥)."""

Parameter = float | int | str

ProtectedUnit = tuple[str, str]
"""A privacy unit (``record``, ``party``) and the adjacency (``replace``, ``add-remove``) it is protected under."""


@dataclass(frozen=True)
class Settings:
    """Entry 0: what every later entry is measured by; none of it may change.

    Parameters
    ----------
    name : whose ledger this is (a consortium's run, a party).
    orders, delta, conversion : how charges add up and become ε.
    public_key : 32 bytes, Ed25519; empty for a ledger that is not signed.
    """

    name: str
    orders: tuple[float, ...]
    delta: float
    conversion: Conversion
    public_key: bytes

    def epsilon(self, curve: RenyiCurve, filter_order: float | None = None) -> Epsilon:
        """ε of ``curve``, at ``filter_order`` where there is one, else at the best order."""
        if filter_order is not None:
            at = self.orders.index(filter_order)
            curve = RenyiCurve((filter_order,), curve.values[at : at + 1], curve.delta)
        return curve.to_epsilon(self.delta, self.conversion)


@dataclass(frozen=True)
class Terms:
    """What charges are made under until other terms follow; charges made before keep theirs.

    Parameters
    ----------
    unit : ``record`` or ``party``: the privacy unit in which the budget is counted.
    votes_per_unit : how many votes each unit may change.
    adjacency : ``replace`` or ``add-remove``: what neighbouring data sets are.
    noise : ``system`` (fresh, from the operating system), ``parties`` (the same, drawn by the parties) or ``seeded``
        (follows from a seed: not private).
    epsilon_budget : no charge may take ε past it; None for no limit.
    filter_order : the one order at which the budget is tested, or None for the best order of the grid. Needed where
        charges depend on earlier answers; the budget is then what the whole run guarantees.
    mechanism : name and parameters of what runs; empty where every charge may be of another mechanism (a party's own
        ledger).
    """

    unit: str = "record"
    votes_per_unit: Mapping[str, int] = field(default_factory=lambda: {"record": 1})
    adjacency: str = "replace"
    noise: str = "system"
    epsilon_budget: float | None = None
    filter_order: float | None = None
    mechanism: Mapping[str, Parameter] = field(default_factory=dict)

    @property
    def protected(self) -> ProtectedUnit:
        """The unit in which the budget is counted."""
        return self.unit, self.adjacency

    @property
    def seeded(self) -> bool:
        """Whether the noise follows from a seed."""
        return self.noise == "seeded"


@dataclass(frozen=True)
class Charge:
    """The cost of ``queries`` answers, paid before any of them is given, under the terms in force.

    ``curves`` holds the cost of one query for each privacy unit that it is stated for, the unit of the terms among
    them; ``queries_sha256`` names the queries where the caller listed them, else it is empty.
    """

    purpose: str
    mechanism: Mapping[str, Parameter]
    curves: Mapping[str, RenyiCurve]
    queries: int
    queries_sha256: str


@dataclass(frozen=True)
class Release:
    """Labels given out under one earlier charge: query key to class, or ``ABSTENTION``."""

    charge: int
    labels: Mapping[str, int]


Content = Settings | Terms | Charge | Release


def queries_digest(queries: Sequence[str]) -> str:
    """SHA-256, in hex, of the query keys in the order given."""
    return hashlib.sha256(_canonical(list(queries))).hexdigest()


def encode(content: Content, time_utc: str) -> bytes:
    """The canonical line of an entry. Floats that are counted with are written in hexadecimal, exactly."""
    match content:
        case Settings():
            body: dict[str, object] = {
                "kind": "settings",
                "format": FORMAT,
                "name": content.name,
                "orders": [order.hex() for order in content.orders],
                "delta": content.delta.hex(),
                "conversion": content.conversion.value,
                "public_key": content.public_key.hex(),
            }
        case Terms():
            body = {
                "kind": "terms",
                "unit": content.unit,
                "votes_per_unit": dict(content.votes_per_unit),
                "adjacency": content.adjacency,
                "noise": content.noise,
                "epsilon_budget": _hex(content.epsilon_budget),
                "filter_order": _hex(content.filter_order),
                "mechanism": dict(content.mechanism),
            }
        case Charge():
            body = {
                "kind": "charge",
                "purpose": content.purpose,
                "mechanism": dict(content.mechanism),
                "curves": {unit: [float(v).hex() for v in curve.values] for unit, curve in content.curves.items()},
                "curve_deltas": {unit: float(curve.delta).hex() for unit, curve in content.curves.items()},
                "queries": content.queries,
                "queries_sha256": content.queries_sha256,
            }
        case Release():
            body = {"kind": "release", "charge": content.charge, "labels": dict(content.labels)}
    return _canonical(body | {"time_utc": time_utc})


def decode(body: bytes, settings: Settings | None) -> tuple[Content, str]:
    """The content and time of an entry; ``settings`` is None for the first one alone."""
    read = json.loads(body)
    time_utc = str(read["time_utc"])
    kind = read["kind"]
    if (kind == "settings") != (settings is None):
        raise LedgerCorrupt("the settings must be the first entry and only that")
    if settings is None:
        return _decode_settings(read), time_utc
    if kind == "charge":
        curves = {
            unit: RenyiCurve(
                settings.orders,
                np.array([float.fromhex(value) for value in values]),
                float.fromhex(read["curve_deltas"][unit]),
            )
            for unit, values in read["curves"].items()
        }
        queries = _whole(read["queries"], at_least=1)
        digest = str(read["queries_sha256"])
        return Charge(str(read["purpose"]), read["mechanism"], curves, queries, digest), time_utc
    if kind == "terms":
        order = _float(read["filter_order"])
        if order is not None and order not in settings.orders:
            raise LedgerCorrupt("its filter order is not on the ledger's grid")
        terms = Terms(
            unit=str(read["unit"]),
            votes_per_unit={unit: _whole(votes, at_least=1) for unit, votes in read["votes_per_unit"].items()},
            adjacency=str(read["adjacency"]),
            noise=str(read["noise"]),
            epsilon_budget=_float(read["epsilon_budget"]),
            filter_order=order,
            mechanism=dict(read["mechanism"]),
        )
        return terms, time_utc
    if kind == "release":
        labels = {query: _whole(label, at_least=ABSTENTION) for query, label in read["labels"].items()}
        return Release(_whole(read["charge"], at_least=0), labels), time_utc
    raise LedgerCorrupt(f"its kind {kind!r} is unknown; it was written by a newer version of collegium")


def _decode_settings(read: dict[str, Any]) -> Settings:
    if read["format"] != FORMAT:
        raise LedgerCorrupt(f"the ledger has format {read['format']}, this version of collegium reads {FORMAT}")
    return Settings(
        name=str(read["name"]),
        orders=check_orders([float.fromhex(order) for order in read["orders"]]),
        delta=float.fromhex(read["delta"]),
        conversion=Conversion(read["conversion"]),
        public_key=bytes.fromhex(read["public_key"]),
    )


def _hex(value: float | None) -> str | None:
    return None if value is None else float(value).hex()


def _float(value: str | None) -> float | None:
    return None if value is None else float.fromhex(value)


def _whole(value: object, *, at_least: int) -> int:
    if type(value) is not int or value < at_least:
        raise ValueError(f"not a whole number of {at_least} or more")
    return value


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
