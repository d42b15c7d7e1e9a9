"""Records of runs as a finished run leaves them, to be changed by a test."""

from __future__ import annotations

from typing import Any

from collegium.coordinator.run.run_record import PartyRecord, RoundRecord, RunRecord, UnitSpending

ASKED: dict[str, Any] = {
    "name": "trial",
    "task": {"classes": ["no", "yes"], "inputs": {"kind": "image", "height": 2, "width": 2}},
    "pool": {"source": "pool.npz"},
    "budget": {"epsilon": 1.0},
}


def unit_spending(epsilon: float, votes: int = 1) -> UnitSpending:
    """The same ε by every analysis."""
    one = {"epsilon": epsilon, "delta": 1e-5, "order": 6.0, "conversion": "improved"}
    return UnitSpending.model_validate({"votes": votes, "wide": one, "classic": one, "paper": one, "pld": None})


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
        "privacy": {
            "mechanism": "gnmax",
            "parameters": {"sigma": 8.0},
            "source": "Papernot et al., ICLR 2018, Proposition 8; certified three-outcome bound, docs/privacy.md",
            "noise": "discrete",
            "unit": "record",
            "budget": 1.0,
        },
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
