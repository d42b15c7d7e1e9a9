"""The label jobs of students from outside, without any transport; safe for threads.

Privacy: a job names inputs of the public pool alone, a label leaves only through the ledger, and an input that was
paid for once is free for whoever asks again. So jobs spend the consortium's one budget and nothing beside it.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from collegium import limits
from collegium.coordinator.label_jobs.queue import JobQueue, QueuedJob
from collegium.coordinator.membership.members import Members
from collegium.coordinator.selection.queries import query_key
from collegium.data.values import PoolChunk, array_spec, chunks
from collegium.errors import PoolMismatch
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.certificates import Subject
from collegium.protocol.label_jobs import JobServiceDescription, JobStatus, LabelJob


class LabelJobService:
    """Answers students, and hands their jobs to the coordinator.

    Parameters
    ----------
    task_json, student_json : what is to be learnt, and how the consortium's own student learns it.
    pool : the public inputs, shape ``[inputs, …]``.
    ledger : the file that pays and holds the labels; need not be there yet.
    members : who may ask, as of now.
    study : whose labels students are given, where the consortium has several studies.
    """

    def __init__(
        self,
        queue: JobQueue,
        *,
        task_json: str,
        student_json: str,
        pool: NDArray[Any],
        ledger: Path,
        members: Callable[[], Members],
        study: str | None = None,
    ) -> None:
        self._study = study
        self._queue, self._pool, self._ledger_file, self._members = queue, pool, ledger, members
        self._spec = array_spec(pool)
        self._task_json, self._student_json = task_json, student_json
        self._ledger: Ledger | None = None
        self._ledger_lock = threading.Lock()
        self._progress: dict[str, int] = {}
        self._changed = threading.Condition()
        self._changes, self._closed = 0, False
        self.on_change: Callable[[], None] = lambda: None
        """Called from any thread when a job may stand otherwise than before."""

    # -- what students ask -----------------------------------------------------------------------

    def admit(self, subject: Subject) -> None:
        """IdentityError unless the holder of this certificate may ask for labels now."""
        self._members().admit_student(subject)

    def describe(self, subject: Subject) -> JobServiceDescription:
        members = self._members()
        members.admit_student(subject)
        return JobServiceDescription(members.consortium, self._task_json, self._spec, self._student_json)

    def pieces(self, sha256: str, offset_bytes: int) -> Iterator[PoolChunk]:
        """The pool from a byte on; PoolMismatch when the student means another."""
        self._require_pool(sha256)
        return chunks(self._pool, self._spec, offset_bytes)

    def submit(self, subject: Subject, job: LabelJob) -> None:
        """Queue it; Refused or PoolMismatch says why not. Again under the same id, it changes nothing."""
        student = self._members().admit_student(subject)
        self._require_pool(job.pool_sha256)
        if max(job.positions) >= len(self._pool):
            raise PoolMismatch(f"the pool has {len(self._pool)} inputs, and the job names number {max(job.positions)}")
        self._queue.add(job, subject.name, student.queries)
        self.tell()

    def status(self, subject: Subject, job_id: str) -> JobStatus:
        """The state of the student's own job; with its labels, once it has ended."""
        self.admit(subject)
        job, ahead = self._queue.job(job_id, subject.name)
        labelled = job.labelled if job.ended else self._progress.get(job_id, 0)
        labels = self.released(job) if job.ended else {}
        reason = job.reason[: limits.MAX_TEXT_CHARS]
        return JobStatus(job.id, job.state, len(job.positions), labelled, ahead, reason, labels)

    # -- what the coordinator does ---------------------------------------------------------------

    def prepare(self) -> None:
        """StorageError when the queue cannot be kept."""
        self._queue.prepare()

    def next_job(self) -> QueuedJob | None:
        """The job whose turn it is, waiting for one as long as it takes; None once the service is closed."""
        while not self._closed:
            seen = self._changes
            if (job := self._queue.next()) is not None:
                return job
            with self._changed:
                while self._changes == seen:
                    self._changed.wait()
        return None

    def note_progress(self, job: QueuedJob, labelled: int) -> None:
        self._progress[job.id] = labelled
        self.tell()

    def end(self, job: QueuedJob, reason: str = "") -> int:
        """It is done, or stopped for a reason; how many of its inputs were asked."""
        released = self.released(job)
        self._queue.end(job, released, reason)
        self._progress.pop(job.id, None)
        self.tell()
        return len(released)

    def released(self, job: QueuedJob) -> dict[int, int]:
        """Class per position of the job that is in the ledger, -1 for an abstention."""
        if not self.is_about_the_pool(job) or (ledger := self._open_ledger()) is None:
            return {}
        held = ledger.labels()
        keys = ((position, query_key(self._pool[position], self._study)) for position in job.positions)
        return {position: held[key] for position, key in keys if key in held}

    def is_about_the_pool(self, job: QueuedJob) -> bool:
        """Whether its positions are in the pool of today."""
        return job.pool_sha256 == self._spec.sha256

    def tell(self) -> None:
        """Wake whoever waits for a change."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()
        self.on_change()

    def close(self) -> None:
        """Wake whoever waits for a job, with none."""
        self._closed = True
        self.tell()
        with self._ledger_lock:
            if self._ledger is not None:
                self._ledger.close()
                self._ledger = None

    def _require_pool(self, sha256: str) -> None:
        if sha256 != self._spec.sha256:
            raise PoolMismatch(f"the consortium's pool is {self._spec.sha256[:12]}, not {sha256[:12]}: ask anew")

    def _open_ledger(self) -> Ledger | None:
        with self._ledger_lock:
            if self._ledger is None and self._ledger_file.exists():
                self._ledger = Ledger.read(self._ledger_file)
            return self._ledger
