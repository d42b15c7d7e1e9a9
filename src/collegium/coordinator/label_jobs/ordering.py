"""How a student outside orders labels: calls over TLS with its own certificate, and its own folder of one job.

The folder holds what was asked, the pool, and in the end the labels. The job is written down before it is submitted, so
that the same command goes on where it was, on either side of a crash, and no input is asked for twice under two names.
"""

import logging
import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from collegium import limits
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.selection.queries import choose_queries
from collegium.coordinator.settings.run_config import StudentConfig
from collegium.data import PoolStore
from collegium.data.task import Task
from collegium.data.values import ArraySpec
from collegium.errors import CollegiumError, ConfigurationError, ProtocolViolation, StorageError, Unreachable
from collegium.protocol.channels import (
    Backoff,
    channel_credentials,
    channel_options,
    error_of,
    explain_failure,
    patience,
    require_version,
)
from collegium.protocol.codec import parse_json
from collegium.protocol.enrolment import request_certificate
from collegium.protocol.grpc_tls13 import grpc
from collegium.protocol.identities import Credentials, install_certificate
from collegium.protocol.label_jobs import (
    SERVICE,
    JobServiceDescription,
    JobStatus,
    LabelJob,
    piece_from_bytes,
)
from collegium.protocol.v1 import label_jobs_pb2 as jobs_pb
from collegium.whole_files import make_folder, read_whole, write_whole

logger = logging.getLogger("collegium.student")

ANSWER_S = 120.0
"""How long the answer of one message may take."""

Result = TypeVar("Result")


class LabelJobClient:
    """A student's connection to the coordinator. A call that is cut off is made again, after a wait.

    Every method raises what the coordinator answers. A coordinator that cannot be reached is waited for; one that was
    never reached and is not this consortium's (IdentityError), or speaks no TLS 1.3 (ProtocolViolation), is not.

    Parameters
    ----------
    load_credentials : called before every connection, so that a renewed certificate is taken up.
    address : ``host:port``; the host is the name that the coordinator's certificate must carry.
    """

    def __init__(
        self,
        load_credentials: Callable[[], Credentials],
        address: str,
        *,
        backoff: Backoff = Backoff(),  # noqa: B008 -- frozen
    ) -> None:
        self._load_credentials, self._address, self._backoff = load_credentials, address, backoff
        self._reached = False

    def describe(self) -> JobServiceDescription:
        """What the consortium has to offer; VersionMismatch when it speaks another version of the protocol."""
        question = jobs_pb.DescribeJobService(protocol_version=limits.PROTOCOL_VERSION).SerializeToString()

        def ask(call: _Call) -> bytes:
            for data in call("Describe", question, timeout_s=ANSWER_S):
                return data
            raise Unreachable("the coordinator ended the call without an answer")

        said = JobServiceDescription.from_bytes(self._patiently(ask))
        require_version(said.protocol_version, "the coordinator", "this student")
        return said

    def hold_pool(
        self, spec: ArraySpec, store: PoolStore, on_received: Callable[[int, int], None] = lambda done, total: None
    ) -> NDArray[Any]:
        """The pool, fetched into ``store`` from the byte that it has reached; ``on_received`` hears of bytes."""

        def fetch(call: _Call) -> NDArray[Any]:
            while not (state := store.state(spec)).complete:
                question = jobs_pb.PoolFrom(sha256=spec.sha256, offset_bytes=state.received_bytes)
                for data in call("FetchPool", question.SerializeToString()):
                    piece = piece_from_bytes(data)
                    if piece.pool != spec:
                        raise ProtocolViolation("the coordinator sent a piece of another pool")
                    on_received(store.accept(piece).received_bytes, spec.size_bytes)
                if store.state(spec).received_bytes <= state.received_bytes and not store.holds(spec):
                    raise Unreachable("the coordinator sent nothing of the pool")
            return store.open(spec.sha256)

        return self._patiently(fetch)

    def order(self, job: LabelJob, on_status: Callable[[JobStatus], None]) -> JobStatus:
        """Queue the job, once however often this is called, and wait until it has ended; its state, with the labels.

        ``on_status`` is called whenever something is new.
        """

        def listen(call: _Call) -> JobStatus:
            told: JobStatus | None = None
            for data in call("Order", job.to_bytes()):
                status = JobStatus.from_bytes(data)
                if status != told:
                    on_status(told := status)
                if status.ended:
                    return status
            raise Unreachable("the coordinator ended the call")

        return self._patiently(listen)

    def _patiently(self, work: "Callable[[_Call], Result]") -> Result:
        """Do it over a connection of its own, and again while the coordinator cannot be reached."""
        failures = 0
        while True:
            credentials = self._load_credentials()
            options = channel_options(self._address)
            call = None
            try:
                with grpc.secure_channel(self._address, channel_credentials(credentials), options) as channel:
                    call = _Call(channel)
                    return work(call)
            except Unreachable as error:
                answered = call is not None and call.answered
                self._reached |= answered
                failures = 1 if answered else failures + 1
                said: CollegiumError = error
                if not answered:
                    said = explain_failure(self._address, credentials)
                    if not isinstance(said, Unreachable) and not self._reached:
                        raise said from None
                delay_s = self._backoff.delay_s(failures, random.uniform)
                logger.warning("%s; trying again in %.1f s", said, delay_s)
                time.sleep(delay_s)


class _Call:
    """Calls a method of the label job service; yields the answers' bytes."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self.answered = False

    def __call__(self, method: str, question: bytes, *, timeout_s: float | None = None) -> Iterator[bytes]:
        multi: Any = self._channel.unary_stream(
            f"/{SERVICE}/{method}", request_serializer=bytes, response_deserializer=bytes
        )
        call: Any = multi(question, timeout=timeout_s)
        # A connection that is never made must not hang a call that has no time limit.
        waiting = patience(call.cancel)
        try:
            for data in call:
                waiting.cancel()
                self.answered = True
                yield data
        except grpc.RpcError as error:
            raise error_of(error.code(), error.details(), error.trailing_metadata()) from None
        finally:
            waiting.cancel()
            call.cancel()


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
