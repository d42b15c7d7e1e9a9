"""How students and their jobs stand, read from the consortium's folder: nothing is asked of a running process."""

from __future__ import annotations

from typing import Any

from collegium.coordinator.consortium import ConsortiumFolder
from collegium.coordinator.label_jobs.queue import JobQueue, QueuedJob
from collegium.coordinator.members import Members
from collegium.coordinator.run_folder import RunFolder


def students_standing(folder: ConsortiumFolder, members: Members) -> dict[str, Any]:
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


def jobs_standing(folder: ConsortiumFolder) -> list[dict[str, Any]]:
    """All jobs in the order of their turns, in JSON's types."""
    queue = JobQueue(folder.jobs)
    return [_standing(folder, job) for job in queue.jobs()] if queue.exists() else []


def newest_run(folder: ConsortiumFolder) -> dict[str, Any]:
    """What run.json says of the last job that was begun; empty where none was."""
    queue = JobQueue(folder.jobs)
    runs = (RunFolder(folder.jobs / job.id).read() for job in reversed(queue.jobs())) if queue.exists() else iter(())
    return next((run for run in runs if run), {})


def _standing(folder: ConsortiumFolder, job: QueuedJob) -> dict[str, Any]:
    run = RunFolder(folder.jobs / job.id).read() or {}
    answered = sum(entry["queries"] for entry in run.get("rounds", ()))
    return {
        "job": job.id,
        "student": job.student,
        "state": job.state,
        "inputs": len(job.positions),
        "labelled": job.labelled if job.ended else answered,
        "rounds": len(run.get("rounds", ())),
        "submitted_utc": job.submitted_utc,
        "reason": job.reason,
        "note": job.note,
    }
