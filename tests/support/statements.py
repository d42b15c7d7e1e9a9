"""A statement as a consortium makes it, without a ledger: to be looked at."""

from __future__ import annotations

from typing import Any

from collegium.coordinator.report.statement_words import not_protected, who_adds, who_colludes, worth_of_delta


def a_statement(parties: int = 5) -> dict[str, Any]:
    """Of a run with votes, whose budget counts records, with long names."""
    ledger: dict[str, Any] = {
        "name": "chest-x-rays-of-five-hospitals",
        "delta": 1e-5,
        "public_key": "ab" * 32,
        "first_entry": "cd" * 32,
        "head": "81:" + "ef" * 32,
        "since_utc": "2026-03-01T12:00:00.000000+00:00",
        "until_utc": "2026-03-02T12:00:00.000000+00:00",
        "promises": [
            {"unit": "record", "adjacency": "replace", "epsilon": 0.81234, "means": "A sentence on one record."},
            {"unit": "party", "adjacency": "replace", "epsilon": 7.5, "means": "A sentence on one institution."},
        ],
        "charged": [
            {
                "purpose": "release",
                "releases": "the winner of noisy counts",
                "mechanism": "confident-gnmax",
                "parameters": {"sigma1": 200.0, "sigma2": 40.0, "threshold": 300.0},
                "rounds": 286,
            }
        ],
        "labels": 286,
        "noise": ["parties"],
        "honest_survivors": 3,
        "adjacencies": ["replace"],
        "adaptive": False,
        "values": 300,
        "budget": {"unit": "record", "epsilon": 1.0},
        "sources": ["Papernot et al., ICLR 2018, Proposition 8; the exact accountant, docs/privacy.md"],
    }
    names = [f"the-university-hospital-of-a-town-with-quite-a-long-name-{n}" for n in range(parties)]
    recorded: dict[str, Any] = {
        "run": "chest-x-rays-of-five-hospitals",
        "state": "finished",
        "classes": [f"finding number {n} with a long name" for n in range(8)],
        "inputs": "image",
        "record_is": "row",
        "sum_modes": ["masked+noised"],
        "pool": {"inputs": 300, "sha256": "12" * 32},
        "parties": [
            {"name": name, "signing_key": "34" * 32, "followed_to": 81, "certificate_sha256": "56" * 32}
            for name in names
        ],
        "certificates": {"certificate": "78" * 32, "authority": "9a" * 32},
        "software": {"collegium": "0.1.0"},
    }
    words = {
        "who_adds_the_noise": who_adds(ledger, recorded),
        "who_could_collude": who_colludes(ledger, recorded),
        "not_protected": not_protected(ledger, recorded),
        "delta": worth_of_delta(ledger["delta"], adaptive=ledger["adaptive"], values=ledger["values"]),
    }
    facts = {"format": 1, "software": "collegium 0.1.0", "made_utc": "2026-03-03T09:00:00+00:00"}
    return {"facts": facts | {"ledger": ledger, "recorded": recorded, "words": words}, "signature": "bc" * 64}
