"""The gRPC service to which parties connect: it admits them, keeps one session for each, and delivers requests.

Every method but `PartyServicer.__init__` runs on the server's asyncio loop. Other threads may use ``present`` and
``changed`` alone.
"""

import asyncio
import contextlib
import logging
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from collegium import limits
from collegium.coordinator.service.outstanding import Outstanding, Pending, Session
from collegium.coordinator.service.peer_events import EventKind, OnEvent, SessionEvent, look_at, uncancelled
from collegium.data.task import Task
from collegium.errors import CannotServe, CollegiumError, IdentityError, OtherPurpose, ProtocolViolation, Unreachable
from collegium.protocol.certificates import Subject
from collegium.protocol.channels import SERVICE, certified, refusal, require_version, server_options
from collegium.protocol.codec import parse
from collegium.protocol.grpc_tls13 import EOF, grpc
from collegium.protocol.messages import Reply
from collegium.protocol.replies import Failure, ReplyBody
from collegium.protocol.roster import Roster
from collegium.protocol.v1 import collegium_pb2 as pb
from collegium.version import SOFTWARE

logger = logging.getLogger("collegium.sessions")


@dataclass(frozen=True)
class SessionLimits:
    """How long the coordinator waits, and how many late replies it accepts."""

    hello_timeout_s: float = 10.0
    """From the opening of a stream to its Hello."""
    reconnect_grace_s: float = 20.0
    """How long a party that is gone may take to come back before its requests are given up."""
    late_replies: int = 64
    """How many more replies than requests a session may send: those to requests that nobody waits for any more."""


@dataclass
class Traffic:
    """Bytes of the requests to one party, and of what it sent after its Hello."""

    sent: int = 0
    received: int = 0


# More than 15 methods: the sessions of all parties, which every message and every roster changes.
class PartyServicer:
    """The parties that are connected, and the requests that each has still to answer.

    Parameters
    ----------
    roster : the parties to admit.
    on_event : called on the server's loop with every connection, disconnection, refusal and violation.
    rehearsal : whether parties that rehearse are admitted, and no others.

    Attributes
    ----------
    traffic : bytes of the messages to and from each party.
    """

    def __init__(
        self, roster: Roster, task: Task, on_event: OnEvent, session_limits: SessionLimits, *, rehearsal: bool = False
    ) -> None:
        self._rehearsal = rehearsal
        self.traffic = defaultdict[str, Traffic](Traffic)
        self.present: set[str] = set()
        self.changed = threading.Condition()
        self._roster, self._limits, self._on_event = roster, session_limits, on_event
        self._task_json = task.model_dump_json()
        self._announced: pb.RosterUpdate | None = None
        self._arrivals = Arrivals(session_limits.hello_timeout_s)
        self._sessions: dict[str, Session] = {}
        self.requests = Outstanding()
        self._farewell: str | None = None
        self._emptied = asyncio.Event()

    async def listen(self, address: str, credentials: grpc.ServerCredentials) -> tuple[grpc.aio.Server, int]:
        options = server_options(len(self._roster.admitted()))
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=2 * limits.MAX_PARTIES)
        # Bytes in and out: what does not parse is then ours to refuse, not gRPC's to report as a bug.
        handler = grpc.stream_stream_rpc_method_handler(self._attend)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Attend": handler}),))
        port = server.add_secure_port(address, credentials)
        await server.start()
        return server, port

    def post(self, pending: Collection[Pending]) -> None:
        """Deliver requests to those who are here, and keep them for those who come back."""
        for request in pending:
            self.requests.add(request)
            session = self._sessions.get(request.party)
            if session is not None:
                session.send(request)
        self._await_return(request for request in pending if request.party not in self._sessions)

    async def replace_roster(self, newest: Callable[[], Roster]) -> None:
        self._roster = roster = newest()
        for session in list(self._sessions.values()):
            try:
                roster.admit(session.subject)
            except IdentityError as error:
                session.outbox.put_nowait(error)

    async def announce(self, roster: Roster) -> None:
        self._announced = pb.RosterUpdate(roster_json=roster.model_dump_json())
        for session in self._sessions.values():
            session.outbox.put_nowait(self._announced)

    async def farewell(self, reason: str, timeout_s: float) -> None:
        self._farewell = reason
        for session in self._sessions.values():
            session.outbox.put_nowait(None)
        if self._sessions:
            self._emptied.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), timeout_s)

    async def welcome_again(self) -> None:
        """Hold whoever comes from now on, after a farewell."""
        self._farewell = None

    # -- one stream ------------------------------------------------------------------------------

    async def _attend(self, _: Any, context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
        peer, name = context.peer(), None
        try:
            try:
                subject = certified(context, "party")
                name = subject.name
                self._roster.admit(subject)  # before anything that it sends is read
                await self._take_hello(subject, context)
            except CollegiumError as error:
                self._tell("refused", name, peer, str(error), error.code)
                raise
            await self._hold(Session(subject, peer, self._limits.late_replies), context)
        except CollegiumError as error:
            status, details, metadata = refusal(error)
            await context.abort(status, details, metadata)

    async def _take_hello(self, subject: Subject, context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
        """Read the Hello of whoever opened this stream, and answer with a Welcome; raise what is wrong with it."""
        message = _parse(await self._arrivals.first_message(subject.name, context))
        if message.WhichOneof("body") != "hello":
            raise ProtocolViolation("a party says Hello first")
        hello = message.hello
        require_version(hello, "this party", "the coordinator")
        if hello.party != subject.name:
            raise IdentityError(f"the certificate is {subject.name}'s, the Hello says {hello.party[:64]!r}")
        self._roster.admit(subject)
        welcome = pb.Welcome(
            protocol_version=limits.PROTOCOL_VERSION,
            consortium=self._roster.consortium,
            task_json=self._task_json,
            rehearsal=self._rehearsal,
            hears_computing=True,
            software=SOFTWARE,
        )
        await context.write(pb.FromCoordinator(welcome=welcome).SerializeToString())
        if hello.rehearsal != self._rehearsal:  # it reads why from the Welcome
            raise OtherPurpose(OtherPurpose.study if self._rehearsal else OtherPurpose.rehearsal)

    async def _hold(self, session: Session, context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
        """Send and receive until the party goes, is told to go, or breaks the protocol."""
        self._enter(session)
        sending = asyncio.ensure_future(_repeated(self._send_next, session, context))
        receiving = uncancelled(_repeated(self._receive_next, session, context))
        reason = "it went away"
        try:
            done, _ = await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
            for work in done:
                work.result()
        except grpc.aio.BaseError:
            return  # the party went while something was being written to it
        except CollegiumError as error:
            reason = str(error)
            if isinstance(error, ProtocolViolation | CannotServe):
                kind: EventKind = "violation" if isinstance(error, ProtocolViolation) else "refused"
                self._tell(kind, session.subject.name, session.peer, reason, error.code)
                for request in self.requests.of(session.subject.name):
                    self.requests.answer(request, Failure.of(error))
            raise
        finally:
            # Nothing is awaited here: gRPC cancels this coroutine when the peer goes, at any await.
            self._leave(session, "farewell" if session.told_farewell else reason)
            session.over = True
            sending.cancel()
            sending.add_done_callback(look_at)

    async def _send_next(self, session: Session, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bool:
        """Send what comes next; False after the farewell. Nobody holds a request that was sent while this waits."""
        item = await session.outbox.get()
        if item is None:
            session.told_farewell = True
            farewell = pb.Farewell(reason=self._farewell or "the run is over")
            await context.write(pb.FromCoordinator(farewell=farewell).SerializeToString())
            return False
        if isinstance(item, CollegiumError):
            raise item
        if isinstance(item, pb.RosterUpdate):
            await context.write(pb.FromCoordinator(roster=item).SerializeToString())
        elif (request := self.requests.find(item)) is not None:
            session.replies_left += 1
            session.notes_left += limits.MAX_NOTES_PER_REQUEST
            self.traffic[session.subject.name].sent += len(request.posted.data)
            await context.write(request.posted.data)
        return True

    async def _receive_next(self, session: Session, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bool:
        """Take what comes next; False at the end. Nobody holds a masked vector that was taken while this waits."""
        data = await context.read()
        if data is EOF or session.over:
            return False
        message = _parse(data)
        self.traffic[session.subject.name].received += len(data)
        body = message.WhichOneof("body")
        if body == "leaving":
            raise CannotServe(CannotServe.reasons.get(message.leaving.code, CannotServe.reasons["records"]))
        if body == "computing":
            session.notes_left -= 1
            if session.notes_left < 0:
                raise ProtocolViolation("it says too often that it computes")
            self.requests.computes((session.subject.name, message.computing.request_id))
            return True
        if body != "reply":
            raise ProtocolViolation("a party says Hello once and then answers")
        session.replies_left -= 1
        if session.replies_left < 0:
            raise ProtocolViolation("more answers than questions")
        self._take_reply(session, message.reply)
        return True

    def _take_reply(self, session: Session, message: pb.Reply) -> None:
        request = self.requests.find((session.subject.name, message.request_id))
        if request is None:
            return
        body: ReplyBody
        try:
            body = Reply.from_proto(message).body
        except ProtocolViolation as error:
            self._tell("violation", session.subject.name, session.peer, str(error), error.code)
            body = Failure.of(error)
        self.requests.answer(request, body)

    def _tell(self, kind: EventKind, party: str | None, peer: str, detail: str, code: str = "") -> None:
        """Tell the observer of an event; one that fails disturbs no session."""
        try:
            self._on_event(SessionEvent(kind, party, peer, detail, code))
        except Exception:
            logger.exception("an observer of sessions failed")

    # -- sessions -----------------------------------------------------------------------------

    def _enter(self, session: Session) -> None:
        name = session.subject.name
        earlier = self._sessions.get(name)
        self._sessions[name] = session
        if earlier is not None:
            earlier.outbox.put_nowait(
                # Not for good: where its keys were copied, the honest party comes back and its owner reads this.
                Unreachable(
                    f"another process has connected as {name}: run one process for each party; if there is none of "
                    "yours, its keys were copied: have the consortium revoke them"
                )
            )
        else:
            with self.changed:
                self.present.add(name)
                self.changed.notify_all()
        self._tell("connected", name, session.peer, "in place of an earlier session" if earlier else "admitted")
        if self._farewell is not None:
            session.outbox.put_nowait(None)
            return
        if self._announced is not None:
            session.outbox.put_nowait(self._announced)
        for request in self.requests.of(name):
            session.send(request)

    def _leave(self, session: Session, reason: str) -> None:
        name = session.subject.name
        self._tell("disconnected", name, session.peer, reason)
        if self._sessions.get(name) is not session:
            return
        del self._sessions[name]
        with self.changed:
            self.present.discard(name)
            self.changed.notify_all()
        self._await_return(self.requests.of(name))
        if not self._sessions:
            self._emptied.set()

    def _await_return(self, requests: Iterable[Pending]) -> None:
        """Give requests up whose party is gone, unless it comes back soon."""
        for request in requests:
            gone, wait_s = "its connection is lost, and it did not come back in time", self._limits.reconnect_grace_s
            if (entry := self._roster.parties.get(request.party)) is None or not entry.admitted:
                gone, wait_s = "it is no longer admitted", 0.0
            self.requests.give_up_after(wait_s, request, gone)


class Arrivals:
    """Streams of which nothing was read yet."""

    def __init__(self, hello_timeout_s: float) -> None:
        self._timeout_s = hello_timeout_s
        self._newest: dict[str, asyncio.Future[Any]] = {}

    async def first_message(self, name: str, context: Any) -> Any:
        """The first message of a stream. Only the newest stream of a party is read, as older ones may be dead.

        So memory does not grow with the number of streams that a party opens.
        """
        if (older := self._newest.get(name)) is not None:
            older.set_result(None)
        newer = self._newest[name] = asyncio.get_running_loop().create_future()
        reading = uncancelled(context.read())
        try:
            await asyncio.wait({reading, newer}, timeout=self._timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self._newest.get(name) is newer:
                del self._newest[name]
        if newer.done():
            raise Unreachable(f"{name} has opened another stream since")
        if not reading.done():
            raise ProtocolViolation(f"no Hello within {self._timeout_s:g} s")
        return reading.result()


async def _repeated(step: Callable[[Session, Any], Awaitable[bool]], session: Session, context: Any) -> None:
    while await step(session, context):
        pass


def _parse(data: Any) -> pb.FromParty:
    if data is EOF:
        raise ProtocolViolation("the stream ended before its Hello")
    return parse(pb.FromParty, data, limits.MAX_REPLY_BYTES)
