"""Records of runs as a finished run leaves them, to be changed by a test."""

from __future__ import annotations

from typing import Any

from collegium.coordinator.run.run_record import PartyRecord, RoundRecord, RunRecord
from collegium.privacy.analysis.ledger_report import LedgerReport
from collegium.privacy.ledger.entry import Terms

ASKED: dict[str, Any] = {
    "name": "trial",
    "task": {"classes": ["no", "yes"], "inputs": {"kind": "image", "height": 2, "width": 2}},
    "pool": {"source": "pool.npz"},
    "budget": {"epsilon": 1.0},
}


def privacy(record: float, party: float, **changes: Any) -> LedgerReport:
    """What was charged for these ε of a record and of a party of ten teachers; ``changes`` are further fields."""
    known: dict[str, Any] = {
        "terms": Terms(
            votes_per_unit={"record": 1, "party": 10},
            epsilon_budget=1.0,
            mechanism={"name": "gnmax", "bound": "exact", "sigma": 8.0},
            source="Papernot et al., ICLR 2018, Proposition 8; the exact accountant, docs/privacy.md",
        ),
        "earlier_terms": (),
        "delta": 1e-5,
        "adaptive": False,
        "units": {"record": record, "party": party},
        "queries_charged": 40,
        "by_queries": ((0, 0.0), (20, 0.7 * record), (40, record)),
        "adjacency": ("replace",),
        "from_utc": "2026-03-01T12:00:00Z",
        "until_utc": "2026-03-02T12:00:00Z",
    }
    return LedgerReport(**(known | changes))


def run_record(**changes: Any) -> RunRecord:
    """A record in which nothing was asked yet; ``changes`` are further fields."""
    known: dict[str, Any] = {
        "name": "trial",
        "asked": full_configuration(),
        "versions": {"collegium": "0.1.0"},
        "private": True,
        "cautions": [],
        "pool": {"sha256": "ab" * 32, "inputs": 300},
        "sum_mode": "masked",
    }
    return RunRecord.model_validate(known | changes)


def full_configuration() -> dict[str, Any]:
    """`ASKED` with every default, as a run writes it down."""
    from collegium.coordinator.settings.run_config import RunConfig

    return RunConfig.model_validate(ASKED).model_dump(mode="json")


def a_round(number: int, seconds: float, **failed: str) -> RoundRecord:
    """A round of two queries in which the named parties failed."""
    return RoundRecord(
        round=number, round_id=f"r{number}", queries=2, asked=3, answered=3, teachers=3, failed=failed, seconds=seconds
    )


def a_party(asked: int, answered: int) -> PartyRecord:
    """A party that was asked so many rounds and answered so many."""
    return PartyRecord(status="ready", teachers=1, rounds_asked=asked, rounds_answered=answered)
