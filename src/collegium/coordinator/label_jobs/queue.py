"""The queue of label jobs: one SQLite file, durable at every change, so that a job outlives the coordinator.

Labels are not kept here. They are in the ledger, which pays for each input once; a job is a list of positions in the
pool and how far it has come.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collegium.clock import utc_now
from collegium.errors import Refused
from collegium.protocol.label_jobs import JobState, LabelJob
from collegium.sqlite_files import changing, connected
from collegium.whole_files import make_folder

MAX_OPEN_JOBS = 16
"""Of one student, queued or running."""
MAX_JOBS = 1_000
"""Of one student, altogether: the queue's file stays bounded."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    student TEXT NOT NULL,
    pool_sha256 TEXT NOT NULL,
    positions BLOB NOT NULL,
    note TEXT NOT NULL,
    submitted_utc TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    labelled INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS asked (
    student TEXT NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (student, position)
) STRICT, WITHOUT ROWID;
"""
_COLUMNS = "number, id, student, pool_sha256, positions, note, submitted_utc, state, reason, labelled"
_OPEN = "state IN ('queued', 'running')"
_ASKED = "asked WHERE student = ?"


@dataclass(frozen=True)
class QueuedJob:
    """A job as it stands in the queue; ``number`` gives its turn."""

    number: int
    id: str
    student: str
    pool_sha256: str
    """The pool in which the positions are."""
    positions: tuple[int, ...]
    note: str
    submitted_utc: str
    state: JobState
    reason: str
    labelled: int
    """Inputs asked, once it has ended."""

    @property
    def ended(self) -> bool:
        return self.state in ("done", "stopped")


class JobQueue:
    """The jobs in ``folder``. Safe for threads and processes; every method raises StorageError for the disk's."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "queue.sqlite"

    def exists(self) -> bool:
        return self._path.exists()

    def prepare(self) -> None:
        """Make folder and file where they are missing."""
        make_folder(self._path.parent, mode=0o700)
        with connected(self._path) as connection:
            connection.executescript(_SCHEMA)

    def add(self, job: LabelJob, student: str, limit: int | None) -> QueuedJob:
        """Queue a job, or find the one of that id as it was queued before.

        ``limit`` is the most inputs that the student may ask about altogether. Refused when the job would pass it,
        when too many of the student's jobs are there already, or when the id is another job's.
        """
        with connected(self._path) as connection, changing(connection):
            for held in _found(connection, "WHERE id = ?", job.job_id):
                if (held.student, held.pool_sha256, held.positions) != (student, job.pool_sha256, job.positions):
                    raise Refused("a job of that id was queued with other inputs: name this one anew")
                return held
            for most, which, waiting in ((MAX_OPEN_JOBS, f"{_OPEN} AND", "waiting"), (MAX_JOBS, "", "kept")):
                if _count(connection, f"jobs WHERE {which} student = ?", student) >= most:
                    raise Refused(f"{most} jobs of {student} are {waiting} already: ask for more inputs in one job")
            rows = [(student, position) for position in job.positions]
            connection.executemany("INSERT OR IGNORE INTO asked VALUES (?, ?)", rows)
            asked = _count(connection, _ASKED, student)
            if limit is not None and asked > limit:
                raise Refused(
                    f"{student} may ask about {limit} inputs altogether, and with this job it would be {asked}: "
                    "ask about fewer, or ask the consortium for more"
                )
            blob = np.asarray(job.positions, dtype="<u4").tobytes()
            now = utc_now().isoformat(timespec="seconds")
            connection.execute(
                "INSERT INTO jobs (id, student, pool_sha256, positions, note, submitted_utc, state, reason, labelled)"
                " VALUES (?, ?, ?, ?, ?, ?, 'queued', '', 0)",
                (job.job_id, student, job.pool_sha256, blob, job.note, now),
            )
            return _found(connection, "WHERE id = ?", job.job_id)[0]

    def asked(self, student: str) -> int:
        """How many distinct inputs count against the student's limit."""
        with connected(self._path) as connection:
            return _count(connection, _ASKED, student)

    def next(self) -> QueuedJob | None:
        """The first job that has not ended, first come first served; it runs from now on."""
        with connected(self._path) as connection, changing(connection):
            found = _found(connection, f"WHERE {_OPEN} ORDER BY number LIMIT 1")
            if found and found[0].state == "queued":
                connection.execute("UPDATE jobs SET state = 'running' WHERE number = ?", (found[0].number,))
        return found[0] if found else None

    def end(self, job: QueuedJob, labelled: Iterable[int], reason: str = "") -> None:
        """It is done, or stopped for ``reason``; ``labelled`` are its positions that were asked.

        Those that were not no longer count against the student's limit, unless another job of it waits for them.
        """
        answered = set(labelled)
        with connected(self._path) as connection, changing(connection):
            state = "stopped" if reason else "done"
            connection.execute(
                "UPDATE jobs SET state = ?, reason = ?, labelled = ? WHERE number = ?",
                (state, reason, len(answered), job.number),
            )
            others = _found(connection, f"WHERE {_OPEN} AND student = ?", job.student)
            wanted = {position for other in others for position in other.positions}
            free = [(job.student, at) for at in job.positions if at not in answered and at not in wanted]
            connection.executemany("DELETE FROM asked WHERE student = ? AND position = ?", free)

    def job(self, job_id: str, student: str) -> tuple[QueuedJob, int]:
        """The student's job of that id, and how many jobs come before it; Refused when there is none."""
        with connected(self._path) as connection:
            found = _found(connection, "WHERE id = ? AND student = ?", job_id, student)
            if not found:
                raise Refused(f"{student} has no job {job_id[:8]}: submit it first")
            ahead = _count(connection, f"jobs WHERE {_OPEN} AND number < ?", found[0].number)
        return found[0], 0 if found[0].ended else ahead

    def jobs(self) -> list[QueuedJob]:
        """All jobs, in the order in which they came."""
        with connected(self._path) as connection:
            return _found(connection, "ORDER BY number")


def _count(connection: sqlite3.Connection, what: str, *values: int | str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {what}", values).fetchone()[0])


def _found(connection: sqlite3.Connection, which: str, *values: int | str) -> list[QueuedJob]:
    rows = connection.execute(f"SELECT {_COLUMNS} FROM jobs {which}", values)
    return [
        QueuedJob(number, job, student, pool, tuple(np.frombuffer(blob, dtype="<u4").tolist()), *rest)
        for number, job, student, pool, blob, *rest in rows
    ]
