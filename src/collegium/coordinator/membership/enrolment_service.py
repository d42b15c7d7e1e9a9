"""The port where parties enrol: one short exchange per connection, TLS 1.3, no client certificate.

Anybody may knock here, so everything is bounded: exchanges at once, from the first byte of a handshake on, bytes of a
request, seconds of an exchange. Whoever comes when all places are taken gets that of the one who has been longest at
it: an honest exchange is over within a moment, so idlers keep nobody out.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography.x509 import SubjectAlternativeName

from collegium.clock import utc_now
from collegium.coordinator.membership.members import RENEW_BEFORE, Decision, Members, MembersFile, decide
from collegium.coordinator.settings.consortium import ConsortiumConfig, ConsortiumFolder
from collegium.data.task import Task
from collegium.errors import CollegiumError, StorageError
from collegium.logs import event
from collegium.protocol.certificates import Authority, read_certificate, read_subject
from collegium.protocol.channels import split_address
from collegium.protocol.enrolment import (
    EXCHANGE_S,
    MAX_ASK_BYTES,
    AskAuthority,
    AskEnrolment,
    AuthorityIs,
    Enrolled,
    answer_line,
    load_chain,
    read_ask,
    server_context,
)
from collegium.protocol.identities import CERTIFICATE, issue_kit
from collegium.protocol.loop_thread import LoopThread
from collegium.protocol.roster import AnnouncedTerms

logger = logging.getLogger("collegium.enrolment")

MAX_EXCHANGES = 64
SHUTDOWN_S = 2.0
NO_DESCRIPTOR_S = 0.1


@dataclass(frozen=True, eq=False)
class Registrar:
    """Answers what is asked at the port: bytes in, bytes out.

    Parameters
    ----------
    sessions : ``host:port`` where the enrolled attend.
    terms : what parties are told that they will be asked.
    days : validity of a certificate.
    tasks : what parties are told that the consortium means to learn.
    on_enrolled : called after somebody was enrolled or renewed.
    """

    authority: Authority
    members: MembersFile
    sessions: str
    terms: AnnouncedTerms
    days: int
    tasks: tuple[Task, ...] = ()
    on_enrolled: Callable[[str], None] = lambda name: None

    def answer(self, line: bytes) -> bytes:
        """The line to send back; never raises for what a peer sent."""
        try:
            ask = read_ask(line)
            if isinstance(ask, AskAuthority):
                return answer_line(AuthorityIs(authority_pem=self.authority.pem.decode()))
            return answer_line(self._enrol(ask))
        except StorageError as error:
            logger.error("%s", error)
            return answer_line(StorageError("the coordinator cannot use its own storage: its log says why"))
        except CollegiumError as error:
            return answer_line(error)

    def _enrol(self, ask: AskEnrolment) -> Enrolled:
        def step(before: Members) -> tuple[Members, Decision]:
            decision = decide(before, self.authority, ask, days=self.days, now=utc_now())
            return decision.members, decision

        members, outcome = self.members.change(step)
        if not isinstance(outcome, bytes):
            logger.warning("enrolment refused: %s", outcome, extra=event("enrolment-refused", code=outcome.code))
            raise outcome
        subject = read_subject(read_certificate(outcome))
        told = event("enrolled", party=subject.name, certificate=subject.fingerprint)
        logger.info("%s enrolled; certificate %s", subject.name, subject.fingerprint[:16], extra=told)
        self.on_enrolled(subject.name)
        return Enrolled(
            certificate_pem=outcome.decode(),
            roster_json=members.roster().model_dump_json(),
            expected=tuple(members.expected()),
            terms=self.terms,
            tasks=self.tasks,
            sessions=self.sessions,
        )


class EnrolmentService:
    """Listens, on a thread of its own, and has a `Registrar` answer."""

    def __init__(self, registrar: Registrar, identity: Path) -> None:
        self._registrar, self._identity = registrar, identity
        self._thread = LoopThread("enrolment")
        self._context = server_context(identity)
        self._listeners: list[socket.socket] = []
        self._exchanges: dict[asyncio.Task[None], None] = {}
        """Those under way, in the order in which they began."""

    def start(self, address: str) -> int:
        """Listen at ``host:port`` (port 0 takes a free one) and return the port; StorageError when it is in use."""
        host, port = split_address(address)
        self._thread.start()
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for family, place in dict.fromkeys((family, where[:2]) for family, _, _, _, where in found):
                listener = socket.create_server((str(place[0]), port), family=family)
                self._listeners.append(listener)
                listener.setblocking(False)
                port = port or listener.getsockname()[1]
        except OSError as error:
            self.close()
            raise StorageError(f"cannot listen at {address}: in use, or not an address of this machine") from error
        for listener in self._listeners:
            self._thread.submit(self._accept(listener))
        return port

    async def _accept(self, listener: socket.socket) -> None:
        """Take connections as they come; a server of asyncio's own would take handshakes without end, 256 KiB each."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:  # it went away again, or there is no file descriptor left
                await asyncio.sleep(NO_DESCRIPTOR_S)
                continue
            if len(self._exchanges) >= MAX_EXCHANGES:
                longest = next(iter(self._exchanges))
                del self._exchanges[longest]
                longest.cancel()
            exchange = loop.create_task(self._converse(connection))
            self._exchanges[exchange] = None
            exchange.add_done_callback(lambda done: self._exchanges.pop(done, None))

    async def _converse(self, connection: socket.socket) -> None:
        reader = asyncio.StreamReader(limit=MAX_ASK_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport: asyncio.Transport | None = None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(EXCHANGE_S):
                transport, _ = await loop.connect_accepted_socket(
                    lambda: protocol,
                    connection,
                    ssl=self._context,
                    ssl_handshake_timeout=EXCHANGE_S,
                    ssl_shutdown_timeout=SHUTDOWN_S,
                )
                writer = asyncio.StreamWriter(transport, protocol, reader, loop)
                line = await reader.readuntil(b"\n")
                writer.write(self._registrar.answer(line))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ssl.SSLError):
            pass  # who breaks an exchange off gets no answer
        except Exception:
            logger.exception("an enrolment failed")
        finally:
            if transport is not None:
                transport.abort()
            connection.close()

    def renew(self) -> None:
        """Show the certificate that the identity's folder holds now, from the next connection on."""
        self._thread.call(load_chain, self._context, self._identity)

    def close(self) -> None:
        """Stop listening and drop whoever is talking."""
        self._thread.close()
        for listener in self._listeners:
            listener.close()


def needs_certificate(folder: ConsortiumFolder, config: ConsortiumConfig) -> bool:
    """Whether the coordinator's own certificate is missing, ends soon or is for another host."""
    held = folder.identity / CERTIFICATE
    host = config.consortium.host
    if held.exists():
        certificate = read_certificate(held.read_bytes())
        named = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
        known = {str(name.value) for name in named}
        return host not in known or certificate.not_valid_after_utc - utc_now() <= RENEW_BEFORE
    return True


def keep_identity(folder: ConsortiumFolder, config: ConsortiumConfig, authority: Authority) -> None:
    """Make the certificate where it needs one; an authority that is kept apart makes it in `provision`.

    The keys stay, so that parties know it as before and the ledger's signatures go on.
    """
    if authority.key is None or not needs_certificate(folder, config):
        return
    host = config.consortium.host
    days = max(config.consortium.certificate_days, RENEW_BEFORE.days + 1)
    issue_kit(authority, folder.identity, "coordinator", "coordinator", hosts=[host], days=days)
