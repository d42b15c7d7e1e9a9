"""A student's own folder of one job: what was asked, the pool, and in the end the labels.

The job is written down before it is submitted, so that the same command goes on where it was, on either side of a
crash, and no input is asked for twice under two names.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from collegium.coordinator.label_jobs.client import LabelJobClient
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.selection.queries import choose_queries
from collegium.coordinator.settings.run_config import StudentConfig
from collegium.data import PoolStore
from collegium.data.task import Task
from collegium.errors import ConfigurationError, ProtocolViolation, StorageError
from collegium.protocol.codec import parse_json
from collegium.protocol.enrolment import request_certificate
from collegium.protocol.identities import Credentials, install_certificate
from collegium.protocol.label_jobs import JobStatus, LabelJob
from collegium.whole_files import make_folder, read_whole, write_whole

_WRITTEN = TypeAdapter(LabelJob)
"""Writes and reads `job.json`."""


@dataclass(frozen=True)
class Delivery:
    """The result of a job: everything that a student is fitted from.

    ``labels`` has a class per position, -1 for an abstention; positions without an entry were not asked.
    """

    task: Task
    student: StudentConfig
    pool: NDArray[Any]
    labels: dict[int, int]
    status: JobStatus


def enrol_student(address: str, name: str, code: str, fingerprint: str, folder: Path) -> tuple[Credentials, str]:
    """Make this student's keys in ``folder`` and have them certified; where it then asks for labels.

    See `request_certificate` for errors. With keys that are enrolled it renews the certificate, without a code.
    """
    answer, authority_pem = request_certificate(address, name, "student", code, fingerprint, folder)
    return install_certificate(folder, "student", answer.certificate_pem.encode(), authority_pem), answer.sessions


def choice(queries: int | None, positions: Path | None, seed: int) -> Callable[[int], Sequence[int]]:
    """Which positions to ask for, given the number of inputs in the pool: ``queries`` at random, or those of a file.

    ConfigurationError unless exactly one of the two is given, or where the file lists no whole numbers.
    """
    if (queries is None) == (positions is None):
        raise ConfigurationError("say which inputs to ask about: --queries N at random, or --positions FILE")
    if positions is not None:
        try:
            listed = [int(line) for line in read_whole(positions).decode().split()]
        except ValueError as error:
            raise ConfigurationError(f"{positions} lists no positions: write one whole number per line") from error
        return lambda pool_inputs: listed
    count = queries or 0

    def draw(pool_inputs: int) -> Sequence[int]:
        if count > pool_inputs:
            raise ConfigurationError(f"--queries is {count}, but the consortium's pool has {pool_inputs} inputs")
        chosen: list[int] = choose_queries(pool_inputs, count, seed).tolist()
        return chosen

    return draw


def order_labels(
    client: LabelJobClient,
    folder: Path,
    choose: Callable[[int], Sequence[int]],
    note: str,
    *,
    on_received: Callable[[int, int], None] = lambda done, total: None,
    on_status: Callable[[JobStatus], None] = lambda status: None,
) -> Delivery:
    """Submit the job of ``folder``, wait until it has ended, and write its labels.csv.

    Parameters
    ----------
    choose : positions to ask for, given the number of inputs in the pool. In a folder that has a job already it must
        choose the same again.

    Raises
    ------
    ConfigurationError, when the folder's job asks for something else; StorageError; whatever the coordinator answers.
    """
    described = client.describe()
    task = parse_json(Task, described.task_json, "a task")
    student = parse_json(StudentConfig, described.student_json, "a student")
    make_folder(folder)
    pool = client.hold_pool(described.pool, PoolStore(folder / "pools"), on_received)
    job = _job_of(folder, described.pool.sha256, tuple(choose(len(pool))), note)
    status = client.order(job, on_status)
    labels = dict(status.labels)
    if not labels.keys() <= set(job.positions) or max(labels.values(), default=0) >= len(task.classes):
        raise ProtocolViolation("the coordinator sent labels that were not asked for: update Collegium")
    rows = [(at, labels[at] if labels.get(at, -1) >= 0 else None) for at in job.positions if at in labels]
    RunFolder(folder).write_labels(rows)
    return Delivery(task, student, pool, labels, status)


def _job_of(folder: Path, pool_sha256: str, positions: tuple[int, ...], note: str) -> LabelJob:
    """The job that the folder holds, or a new one, written down."""
    path = folder / "job.json"
    if not path.exists():
        job = LabelJob(secrets.token_hex(16), pool_sha256, positions, note)
        write_whole(path, _WRITTEN.dump_json(job) + b"\n")
        return job
    try:
        held = _WRITTEN.validate_json(read_whole(path))
    except (ValidationError, ProtocolViolation) as error:
        raise StorageError(f"{path} is damaged: choose another folder; labels that were paid for are free") from error
    if (held.pool_sha256, held.positions) != (pool_sha256, positions):
        raise ConfigurationError(
            f"{folder} holds a job that asks for other inputs: choose another folder for this one; "
            "inputs that were labelled before cost nothing"
        )
    return held
