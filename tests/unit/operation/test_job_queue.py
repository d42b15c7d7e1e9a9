"""The durable queue of label jobs: turns, limits, and what survives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from collegium.coordinator.label_jobs.queue import MAX_OPEN_JOBS, JobQueue
from collegium.data.values import ArraySpec
from collegium.errors import ProtocolViolation, Refused, StorageError
from collegium.protocol.label_jobs import JobServiceDescription, JobStatus, LabelJob

POOL = "ab" * 32


def job(number: int, *positions: int, note: str = "") -> LabelJob:
    return LabelJob(f"{number:032x}", POOL, positions, note)


@pytest.fixture
def queue(tmp_path: Path) -> JobQueue:
    queue = JobQueue(tmp_path)
    queue.prepare()
    return queue


def test_jobs_take_their_turns_in_the_order_in_which_they_came(queue: JobQueue) -> None:
    for number, student in ((3, "lab"), (1, "firm"), (2, "lab")):
        queue.add(job(number, 1), student, None)
    turns = []
    while (first := queue.next()) is not None:
        turns.append(int(first.id, 16))
        queue.end(first, first.positions)
    assert turns == [3, 1, 2]


def test_a_job_that_runs_is_found_again_until_it_has_ended(queue: JobQueue, tmp_path: Path) -> None:
    queue.add(job(1, 5, 4), "lab", None)
    queue.add(job(2, 1), "lab", None)
    first = queue.next()
    assert first is not None
    again = JobQueue(tmp_path).next()
    assert again is not None and (again.id, again.positions) == (first.id, (5, 4)) and again.state == "running"
    assert queue.job(job(2, 1).job_id, "lab")[1] == 1


def test_queued_again_under_its_id_it_is_one_job(queue: JobQueue) -> None:
    assert queue.add(job(1, 5), "lab", None).number == queue.add(job(1, 5), "lab", None).number
    with pytest.raises(Refused, match="other inputs"):
        queue.add(job(1, 6), "lab", None)
    with pytest.raises(Refused, match="other inputs"):
        queue.add(job(1, 5), "firm", None)
    with pytest.raises(Refused, match="other inputs"):
        queue.add(replace(job(1, 5), pool_sha256="cd" * 32), "lab", None)
    assert len(queue.jobs()) == 1


def test_a_limit_counts_distinct_inputs_and_a_refused_job_leaves_no_trace(queue: JobQueue) -> None:
    queue.add(job(1, 1, 2, 3), "lab", 4)
    queue.add(job(2, 3, 2, 4), "lab", 4)
    with pytest.raises(Refused, match="4 inputs altogether, and with this job it would be 6"):
        queue.add(job(3, 5, 6), "lab", 4)
    assert queue.asked("lab") == 4 and len(queue.jobs()) == 2
    queue.add(job(4, 5, 6), "firm", 4)


def test_inputs_of_a_stopped_job_that_were_not_asked_may_be_asked_again(queue: JobQueue) -> None:
    queue.add(job(1, 1, 2, 3, 4), "lab", 4)
    queue.add(job(2, 4), "lab", 4)
    first = queue.next()
    assert first is not None
    queue.end(first, [1], "the budget is spent")
    assert queue.asked("lab") == 2, "1 was asked, and 4 is wanted by the job that waits"
    queue.add(job(3, 7, 8), "lab", 4)


def test_one_student_cannot_fill_the_queue(queue: JobQueue) -> None:
    for number in range(MAX_OPEN_JOBS):
        queue.add(job(number, 1), "lab", None)
    with pytest.raises(Refused, match="waiting already"):
        queue.add(job(99, 1), "lab", None)
    queue.add(job(99, 1), "firm", None)


def test_a_job_of_somebody_else_is_as_one_that_is_not_there(queue: JobQueue) -> None:
    queue.add(job(1, 1), "lab", None)
    for name in ("firm", "nobody"):
        with pytest.raises(Refused, match="has no job"):
            queue.job(job(1, 1).job_id, name)


WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from collegium.coordinator.label_jobs.queue import JobQueue
from collegium.protocol.label_jobs import LabelJob
queue = JobQueue(Path(sys.argv[1]))
queue.prepare()
for number in range(10_000):
    queue.add(LabelJob(f"{number:032x}", "ab" * 32, tuple(range(number, number + 50))), f"lab-{number // 10}", None)
    print(number, flush=True)
"""


def test_what_was_queued_is_there_after_kill_9(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    for line in writer.stdout:
        if int(line) == 20:
            break
    os.kill(writer.pid, signal.SIGKILL)
    confirmed = 21 + len(writer.communicate()[0].splitlines())
    found = JobQueue(tmp_path).jobs()
    assert len(found) in (confirmed, confirmed + 1), "each that was confirmed, and at most the one under way"
    assert [job.positions for job in found] == [tuple(range(n, n + 50)) for n in range(len(found))]
    assert JobQueue(tmp_path).asked("lab-0") == 59


def test_a_damaged_queue_is_one_typed_error(tmp_path: Path) -> None:
    (tmp_path / "queue.sqlite").write_bytes(b"no database at all, but long enough to be looked at" * 20)
    with pytest.raises(StorageError, match="cannot use"):
        JobQueue(tmp_path).next()


@pytest.mark.parametrize(
    ("id_", "positions", "note", "words"),
    [
        ("x", (1,), "", "hexadecimal"),
        ("0" * 32, (), "", "1 to"),
        ("0" * 32, (2, 2), "", "each input once"),
        ("0" * 32, (10_000_001,), "", "lies in a pool"),
        ("0" * 32, (1,), "x" * 201, "at most 200"),
        ("0" * 32, (1,), "two\nlines", "one line"),
    ],
)
def test_a_job_that_cannot_be_is_refused_by_its_own_checks(
    id_: str, positions: tuple[int, ...], note: str, words: str
) -> None:
    with pytest.raises(ProtocolViolation, match=words):
        LabelJob(id_, POOL, positions, note)


def test_messages_come_back_as_they_went() -> None:
    spec = ArraySpec(POOL, "uint8", (100, 8, 8, 1))
    for sent in (
        job(1, 7, 3, note="a note"),
        JobServiceDescription("trial", "{}", spec, "{}"),
        JobStatus("0" * 32, "stopped", 5, 2, 1, "no budget"),
        JobStatus("0" * 32, "done", 2, 2, labels={3: -1, 1: 9}),
    ):
        assert type(sent).from_bytes(sent.to_bytes()) == sent
    for kind in (LabelJob, JobServiceDescription, JobStatus):
        with pytest.raises(ProtocolViolation):
            kind.from_bytes(b"\xff\xff\xff")
