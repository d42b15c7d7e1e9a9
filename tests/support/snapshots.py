"""A snapshot as a consortium of five gives it in the middle of its run."""

from __future__ import annotations

import copy
from typing import Any

from prometheus_client import generate_latest

from collegium.coordinator.watching.metrics import SnapshotMetrics

PARTY = {
    "membership": "enrolled",
    "connected": True,
    "connected_since": "2026-03-01T06:15:00Z",
    "certificate_days_left": 301,
    "join_code_until_utc": None,
    "rounds_asked": 3,
    "rounds_answered": 3,
}
AWAY = {"connected": False, "connected_since": None}
NEVER = {"certificate_days_left": None, "rounds_asked": 0, "rounds_answered": 0}

SNAPSHOT: dict[str, Any] = {
    "consortium": "clinics",
    "study": "second",
    "asks": {"sums": 0, "teachers": True, "counts": []},
    "share_done": 0.6,
    "at": "2026-03-03T14:05:10Z",
    "started": "2026-03-01T06:00:00Z",
    "served": True,
    "state": "labelling",
    "sum_mode": "masked",
    "parties": {
        "clinic-1": PARTY,
        "clinic-2": PARTY | {"connected_since": "2026-03-03T13:59:00Z", "rounds_answered": 2},
        "clinic-3": PARTY | {"connected_since": "2026-03-03T14:04:50Z"},
        "clinic-4": PARTY | AWAY | {"rounds_answered": 1},
        "clinic-5": PARTY | AWAY | NEVER | {"membership": "expected"},
    },
    "expected": 5,
    "connected": 3,
    "quorum": 3,
    "phase": {"step": "votes", "done": 2, "total": 3, "seconds_left": 90},
    "report": False,
    "rounds": 3,
    "round_seconds": {
        "count": 3,
        "sum": 7.25,
        "last": 2.5,
        "at_most": {"1": 0, "5": 3, "15": 3, "60": 3, "300": 3, "900": 3, "3600": 3},
    },
    "queries": 40,
    "privacy": {
        "unit": "record",
        "epsilon_budget": 3.5,
        "labels": 12,
        "abstentions": 1,
        "epsilon_spent": 1.5123456,
        "epsilon_left": 1.9876544,
        "delta": 1e-5,
        "units": {
            "record": {"spent": 1.5123456, "budget": 3.5, "left": 1.9876544},
            "party": {"spent": 41.3, "budget": None, "left": None},
        },
    },
    "dropouts": {"deadline": 2, "refused": 1},
    "last_failures": [
        {"when": "round 2", "party": "clinic-4", "outcome": "deadline"},
        {"when": "round 3", "party": "clinic-2", "outcome": "refused: policy: 20 of 20 queries are answered"},
    ],
    "refused_connections": {"identity": 4},
    "protocol_violations": 0,
    "disconnections": 1,
}


def snapshot(**changes: Any) -> dict[str, Any]:
    """The snapshot with some of its entries replaced."""
    return copy.deepcopy(SNAPSHOT) | changes


def exposition(shown: dict[str, Any]) -> str:
    """The snapshot's metrics as Prometheus reads them."""
    return generate_latest(SnapshotMetrics(lambda: shown)).decode()
