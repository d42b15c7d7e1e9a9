"""What a ledger's entry says, and the canonical line of JSON that it is written as.

Reading is strict: a line that means anything else than one of the three contents is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collegium.errors import LedgerCorrupt
from collegium.privacy.renyi import Conversion, Epsilon, RenyiCurve, check_orders

FORMAT = 1
ABSTENTION = -1
"""What a ledger holds for a query that was charged and got no label (⊥)."""

Parameter = float | int | str


@dataclass(frozen=True)
class Settings:
    """Entry 0: what every later entry is measured by; none of it may change.

    Parameters
    ----------
    name : whose ledger this is (a consortium's run, a party).
    orders, delta, conversion : how charges add up and become ε.
    filter_order : the one order that the budget is tested at, or None for the best order of the grid.
    public_key : 32 bytes, Ed25519; empty for a ledger that is not signed.
    """

    name: str
    orders: tuple[float, ...]
    delta: float
    conversion: Conversion
    filter_order: float | None
    public_key: bytes

    def epsilon(self, curve: RenyiCurve) -> Epsilon:
        """ε of ``curve`` as this ledger counts it: at ``filter_order`` where there is one."""
        if self.filter_order is not None:
            at = self.orders.index(self.filter_order)
            curve = RenyiCurve((self.filter_order,), curve.values[at : at + 1], curve.delta)
        return curve.to_epsilon(self.delta, self.conversion)


@dataclass(frozen=True)
class Charge:
    """The cost of ``queries`` answers, paid before any of them is given.

    ``curve`` is the cost of one query; ``queries_sha256`` names the queries where the caller listed
    them, else it is empty; ``epsilon_budget`` is the limit that held when the charge was made.
    """

    purpose: str
    mechanism: Mapping[str, Parameter]
    curve: RenyiCurve
    queries: int
    queries_sha256: str
    epsilon_budget: float | None


@dataclass(frozen=True)
class Release:
    """Labels given out under one earlier charge: query key to class, or ``ABSTENTION``."""

    charge: int
    labels: Mapping[str, int]


Content = Settings | Charge | Release


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
                "filter_order": None if content.filter_order is None else content.filter_order.hex(),
                "public_key": content.public_key.hex(),
            }
        case Charge():
            body = {
                "kind": "charge",
                "purpose": content.purpose,
                "mechanism": dict(content.mechanism),
                "curve": [float(value).hex() for value in content.curve.values],
                "curve_delta": float(content.curve.delta).hex(),
                "queries": content.queries,
                "queries_sha256": content.queries_sha256,
                "epsilon_budget": None if content.epsilon_budget is None else float(content.epsilon_budget).hex(),
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
        values = np.array([float.fromhex(value) for value in read["curve"]])
        curve = RenyiCurve(settings.orders, values, float.fromhex(read["curve_delta"]))
        budget = None if read["epsilon_budget"] is None else float.fromhex(read["epsilon_budget"])
        queries = _whole(read["queries"], at_least=1)
        digest = str(read["queries_sha256"])
        return Charge(str(read["purpose"]), read["mechanism"], curve, queries, digest, budget), time_utc
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
        filter_order=None if read["filter_order"] is None else float.fromhex(read["filter_order"]),
        public_key=bytes.fromhex(read["public_key"]),
    )


def _whole(value: object, *, at_least: int) -> int:
    if type(value) is not int or value < at_least:
        raise ValueError(f"not a whole number of {at_least} or more")
    return value


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
