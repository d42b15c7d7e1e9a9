"""What the tests of sessions are made of: kits, a coordinator that is listening, parties in miniature."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collegium import limits
from collegium.coordinator.service.sessions import GrpcParties, SessionEvent
from collegium.data.task import ImageInputs, Task
from collegium.errors import CollegiumError
from collegium.parties.session import PartySession
from collegium.protocol.certificates import Authority
from collegium.protocol.channels import ATTEND, SERVICE, channel_credentials, channel_options, error_of
from collegium.protocol.channels import server_credentials as tls_server
from collegium.protocol.grpc_tls13 import grpc
from collegium.protocol.identities import Credentials, issue_kit
from collegium.protocol.messages import Reply, Request
from collegium.protocol.replies import Description
from collegium.protocol.requests import Describe
from collegium.protocol.roster import Roster
from collegium.protocol.v1 import collegium_pb2 as pb
from support.waiting import PATIENCE_S

TASK = Task(classes=("no", "yes"), inputs=ImageInputs(height=2, width=2))
NAMES = ("ash", "birch", "cedar")


@dataclass
class Kits:
    """A consortium of three admitted parties, and one that has a certificate but is not on the roster."""

    folder: Path
    authority: Authority
    coordinator: Credentials
    parties: dict[str, Credentials]
    roster: Roster

    @classmethod
    def make(cls, folder: Path) -> Kits:
        authority = Authority.create("oaks")
        hosts = ["localhost", "127.0.0.1"]
        coordinator = issue_kit(authority, folder / "coordinator", "hub", "coordinator", hosts=hosts)
        parties = {name: issue_kit(authority, folder / name, name, "party") for name in (*NAMES, "stranger")}
        roster = Roster.of("oaks", {name: parties[name].subject.signing_key for name in NAMES})
        return cls(folder, authority, coordinator, parties, roster)


@dataclass
class Log:
    """Events of a coordinator, to be waited for."""

    events: list[SessionEvent] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, event: SessionEvent) -> None:
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def of(self, kind: str) -> list[SessionEvent]:
        return [event for event in self.events if event.kind == kind]

    def wait_for(self, kind: str, count: int = 1) -> SessionEvent:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.of(kind)) >= count, PATIENCE_S), self.events
            return self.of(kind)[count - 1]


@dataclass
class Hub:
    """A coordinator that listens."""

    parties: GrpcParties
    port: int
    log: Log

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"


class Echo:
    """Describes itself; ``meanwhile`` runs inside each answer."""

    def __init__(self, name: str, meanwhile: Callable[[Request], None] = lambda request: None) -> None:
        self.name, self.meanwhile = name, meanwhile
        self.seen: list[str] = []

    def handle(self, request: Request) -> Reply:
        self.seen.append(request.request_id)
        self.meanwhile(request)
        return Reply(request.request_id, Description(self.name, "echo", 1, "none"))


class PartyThread:
    """A party process in miniature: a session on a thread, and how it ended."""

    def __init__(self, session: PartySession, waited: threading.Event | None = None) -> None:
        self.session, self.waited = session, waited or threading.Event()
        self.outcome: str | CollegiumError | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.outcome = self.session.run()
        except CollegiumError as error:
            self.outcome = error

    def ended(self) -> str | CollegiumError | None:
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        return self.outcome


class BackgroundQuestion:
    """An ask in the background."""

    def __init__(self, hub: Hub, names: tuple[str, ...], timeout_s: float = PATIENCE_S) -> None:
        self.replies: dict[str, object] = {}

        def ask() -> None:
            self.replies |= hub.parties.ask(dict.fromkeys(names, Describe()), timeout_s=timeout_s)

        self.thread = threading.Thread(target=ask, daemon=True)
        self.thread.start()

    def result(self) -> dict[str, object]:
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        return self.replies


Listen = Callable[..., Hub]
Serve = Callable[..., PartyThread]


class RawParty:
    """A peer that sends whatever bytes it likes."""

    def __init__(self, credentials: Credentials, address: str) -> None:
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        unlimited = {"grpc.max_send_message_length": -1}
        options = list((dict(channel_options(address)) | unlimited).items())
        self._channel = grpc.secure_channel(address, channel_credentials(credentials), options)
        self._call: Any = self._channel.stream_stream(ATTEND, request_serializer=bytes, response_deserializer=bytes)(
            iter(self._outbox.get, None), timeout=PATIENCE_S
        )

    def send(self, data: bytes) -> None:
        self._outbox.put(data)

    def hello(self, party: str, version: int = limits.PROTOCOL_VERSION, software: str = "") -> None:
        hello = pb.Hello(protocol_version=version, party=party, software=software)
        self.send(pb.FromParty(hello=hello).SerializeToString())

    def receive(self) -> pb.FromCoordinator:
        return pb.FromCoordinator.FromString(next(self._call))

    def refusal(self) -> tuple[grpc.StatusCode, CollegiumError]:
        """Read to the end, which must be an error."""
        try:
            for _ in self._call:
                pass
        except grpc.RpcError:
            status = self._call.code()
            return status, error_of(status, self._call.details(), self._call.trailing_metadata())
        raise AssertionError("the stream ended without an error")

    def close(self) -> None:
        self._outbox.put(None)
        self._call.cancel()
        self._channel.close()

    def __enter__(self) -> RawParty:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def fake_coordinator(credentials: Credentials, *messages: bytes, waits_s: float = PATIENCE_S) -> Iterator[str]:
    """A server with a good certificate that sends these bytes to whoever comes, then waits, then hangs up."""
    released = threading.Event()

    def attend(_: object, context: grpc.ServicerContext) -> Iterator[bytes]:
        context.add_callback(released.set)
        yield from messages
        released.wait(waits_s)

    server = grpc.server(futures.ThreadPoolExecutor(2))
    handler = grpc.stream_stream_rpc_method_handler(attend)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Attend": handler}),))
    port = server.add_secure_port("127.0.0.1:0", tls_server(credentials))
    server.start()
    try:
        yield f"localhost:{port}"
    finally:
        released.set()
        server.stop(None).wait()


class Cable:
    """A TCP proxy between party and coordinator that can be cut, and plugged in again."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._plugged = True
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"localhost:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        with self._lock:
            self._plugged = False
            for pair in self._pairs:
                for end in pair:
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)
            self._pairs.clear()

    def plug(self) -> None:
        with self._lock:
            self._plugged = True

    def close(self) -> None:
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                with self._lock:
                    if not self._plugged:
                        near.close()
                        continue
                    far = socket.create_connection(("127.0.0.1", self._target))
                    self._pairs.append((near, far))
                threading.Thread(target=_carry, args=(near, far), daemon=True).start()


def _carry(near: socket.socket, far: socket.socket) -> None:
    """Pass bytes on in both directions until each has ended."""
    with near, far:
        back = threading.Thread(target=_pump, args=(far, near), daemon=True)
        back.start()
        _pump(near, far)
        back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)
