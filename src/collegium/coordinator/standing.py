"""How a consortium stands, read from its folder: nothing is asked of a running process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from collegium.coordinator.consortium import ConsortiumFolder
from collegium.coordinator.members import Member
from collegium.coordinator.run_folder import RunFolder
from collegium.coordinator.serving import is_served
from collegium.protocol.certificates import read_certificate
from collegium.protocol.ledger import Ledger
from collegium.protocol.ledger_entry import ABSTENTION

LAST_FAILURES = 5


def standing(folder: ConsortiumFolder, now: datetime) -> dict[str, Any]:
    """Parties, rounds, labels, privacy and the last failures, in JSON's types.

    StorageError or LedgerCorrupt when a file cannot be used.
    """
    members = folder.members.read()
    served = is_served(folder)
    connected = _connected(folder) if served else set()
    run = RunFolder(folder.run).read() or {}
    return {
        "consortium": members.consortium,
        "served": served,
        "state": run.get("state", "not started"),
        "parties": {
            name: _party(member, name in connected, run.get("parties", {}).get(name, {}), now)
            for name, member in sorted(members.members.items())
        },
        "rounds": len(run.get("rounds", ())),
        "queries": run.get("asked", {}).get("queries", {}).get("count"),
        "privacy": _privacy(folder, run),
        "last_failures": _failures(run)[-LAST_FAILURES:],
    }


def _connected(folder: ConsortiumFolder) -> set[str]:
    try:
        return set(json.loads(folder.presence.read_text(encoding="utf-8"))["connected"])
    except (OSError, ValueError, KeyError):
        return set()


def _party(member: Member, connected: bool, record: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    days = None
    if member.enrolled and member.certificate_pem is not None:
        days = (read_certificate(member.certificate_pem.encode()).not_valid_after_utc - now).days
    code = member.code.expires_utc.isoformat(timespec="minutes") if member.code is not None else None
    return {
        "membership": "enrolled" if member.enrolled else "expected" if member.expected else "left",
        "connected": connected,
        "certificate_days_left": days,
        "join_code_until_utc": code,
        "rounds_asked": record.get("rounds_asked", 0),
        "rounds_answered": record.get("rounds_answered", 0),
    }


def _privacy(folder: ConsortiumFolder, run: Mapping[str, Any]) -> dict[str, Any]:
    """What the ledger says, which is ahead of run.json after a crash."""
    budget = run.get("privacy", {}).get("budget")
    figures: dict[str, Any] = {"unit": run.get("privacy", {}).get("unit"), "epsilon_budget": budget}
    if not (folder.run / "ledger.sqlite").exists():
        return figures | {"labels": 0, "abstentions": 0, "epsilon_spent": 0.0, "epsilon_left": budget, "delta": None}
    with Ledger.read(folder.run / "ledger.sqlite") as ledger:
        labels, spent = ledger.labels(), ledger.epsilon()
    abstentions = sum(label == ABSTENTION for label in labels.values())
    return figures | {
        "labels": len(labels) - abstentions,
        "abstentions": abstentions,
        "epsilon_spent": spent.epsilon,
        "epsilon_left": None if budget is None else max(0.0, budget - spent.epsilon),
        "delta": spent.delta,
    }


def _failures(run: Mapping[str, Any]) -> list[dict[str, str]]:
    """Failures of all rounds in their order."""
    return [
        {"when": f"round {entry['round']}", "party": party, "outcome": outcome}
        for entry in run.get("rounds", ())
        for party, outcome in sorted(entry["failed"].items())
    ]
