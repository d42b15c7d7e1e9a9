"""The status of a consortium, read from its folder; no running process is asked."""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from collegium.coordinator.membership.members import Member
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.run_record import PartyRecord, RoundRecord, RunRecord
from collegium.coordinator.selection.queries import study_of
from collegium.coordinator.settings.consortium import ConsortiumFolder
from collegium.errors import known_codes
from collegium.privacy.analysis.ledger_report import charged_epsilons
from collegium.privacy.ledger.entry import ABSTENTION
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.certificates import read_certificate
from collegium.protocol.question import about_all_records
from collegium.whole_files import is_held

LAST_FAILURES = 5
ROUND_BUCKETS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
"""Rounds are counted by these durations."""


def consortium_status(folder: ConsortiumFolder, now: datetime) -> dict[str, Any]:
    """Parties, rounds, labels, privacy and failures of a run, in JSON's types.

    StorageError or LedgerCorrupt when a file cannot be used.
    """
    members = folder.members.read()
    served = is_held(folder.lock)
    connected = _connected(folder) if served else set()
    run = _run_record(folder.run, file_stamps(RunFolder(folder.run).run_json))
    rounds, records = ([], {}) if run is None else (run.rounds, run.parties)
    failures = _failures(rounds)
    return {
        "consortium": members.consortium,
        "study": folder.study,
        "served": served,
        "state": "not started" if run is None else run.state,
        "sum_mode": None if run is None else run.sum_mode,
        "parties": {
            name: _party(member, name in connected, records.get(name), now)
            for name, member in sorted(members.members.items())
        },
        "rounds": len(rounds),
        "round_seconds": _durations([entry.seconds for entry in rounds]),
        "queries": None if run is None else _queries(run),
        "privacy": _privacy(folder),
        "dropouts": dict(Counter(code_of(failure["outcome"]) for failure in failures)),
        "last_failures": failures[-LAST_FAILURES:],
    }


def _queries(run: RunRecord) -> int:
    """How many inputs the run means to label: sums over all records label the whole pool."""
    if run.labels is not None:
        return run.labels.asked
    return run.pool.inputs if about_all_records(run.config.mechanism.kind) else run.config.queries.count


@lru_cache(maxsize=4)
def _run_record(folder: Path, stamps: tuple[tuple[int, int], ...]) -> RunRecord | None:
    """The run's record without its queries, which may be many. Read once per state of the file."""
    run = RunFolder(folder).read()
    return None if run is None else run.model_copy(update={"chosen": None})


def _connected(folder: ConsortiumFolder) -> set[str]:
    try:
        parties = json.loads(folder.status.read_text(encoding="utf-8"))["parties"]
        return {name for name, party in parties.items() if party["connected"]}
    except (OSError, ValueError, KeyError):
        return set()


def _party(member: Member, connected: bool, record: PartyRecord | None, now: datetime) -> dict[str, Any]:
    """One party; ``record`` is what the run noted of it."""
    days = None
    if member.enrolled and member.certificate_pem is not None:
        days = (read_certificate(member.certificate_pem.encode()).not_valid_after_utc - now).days
    code = member.code.expires_utc.isoformat(timespec="minutes") if member.code is not None else None
    return {
        "membership": member.membership,
        "connected": connected,
        "certificate_days_left": days,
        "join_code_until_utc": code,
        "rounds_asked": 0 if record is None else record.rounds_asked,
        "rounds_answered": 0 if record is None else record.rounds_answered,
    }


def _privacy(folder: ConsortiumFolder) -> dict[str, Any]:
    """What the ledger's entries say: its unit and budget too, whatever the configuration says today."""
    ledger = folder.ledger
    if ledger.exists():
        stamps = file_stamps(ledger, ledger.with_name(f"{ledger.name}-wal"))
        return _ledger_figures(ledger, stamps, folder.study)
    nothing = dict.fromkeys(("unit", "epsilon_budget", "delta", "epsilon_left"))
    return nothing | {"labels": 0, "abstentions": 0, "epsilon_spent": 0.0, "units": {}}


def file_stamps(*paths: Path) -> tuple[tuple[int, int], ...]:
    """Time and size of each file that is there: they change whenever a file does."""
    found = []
    for path in paths:
        with suppress(FileNotFoundError):
            held = path.stat()
            found.append((held.st_mtime_ns, held.st_size))
    return tuple(found)


@lru_cache(maxsize=4)
def _ledger_figures(path: Path, stamps: tuple[tuple[int, int], ...], study: str | None) -> dict[str, Any]:
    """The study's labels, and ε of all studies by unit. Read once per state of the file."""
    with Ledger.read(path) as ledger:
        labels, terms, epsilons = ledger.labels(), ledger.terms(), charged_epsilons(ledger)
        delta = ledger.settings.delta
    labels = {key: label for key, label in labels.items() if study_of(key) == study}
    abstentions = sum(label == ABSTENTION for label in labels.values())
    budget, spent = terms.epsilon_budget, epsilons[terms.unit]
    left = None if budget is None else max(0.0, budget - spent)
    limited = {"budget": budget, "left": left}
    return {
        "labels": len(labels) - abstentions,
        "abstentions": abstentions,
        "unit": terms.unit,
        "epsilon_budget": budget,
        "epsilon_spent": spent,
        "delta": delta,
        "epsilon_left": left,
        "units": {
            name: {"spent": epsilons[name]} | (limited if name == terms.unit else dict.fromkeys(limited))
            for name in ("record", "party")
            if name in epsilons
        },
    }


def _durations(seconds: Sequence[float]) -> dict[str, Any]:
    """How long the rounds took: ``at_most`` counts those of at most so many seconds."""
    return {
        "count": len(seconds),
        "sum": sum(seconds),
        "last": seconds[-1] if seconds else None,
        "at_most": {f"{limit:g}": sum(took <= limit for took in seconds) for limit in ROUND_BUCKETS_S},
    }


def code_of(outcome: str) -> str:
    """The code that an outcome begins with; ``other`` for one that nobody here knows, so that codes stay few."""
    code = outcome.partition(":")[0].strip()
    return code if code in known_codes() or code in ("deadline", "internal") else "other"


def _failures(rounds: Sequence[RoundRecord]) -> list[dict[str, str]]:
    """Failures of all rounds in their order."""
    return [
        {"when": f"round {entry.round}", "party": party, "outcome": outcome}
        for entry in rounds
        for party, outcome in sorted(entry.failed.items())
    ]
