"""A party's side of the connection: it dials the coordinator, names itself, answers requests, and reconnects.

A thread of its own answers the requests one by one, so that a fit of many minutes delays neither keepalive nor the
reading of messages. All sessions of a process share one loop, and who waits is woken by what comes alone: gRPC's own
blocking calls wake every thread several times a second. A request that is repeated while it is being answered is
answered once. One that is repeated later gets the answer that the Party remembers.
"""

import asyncio
import logging
import queue
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, Protocol, Self

from collegium import limits
from collegium.computing import telling
from collegium.data.task import Task
from collegium.errors import (
    CannotServe,
    CollegiumError,
    ConfigurationError,
    DataError,
    OtherPurpose,
    ProtocolViolation,
    StorageError,
    Unreachable,
)
from collegium.interrupts import BUSY_THREAD
from collegium.logs import event
from collegium.protocol.channels import (
    ATTEND,
    Backoff,
    channel_credentials,
    channel_options,
    error_of,
    explain_failure,
    patience,
    require_version,
)
from collegium.protocol.codec import parse, parse_json
from collegium.protocol.grpc_tls13 import EOF, grpc
from collegium.protocol.identities import Credentials
from collegium.protocol.loop_thread import LoopThread, SharedLoop
from collegium.protocol.messages import Reply, Request
from collegium.protocol.replies import Failure
from collegium.protocol.v1 import collegium_pb2 as pb
from collegium.version import SOFTWARE

logger = logging.getLogger("collegium.party")

MAX_WAITING_REQUESTS = 256
COMPUTING_EVERY_S = 5.0
"""How often a party says at most that it goes on computing an answer."""
BETWEEN_RUNS_S = 5.0
"""How long a party that stays waits after a farewell before it dials again."""

_LOOP = SharedLoop("party-sessions")


class Answers(Protocol):
    """What answers requests: a Party."""

    def handle(self, request: Request) -> Reply: ...


class PartySession:
    """Serves one party until the coordinator says farewell, `stop` is called, or going on is hopeless.

    Parameters
    ----------
    open_party
        Called with the consortium's task on the first welcome, and again for another study's.
    load_credentials
        Called before every attempt, so that a renewed certificate is taken up without a restart and one
        that has expired is reported as expired. Its errors end a party that never had valid credentials.
    address
        ``host:port`` of the coordinator; the host is the name that its certificate must carry.
    on_connected
        Called after every welcome.
    on_roster
        Called with every roster that the coordinator announces, before any request that comes after it.
    rehearses
        Whether it takes part in rehearsals, and in nothing else; without it, in everything else alone.
    stays
        Whether a farewell is not the end: the party dials again, and waits for the consortium's next run or study.
    sleep
        The waiting, for tests; it may return early when the party is stopped.
    """

    def __init__(  # noqa: PLR0913 -- what a session is given once, by name
        self,
        open_party: Callable[[Task], Answers],
        load_credentials: Callable[[], Credentials],
        address: str,
        *,
        on_connected: Callable[[], None] = lambda: None,
        on_roster: Callable[[str], None] = lambda roster_json: None,
        stays: bool = False,
        rehearses: bool = False,
        backoff: Backoff = Backoff(),  # noqa: B008 -- frozen
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._open_party, self._load_credentials, self._address = open_party, load_credentials, address
        self._on_connected, self._on_roster = on_connected, on_roster
        self._stays, self._rehearses, self._backoff = stays, rehearses, backoff
        self._stopping = threading.Event()
        self._sleep = sleep or self._stopping.wait
        self._credentials: Credentials | None = None
        self._stream: Stream | None = None
        self._task: Task | None = None
        self._worker: Worker | None = None

    def run(self) -> str:
        """Serve; return the coordinator's farewell, or "stopped". Raises the error that made it hopeless."""
        with _LOOP.used() as loop:
            return self._serve(loop)

    def _serve(self, loop: LoopThread) -> str:
        failures = 0
        try:
            while not self._stopping.is_set():
                credentials = self._credentials = self._current_credentials()
                welcomed = threading.Event()
                try:
                    reason = self._attend(loop, credentials, welcomed)
                    if not self._stays or self._stopping.is_set():
                        return reason
                    failures = 0
                    logger.info("%s; waiting for what comes next", reason, extra=event("waiting", reason=reason))
                    self._sleep(BETWEEN_RUNS_S)
                except Unreachable as error:
                    failures = 1 if welcomed.is_set() else failures + 1
                    if not self._stopping.is_set():
                        reached = welcomed.is_set() or isinstance(error, OtherPurpose)
                        self._wait(error, failures, None if reached else credentials)
            return "stopped"
        finally:
            if self._worker is not None:
                self._worker.close()

    def stop(self) -> None:
        """End `run` soon, from any thread."""
        self._stopping.set()
        if (stream := self._stream) is not None:
            stream.cancel()

    def _current_credentials(self) -> Credentials:
        try:
            return self._load_credentials()
        except CollegiumError as error:
            if self._credentials is None:
                raise
            self._credentials.check_validity()
            logger.warning("%s; going on with the credentials from before", error)
            return self._credentials

    def _wait(self, error: Unreachable, failures: int, refused: Credentials | None) -> None:
        """Wait before the next attempt, or raise the error if another attempt cannot help.

        ``refused`` are the credentials of an attempt that failed before its welcome; a handshake finds out why.
        A wrong certificate on the other side stops only a party that was never welcomed. Later it is more likely
        that somebody in the network intercepts the connection, and then the party waits until that ends.
        """
        cause: CollegiumError = error
        if refused is not None:
            cause = explain_failure(self._address, refused)
            if not isinstance(cause, Unreachable) and self._task is None:
                raise cause
        delay_s = self._backoff.delay_s(failures, random.uniform)
        fields = event("connection-lost", code=cause.code, retry_in_s=round(delay_s, 1))
        logger.warning("%s; trying again in %.1f s", cause, delay_s, extra=fields)
        self._sleep(delay_s)

    def _attend(  # noqa: C901 -- what is said on one connection, in its order
        self, loop: LoopThread, credentials: Credentials, welcomed: threading.Event
    ) -> str:
        """One connection, from Hello to Farewell; raises Unreachable when it is cut."""
        hello = pb.Hello(
            protocol_version=limits.PROTOCOL_VERSION,
            party=credentials.name,
            software=SOFTWARE,
            rehearsal=self._rehearses,
        )
        with Stream(loop, self._address, credentials) as stream:
            stream.send(pb.FromParty(hello=hello).SerializeToString())
            self._stream = stream
            waiting = patience(stream.cancel)
            cannot: CollegiumError | None = None
            try:
                if self._stopping.is_set():
                    return "stopped"
                while (data := stream.received()) is not None:
                    if cannot is not None:
                        continue  # sent before the coordinator read that this party leaves
                    message = parse(pb.FromCoordinator, data)
                    match message.WhichOneof("body"):
                        case "welcome":
                            waiting.cancel()
                            try:
                                worker = self._take_welcome(message.welcome)
                            except (ConfigurationError, DataError, StorageError) as error:
                                cannot = error
                                stream.send(_leaving(error))
                                # The coordinator ends the connection once it has read that.
                                waiting = patience(stream.cancel)
                                continue
                            welcomed.set()
                            worker.reply_to(stream.send, says_computing=message.welcome.hears_computing)
                            self._on_connected()
                        case "request" if self._worker is not None:
                            self._worker.take(message.request)
                        case "roster":
                            self._on_roster(message.roster.roster_json)
                        case "farewell":
                            return str(message.farewell.reason[: limits.MAX_TEXT_CHARS])
                        case _:
                            raise ProtocolViolation("the coordinator sent something unknown: update Collegium")
                raise cannot or Unreachable("the coordinator ended the connection")
            except (grpc.RpcError, CancelledError) as error:
                if cannot is not None:
                    raise cannot from None
                if self._stopping.is_set():
                    return "stopped"
                raise _cut(error) from None
            finally:
                waiting.cancel()
                self._stream = None
                if self._worker is not None:
                    self._worker.reply_to(None)

    def _take_welcome(self, welcome: pb.Welcome) -> "Worker":
        require_version(welcome, "the coordinator", "this party")
        if welcome.rehearsal != self._rehearses:
            raise OtherPurpose(OtherPurpose.rehearsal if self._rehearses else OtherPurpose.study)
        task = parse_json(Task, welcome.task_json[: limits.MAX_JSON_BYTES], "a task")
        if self._worker is not None and task != self._task:
            if not self._stays:
                raise ConfigurationError("the consortium's task has changed since this party started: start it again")
            self._worker.close()  # another study
            self._worker = None
        if self._worker is None:
            self._worker = Worker(self._open_party(task))
            self._task = task
        return self._worker


def _cut(error: Any) -> CollegiumError:
    """Why a connection was cut."""
    if isinstance(error, CancelledError):
        return Unreachable("the connection was given up: nothing came in time")
    return error_of(error.code(), error.details(), error.trailing_metadata())


def _leaving(error: CollegiumError) -> bytes:
    """What is told of why this party cannot serve: a code that follows from its settings and column names alone."""
    known = next((code for code in CannotServe.reasons if code == error.code), "records")
    return pb.FromParty(leaving=pb.Leaving(code=known)).SerializeToString()


class Stream:
    """A connection to the coordinator, for threads; used as a context manager, at whose end it is cut.

    The next message is read when it is asked for, so that what comes faster stays at the coordinator.
    """

    def __init__(self, loop: LoopThread, address: str, credentials: Credentials) -> None:
        self._loop, self._address, self._credentials = loop, address, credentials
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._channel: Any = None
        self._call: Any = None
        self._sending: asyncio.Task[None]

    def __enter__(self) -> Self:
        self._loop.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._close())

    def send(self, data: bytes) -> None:
        """Send this after all that was given before."""
        self._loop.call(self._outbox.put_nowait, data)

    def received(self) -> bytes | None:
        """The next message, None where the coordinator ended the connection.

        RpcError where the connection is cut, CancelledError where `cancel` cut it.
        """
        data = self._loop.run(self._call.read())
        return None if data is EOF else data

    def cancel(self) -> None:
        """Cut it, from any thread; nothing where it has ended."""
        self._loop.call_if_running(self._call.cancel)

    async def _open(self) -> None:
        credentials, options = channel_credentials(self._credentials), channel_options(self._address)
        self._channel = grpc.aio.secure_channel(self._address, credentials, options)
        begin = self._channel.stream_stream(ATTEND, request_serializer=bytes, response_deserializer=bytes)
        self._call = begin()
        self._sending = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        with suppress(grpc.RpcError, asyncio.InvalidStateError):  # it is cut, which `received` tells
            while True:
                await self._call.write(await self._outbox.get())

    async def _close(self) -> None:
        self._sending.cancel()
        self._call.cancel()
        await asyncio.gather(self._sending, return_exceptions=True)
        await self._channel.close()


class Worker:
    """The thread on which a party answers, and what sends its answers now."""

    def __init__(self, party: Answers) -> None:
        self._party = party
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting: set[tuple[str, str]] = set()
        self._reply: Callable[[bytes], object] | None = None
        self._says_computing = False
        # A daemon: a process that is told to stop does not wait for a fit to end.
        self._thread = threading.Thread(target=self._work, name=BUSY_THREAD, daemon=True)
        self._thread.start()

    def reply_to(self, send: Callable[[bytes], object] | None, *, says_computing: bool = False) -> None:
        """Send answers by this from now on; None drops them (they are asked for again, and remembered).

        With ``says_computing`` also that it goes on computing one.
        """
        with self._lock:
            self._reply, self._says_computing = send, says_computing

    def take(self, message: pb.Request) -> None:
        """Have a request answered, unless it is being answered already."""
        try:
            request = Request.from_proto(message)
        except ProtocolViolation as error:
            self._send(Reply(message.request_id, Failure.of(error)))
            return
        key = (request.run_id, request.request_id)
        with self._lock:
            if key in self._waiting:
                return
            full = len(self._waiting) >= MAX_WAITING_REQUESTS
            if not full:
                self._waiting.add(key)
        if full:
            self._send(Reply(request.request_id, Failure("protocol", "too many requests are waiting at this party")))
        else:
            self._requests.put(request)

    def close(self) -> None:
        self._requests.put(None)

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            with telling(self._teller(request.request_id)):
                reply = self._party.handle(request)
            with self._lock:
                self._waiting.discard((request.run_id, request.request_id))
            self._send(reply)

    def _teller(self, request_id: str) -> Callable[[int], None]:
        """What tells the coordinator now and then that this request is being computed, and the log how far."""
        computed, told_s = 0, time.monotonic()

        def tell(records: int) -> None:
            nonlocal computed, told_s
            computed += records
            if time.monotonic() - told_s >= COMPUTING_EVERY_S:
                told_s = time.monotonic()
                logger.info("still computing: %d records so far", computed, extra=event("computing", records=computed))
                if self._says_computing:
                    self._put(pb.FromParty(computing=pb.Computing(request_id=request_id)).SerializeToString())

        return tell

    def _send(self, reply: Reply) -> None:
        data = pb.FromParty(reply=reply.to_proto()).SerializeToString()
        if len(data) > limits.MAX_REPLY_BYTES:
            too_long = Failure("protocol", "the answer is too long: ask for fewer queries at once")
            data = pb.FromParty(reply=Reply(reply.request_id, too_long).to_proto()).SerializeToString()
        self._put(data)

    def _put(self, data: bytes) -> None:
        with self._lock:
            if self._reply is not None:
                self._reply(data)
