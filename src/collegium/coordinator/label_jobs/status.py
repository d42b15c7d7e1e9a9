"""The status of students and of their jobs, read from the consortium's folder; no running process is asked."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from collegium.coordinator.label_jobs.queue import JobQueue, QueuedJob
from collegium.coordinator.membership.members import Members
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.settings.consortium import ConsortiumFolder


def students_status(folder: ConsortiumFolder, members: Members) -> dict[str, Any]:
    """By name, in JSON's types."""
    queue = JobQueue(folder.jobs)
    return {
        name: {
            "membership": "enrolled" if student.enrolled else "expected" if student.expected else "left",
            "inputs_limit": student.queries,
            "inputs_asked": queue.asked(name) if queue.exists() else 0,
        }
        for name, student in sorted(members.students.items())
    }


def job_runs(folder: ConsortiumFolder) -> list[tuple[QueuedJob, RunRecord | None]]:
    """All jobs in the order of their turns, each with the record of its run, None where that was not begun."""
    queue = JobQueue(folder.jobs)
    return [(job, _run(folder.jobs / job.id)) for job in queue.jobs()] if queue.exists() else []


def job_status(job: QueuedJob, run: RunRecord | None) -> dict[str, Any]:
    """One job, in JSON's types."""
    rounds = [] if run is None else run.rounds
    answered = sum(entry.queries for entry in rounds)
    return {
        "job": job.id,
        "student": job.student,
        "state": job.state,
        "inputs": len(job.positions),
        "labelled": job.labelled if job.ended else answered,
        "rounds": len(rounds),
        "submitted_utc": job.submitted_utc,
        "reason": job.reason,
        "note": job.note,
    }


def _run(folder: Path) -> RunRecord | None:
    try:
        held = RunFolder(folder).run_json.stat()
    except OSError:
        return None
    return _read(folder, (held.st_mtime_ns, held.st_size))


@lru_cache(maxsize=1024)
def _read(folder: Path, stamp: tuple[int, int]) -> RunRecord | None:
    """Read once per state of the file: whoever watches asks every second, and most jobs have ended.

    The queries, which may be many, are not kept in memory.
    """
    run = RunFolder(folder).read()
    return None if run is None else run.model_copy(update={"chosen": []})
