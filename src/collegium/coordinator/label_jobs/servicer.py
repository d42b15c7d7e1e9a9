"""The gRPC side of the label job service, on the port of the parties' sessions: for students alone, within bounds.

A call is taken up before its message is read: who calls is known first, and a message that a student sends is read
only when its turn has come, so that the memory which students can make the coordinator use does not grow with them.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from collegium.coordinator.label_jobs.service import LabelJobService
from collegium.coordinator.service.peer_events import EventKind, OnEvent, Service, SessionEvent, uncancelled
from collegium.errors import CollegiumError, ProtocolViolation, Refused
from collegium.protocol.certificates import Subject
from collegium.protocol.channels import certified, refusal, require_version
from collegium.protocol.codec import parse
from collegium.protocol.grpc_tls13 import EOF, grpc
from collegium.protocol.label_jobs import (
    MAX_QUESTION_BYTES,
    SERVICE,
    LabelJob,
    piece_to_bytes,
)
from collegium.protocol.v1 import label_jobs_pb2 as jobs_pb

logger = logging.getLogger("collegium.students")

MAX_CALLS_PER_STUDENT = 4
READING_AT_ONCE = 8
"""So many students' messages are read at any time; each may have `limits.MAX_REPLY_BYTES` before it is refused."""
READING_S = 5.0
"""How long one message may take to arrive."""
HEARTBEAT_S = 15.0
"""A follower is told how its job stands at least this often, and is cut off within it once it is revoked."""

Context = grpc.aio.ServicerContext[bytes, bytes]
Answering = Callable[[Subject, bytes, Context], Awaitable[None]]


class LabelServicer:
    """Answers students' calls. Everything here runs on the server's loop; the label job service works in threads."""

    def __init__(self, jobs: LabelJobService, on_event: OnEvent) -> None:
        self._jobs, self._on_event = jobs, on_event
        self._calls: Counter[str] = Counter()
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._reading = asyncio.Semaphore(READING_AT_ONCE)
        self._bell = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        jobs.on_change = self._ring_from_anywhere

    def service(self) -> Service:
        """The gRPC service. It takes and returns bytes, so that a message that cannot be parsed gets our own error."""
        answers: dict[str, Answering] = {
            "Describe": self._describe,
            "FetchPool": self._fetch_pool,
            "Order": self._order,
        }
        methods = {
            name: grpc.stream_stream_rpc_method_handler(self._answering(answer)) for name, answer in answers.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _answering(self, answer: Answering) -> Callable[[Any, Context], Awaitable[None]]:
        async def attend(_: Any, context: Context) -> None:
            self._loop = asyncio.get_running_loop()
            name = None
            try:
                subject = certified(context, "student")
                name = subject.name
                self._jobs.admit(subject)
                with self._one_more(subject):
                    await answer(subject, await self._read(name, context), context)
            except CollegiumError as error:
                kind: EventKind = "violation" if isinstance(error, ProtocolViolation) else "refused"
                self._on_event(SessionEvent(kind, name, context.peer(), str(error), error.code))
                status, details, metadata = refusal(error)
                await context.abort(status, details, metadata)

        return attend

    @contextmanager
    def _one_more(self, subject: Subject) -> Iterator[None]:
        if self._calls[subject.name] >= MAX_CALLS_PER_STUDENT:
            raise Refused(f"{subject.name} has {MAX_CALLS_PER_STUDENT} calls open already: end one first")
        self._calls[subject.name] += 1
        try:
            yield
        finally:
            self._calls[subject.name] -= 1
            if not self._calls[subject.name]:
                del self._calls[subject.name]

    async def _read(self, name: str, context: Context) -> bytes:
        async with self._turns[name], self._reading:  # one of a student's at a time: none keeps the others out
            reading: asyncio.Future[Any] = uncancelled(context.read())
            if not (await asyncio.wait({reading}, timeout=READING_S))[0]:
                raise ProtocolViolation(f"no question within {READING_S:g} s")
            data = reading.result()
            del reading
        if data is EOF:
            raise ProtocolViolation("the call ended before its question")
        if len(data) > MAX_QUESTION_BYTES:
            del data  # the error's traceback holds this frame for as long as the refusal takes
            raise ProtocolViolation(f"a student's message has at most {MAX_QUESTION_BYTES} bytes")
        return bytes(data)

    # -- the three questions ---------------------------------------------------------------------

    async def _describe(self, subject: Subject, data: bytes, context: Context) -> None:
        spoken = parse(jobs_pb.DescribeJobService, data).protocol_version
        require_version(spoken, "this student", "the coordinator")
        await context.write((await asyncio.to_thread(self._jobs.describe, subject)).to_bytes())

    async def _fetch_pool(self, subject: Subject, data: bytes, context: Context) -> None:
        asked = parse(jobs_pb.PoolFrom, data)
        pieces = self._jobs.pieces(asked.sha256, asked.offset_bytes)
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            await context.write(piece_to_bytes(piece))

    async def _order(self, subject: Subject, data: bytes, context: Context) -> None:
        job = LabelJob.from_bytes(data)
        await asyncio.to_thread(self._jobs.submit, subject, job)
        job_id, inputs = job.job_id, len(job.positions)
        del data, job  # the call may stay open for days, and needs the id alone
        logger.info("%s: job %s, %d inputs", subject.name, job_id[:8], inputs)
        while True:
            bell = self._bell  # taken before looking, so that no change is missed
            status = await asyncio.to_thread(self._jobs.status, subject, job_id)
            await context.write(status.to_bytes())
            if status.ended:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(bell.wait(), HEARTBEAT_S)

    def _ring_from_anywhere(self) -> None:
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody follows any more
                loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()
