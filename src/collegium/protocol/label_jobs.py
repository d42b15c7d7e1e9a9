"""The messages between a student and the coordinator, as checked values, and their translation to and from protobuf.

Every decoder raises ProtocolViolation.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from collegium import limits
from collegium.data.values import SHA256, ArraySpec, PoolChunk, require
from collegium.protocol.codec import Translated, parse, read, write
from collegium.protocol.v1 import collegium_pb2 as pb
from collegium.protocol.v1 import label_jobs_pb2 as jobs_pb

SERVICE = "collegium.v1.LabelJobService"

MAX_JOB_INPUTS = 100_000
MAX_QUESTION_BYTES = 1024 * 1024
"""The longest message of a student. The largest job with the longest note takes about half of it."""
MAX_NOTE_CHARS = 200

JobState = Literal["queued", "running", "done", "stopped"]

_JOB_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class JobServiceDescription(Translated):
    """What a student must know before it asks for labels."""

    consortium: str
    task_json: str
    pool: ArraySpec
    student_json: str
    protocol_version: int = limits.PROTOCOL_VERSION
    message = jobs_pb.JobServiceDescription

    def __post_init__(self) -> None:
        require(len(self.task_json) <= limits.MAX_JSON_BYTES, "the task is too long")


@dataclass(frozen=True)
class LabelJob(Translated):
    """A request for labels. ``positions`` are in the pool that ``pool_sha256`` names."""

    job_id: str
    pool_sha256: str
    positions: tuple[int, ...]
    note: str = ""
    message = jobs_pb.LabelJob

    def __post_init__(self) -> None:
        require(_JOB_ID.fullmatch(self.job_id) is not None, "a job is named by 32 hexadecimal digits")
        require(SHA256.fullmatch(self.pool_sha256) is not None, "a pool is named by 64 hexadecimal digits")
        require(1 <= len(self.positions) <= MAX_JOB_INPUTS, f"a job asks for 1 to {MAX_JOB_INPUTS} inputs")
        require(len(set(self.positions)) == len(self.positions), "a job asks for each input once")
        require(all(0 <= at < limits.MAX_POOL_INPUTS for at in self.positions), "a position lies in a pool")
        require(len(self.note) <= MAX_NOTE_CHARS, f"a note has at most {MAX_NOTE_CHARS} characters")
        require(self.note.isprintable(), "a note is one line of text")


@dataclass(frozen=True)
class JobStatus(Translated):
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
    labels: Mapping[int, int] = field(default_factory=dict)
    """Once the job has ended: the class of each position that was asked about, -1 for an abstention."""
    message = jobs_pb.JobStatus

    def __post_init__(self) -> None:
        require(_JOB_ID.fullmatch(self.job_id) is not None, "a job is named by 32 hexadecimal digits")
        require(self.state in get_args(JobState), "a job in a state that is not known here: update Collegium")
        require(len(self.reason) <= limits.MAX_TEXT_CHARS, "the reason why a job stopped is a short text")
        require(all(-1 <= label < limits.MAX_CLASSES for label in self.labels.values()), "a label is a class or -1")

    @property
    def ended(self) -> bool:
        return self.state in ("done", "stopped")


def piece_to_bytes(piece: PoolChunk) -> bytes:
    message = pb.PoolChunk()
    write(piece, message)
    return message.SerializeToString()


def piece_from_bytes(data: bytes) -> PoolChunk:
    return read(PoolChunk, parse(pb.PoolChunk, data))
