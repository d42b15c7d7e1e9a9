"""The status of a consortium, read from its folder; no running process is asked."""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from collegium.coordinator.label_jobs.queue import JobQueue, QueuedJob
from collegium.coordinator.membership.members import Member, Members
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.run_record import PartyRecord, RoundRecord, RunRecord
from collegium.coordinator.selection.queries import study_of
from collegium.coordinator.settings.consortium import ConsortiumFolder
from collegium.errors import known_codes
from collegium.privacy.analysis.ledger_report import charged_epsilons
from collegium.privacy.ledger.entry import ABSTENTION
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.certificates import read_certificate
from collegium.whole_files import is_held

LAST_FAILURES = 5
ROUND_BUCKETS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
"""Rounds are counted by these durations."""


def consortium_status(folder: ConsortiumFolder, now: datetime) -> dict[str, Any]:
    """Parties, rounds, labels, privacy and failures, in JSON's types; rounds are those of the own run and of all jobs.

    StorageError or LedgerCorrupt when a file cannot be used.
    """
    members = folder.members.read()
    served = is_held(folder.lock)
    connected = _connected(folder) if served else set()
    run = RunFolder(folder.run).read()
    queue = JobQueue(folder.jobs)
    jobs = [(job, _job_run(folder.jobs / job.id)) for job in queue.jobs()] if queue.exists() else []
    begun = [("", run), *((f"job {job.id[:8]}, ", held) for job, held in jobs)]
    if run is not None and run.state == "labelling":
        begun = [*begun[1:], begun[0]]  # it goes on after jobs that came before
    runs = [(whose, held) for whose, held in begun if held is not None]
    rounds = [(whose, entry) for whose, held in runs for entry in held.rounds]
    failures = _failures(rounds)
    return {
        "consortium": members.consortium,
        "served": served,
        "state": "not started" if run is None else run.state,
        "sum_mode": None if run is None else run.sum_mode,
        "parties": {
            name: _party(
                member, name in connected, [held.parties[name] for _, held in runs if name in held.parties], now
            )
            for name, member in sorted(members.members.items())
        },
        "students": _students(queue, members),
        "jobs": [_job(job, held) for job, held in jobs],
        "rounds": len(rounds),
        "own_rounds": 0 if run is None else len(run.rounds),
        "round_seconds": _durations([entry.seconds for _, entry in rounds]),
        "queries": None if run is None else run.config.queries.count if run.labels is None else run.labels.asked,
        "privacy": _privacy(folder),
        "dropouts": dict(Counter(code_of(failure["outcome"]) for failure in failures)),
        "last_failures": failures[-LAST_FAILURES:],
    }


def _connected(folder: ConsortiumFolder) -> set[str]:
    try:
        return set(json.loads(folder.presence.read_text(encoding="utf-8"))["connected"])
    except (OSError, ValueError, KeyError):
        return set()


def _party(member: Member, connected: bool, records: Sequence[PartyRecord], now: datetime) -> dict[str, Any]:
    """One party; ``records`` are what each run noted of it."""
    days = None
    if member.enrolled and member.certificate_pem is not None:
        days = (read_certificate(member.certificate_pem.encode()).not_valid_after_utc - now).days
    code = member.code.expires_utc.isoformat(timespec="minutes") if member.code is not None else None
    return {
        "membership": member.membership,
        "connected": connected,
        "certificate_days_left": days,
        "join_code_until_utc": code,
        "rounds_asked": sum(record.rounds_asked for record in records),
        "rounds_answered": sum(record.rounds_answered for record in records),
    }


def _students(queue: JobQueue, members: Members) -> dict[str, Any]:
    return {
        name: {
            "membership": student.membership,
            "inputs_limit": student.queries,
            "inputs_asked": queue.asked(name) if queue.exists() else 0,
        }
        for name, student in sorted(members.students.items())
    }


def _job(job: QueuedJob, run: RunRecord | None) -> dict[str, Any]:
    """One job; ``run`` is the record of its run, None where that was not begun."""
    rounds = [] if run is None else run.rounds
    return {
        "job": job.id,
        "student": job.student,
        "state": job.state,
        "inputs": len(job.positions),
        "labelled": job.labelled if job.ended else sum(entry.queries for entry in rounds),
        "rounds": len(rounds),
        "submitted_utc": job.submitted_utc,
        "reason": job.reason,
        "note": job.note,
    }


def _job_run(folder: Path) -> RunRecord | None:
    run_json = RunFolder(folder).run_json
    return _read_job_run(folder, file_stamps(run_json)) if run_json.exists() else None


@lru_cache(maxsize=1024)
def _read_job_run(folder: Path, stamps: tuple[tuple[int, int], ...]) -> RunRecord | None:
    """Read once per state of the file: whoever watches asks every second, and most jobs have ended.

    The queries, which may be many, are not kept in memory.
    """
    run = RunFolder(folder).read()
    return None if run is None else run.model_copy(update={"chosen": []})


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


def _failures(rounds: Sequence[tuple[str, RoundRecord]]) -> list[dict[str, str]]:
    """Failures of all rounds in their order; each round comes with whose it is."""
    return [
        {"when": f"{whose}round {entry.round}", "party": party, "outcome": outcome}
        for whose, entry in rounds
        for party, outcome in sorted(entry.failed.items())
    ]
