"""The messages between a student and the coordinator, as checked values, and their translation to and from protobuf.

Every decoder raises ProtocolViolation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from google.protobuf.message import DecodeError, Message

from collegium import limits
from collegium.data.values import SHA256, ArraySpec, require
from collegium.errors import ProtocolViolation
from collegium.protocol.messages import PoolChunk, spec_from_proto, spec_to_proto
from collegium.protocol.v1 import collegium_pb2 as pb
from collegium.protocol.v1 import label_jobs_pb2 as jobs_pb

SERVICE = "collegium.v1.LabelJobService"

MAX_JOB_INPUTS = 100_000
MAX_QUESTION_BYTES = 1024 * 1024
"""The longest message of a student. The largest job with the longest note takes about half of it."""
MAX_NOTE_CHARS = 200

JobState = Literal["queued", "running", "done", "stopped"]

_JOB_ID = re.compile(r"[0-9a-f]{32}")
_Message = TypeVar("_Message", bound=Message)


@dataclass(frozen=True)
class JobServiceDescription:
    """What a student must know before it asks for labels."""

    consortium: str
    task_json: str
    pool: ArraySpec
    student_json: str
    inputs_left: int | None = None
    protocol_version: int = limits.PROTOCOL_VERSION

    def to_bytes(self) -> bytes:
        message = jobs_pb.JobServiceDescription(
            protocol_version=self.protocol_version,
            consortium=self.consortium,
            task_json=self.task_json,
            pool=spec_to_proto(self.pool),
            student_json=self.student_json,
            inputs_left=self.inputs_left,
        )
        return message.SerializeToString()

    @classmethod
    def from_bytes(cls, data: bytes) -> JobServiceDescription:
        said = parse(jobs_pb.JobServiceDescription, data)
        require(len(said.task_json) <= limits.MAX_JSON_BYTES, "the task is too long")
        return cls(
            said.consortium,
            said.task_json,
            spec_from_proto(said.pool),
            said.student_json,
            said.inputs_left if said.HasField("inputs_left") else None,
            said.protocol_version,
        )


@dataclass(frozen=True)
class LabelJob:
    """A request for labels. ``positions`` are in the pool that ``pool_sha256`` names."""

    job_id: str
    pool_sha256: str
    positions: tuple[int, ...]
    note: str = ""

    def __post_init__(self) -> None:
        check_job_id(self.job_id)
        require(SHA256.fullmatch(self.pool_sha256) is not None, "a pool is named by 64 hexadecimal digits")
        require(1 <= len(self.positions) <= MAX_JOB_INPUTS, f"a job asks for 1 to {MAX_JOB_INPUTS} inputs")
        require(len(set(self.positions)) == len(self.positions), "a job asks for each input once")
        require(all(0 <= at < limits.MAX_POOL_INPUTS for at in self.positions), "a position lies in a pool")
        require(len(self.note) <= MAX_NOTE_CHARS, f"a note has at most {MAX_NOTE_CHARS} characters")
        require(self.note.isprintable(), "a note is one line of text")

    def to_bytes(self) -> bytes:
        return jobs_pb.LabelJob(
            job_id=self.job_id, pool_sha256=self.pool_sha256, positions=self.positions, note=self.note
        ).SerializeToString()

    @classmethod
    def from_bytes(cls, data: bytes) -> LabelJob:
        said = parse(jobs_pb.LabelJob, data)
        require(len(said.positions) <= MAX_JOB_INPUTS, f"a job asks for 1 to {MAX_JOB_INPUTS} inputs")
        return cls(said.job_id, said.pool_sha256, tuple(said.positions), said.note)


@dataclass(frozen=True)
class JobStatus:
    """The state of a job."""

    job_id: str
    state: JobState
    inputs: int
    labelled: int
    """Inputs that were asked about: those with a label and those with an abstention."""
    ahead: int = 0
    """How many jobs come before this one."""
    reason: str = ""
    """Why the job stopped."""

    @property
    def ended(self) -> bool:
        return self.state in ("done", "stopped")

    def to_bytes(self) -> bytes:
        message = jobs_pb.JobStatus(
            job_id=self.job_id,
            state=self.state,
            reason=self.reason,
            inputs=self.inputs,
            labelled=self.labelled,
            ahead=self.ahead,
        )
        return message.SerializeToString()

    @classmethod
    def from_bytes(cls, data: bytes) -> JobStatus:
        said = parse(jobs_pb.JobStatus, data)
        state = next((state for state in get_args(JobState) if state == said.state), None)
        if state is None:
            raise ProtocolViolation("a job in a state that is not known here: update Collegium")
        return cls(
            check_job_id(said.job_id),
            state,
            said.inputs,
            said.labelled,
            said.ahead,
            said.reason[: limits.MAX_TEXT_CHARS],
        )


@dataclass(frozen=True)
class JobLabels:
    """The class of each position that was asked about; -1 is an abstention."""

    labels: Mapping[int, int]

    def to_bytes(self) -> bytes:
        return jobs_pb.JobLabels(
            positions=list(self.labels.keys()), labels=list(self.labels.values())
        ).SerializeToString()

    @classmethod
    def from_bytes(cls, data: bytes) -> JobLabels:
        said = parse(jobs_pb.JobLabels, data)
        require(len(said.positions) == len(said.labels), "a label for each position")
        require(all(-1 <= label < limits.MAX_CLASSES for label in said.labels), "a label is a class or -1")
        return cls(dict(zip(said.positions, said.labels, strict=True)))


def check_job_id(job_id: str) -> str:
    """The id itself; ProtocolViolation unless it is 32 hexadecimal digits."""
    require(_JOB_ID.fullmatch(job_id) is not None, "a job is named by 32 hexadecimal digits")
    return job_id


def parse(kind: type[_Message], data: bytes) -> _Message:
    """The protobuf message in ``data``. Raises ProtocolViolation if there is none."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ProtocolViolation("bytes that are no message of this protocol") from error


def piece_to_bytes(piece: PoolChunk) -> bytes:
    message = pb.PoolChunk(pool=spec_to_proto(piece.pool), offset_bytes=piece.offset_bytes, data=piece.data)
    return message.SerializeToString()


def piece_from_bytes(data: bytes) -> PoolChunk:
    said = parse(pb.PoolChunk, data)
    return PoolChunk(spec_from_proto(said.pool), said.offset_bytes, said.data)
