"""A coordinator's ports to besiege, two honest parties that attend, and what an attacker does with raw sockets."""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from benchmarks.usage import tree_cpu_s, tree_memory_bytes

from collegium.coordinator.cli.provision_cli import provision
from collegium.coordinator.settings.consortium import read_consortium
from collegium.data.task import Task
from collegium.parties.enrolment import enrol
from collegium.parties.session import PartySession
from collegium.protocol.channels import Backoff
from collegium.protocol.identities import CERTIFICATE, TLS_KEY, Credentials
from collegium.protocol.messages import Reply, Request
from collegium.protocol.replies import Description
from support.members import code_for, fingerprint_of
from support.ports import free_ports
from support.processes import start_script
from support.waiting import PATIENCE_S, comes_true

HONEST = ("ash", "birch")
INSIDER = "cedar"
"""Has a good certificate and bad intentions."""

CONFIG = """\
name = "besieged"
pool = {{ source = "digits", split = "all", shuffle_seed = 0, start = 1200, stop = 1300 }}
mechanism = {{ name = "gnmax", parameters = {{ sigma = 2.0 }} }}
budget = {{ epsilon = 10.0 }}

[consortium]
address = "localhost:{sessions}"
enrolment = "localhost:{enrolment}"
parties = ["ash", "birch", "cedar"]
folder = "consortium"

[task]
classes = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
inputs = {{ kind = "image", height = 8, width = 8 }}
"""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, HEADERS, PING, RST_STREAM, CONTINUATION, DATA = 4, 1, 6, 3, 9, 0


def frame(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0, length: int | None = None) -> bytes:
    """An HTTP/2 frame; ``length`` is what its head says where that is not the truth."""
    said = len(payload) if length is None else length
    return struct.pack(">I", said)[1:] + struct.pack(">BBI", kind, flags, stream) + payload


class Echo:
    """Describes itself."""

    def __init__(self, name: str) -> None:
        self.name = name

    def handle(self, request: Request) -> Reply:
        return Reply(request.request_id, Description(self.name, "echo", 1, "none"))


@dataclass
class Ports:
    """The numbers of the three ports."""

    sessions: int
    enrolment: int
    status: int


class Fortress:
    """The process with the ports, and the honest parties, which are threads of this one. `close` ends all."""

    def __init__(self, folder: Path) -> None:
        self._closing = ExitStack()
        sessions, enrolment = free_ports(2)
        path = folder / "consortium.toml"
        path.write_text(CONFIG.format(sessions=sessions, enrolment=enrolment), encoding="utf-8")
        with redirect_stdout(StringIO()):
            provision(path)
        self.folder, self.config = folder, read_consortium(path)
        self.log = folder / "log"
        with self.log.open("wb") as sink:
            self.process = start_script(
                "port_process", path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink
            )
        self._closing.callback(self._end)
        self.ports = Ports(sessions, enrolment, json.loads(self._line())["status"])
        for name in (*HONEST, INSIDER):
            self.enrol(name)
        for name in HONEST:
            self._attend(name)
        assert comes_true(lambda: self.ask() == dict.fromkeys(HONEST, "Description")), self.log.read_text()

    def enrol(self, name: str) -> None:
        served = self.folder / "consortium"
        address, code = self.config.consortium.enrolment, code_for(served, name)
        named = () if (self.folder / name).exists() else self.config.consortium.parties
        enrol(address, name, code, fingerprint_of(served), self.folder / name, parties=named)

    def credentials(self, name: str) -> Credentials:
        return Credentials.load(self.folder / name / "credentials", "party")

    def ask(self) -> dict[str, str]:
        """What the parties that attend answered, asked by the process under siege."""
        assert self.process.stdin is not None
        self.process.stdin.write("ask\n")
        self.process.stdin.flush()
        return dict(json.loads(self._line()))

    def memory_bytes(self) -> int:
        """Resident memory of the process with the ports."""
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024

    def peak_bytes(self) -> int:
        """The most resident memory that it has had since `watch_peak`."""
        return tree_memory_bytes(self.process.pid)

    def watch_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def cpu_s(self) -> float:
        return tree_cpu_s(self.process.pid)

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def log_lines(self) -> list[dict[str, Any]]:
        """Everything logged so far; a line that is no JSON, such as one of gRPC's own, fails."""
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    def tls(self, *, as_party: str | None = None) -> ssl.SSLSocket:
        """A TLS 1.3 connection to the port of the sessions, with a party's certificate or none."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.set_alpn_protocols(["h2"])
        if as_party is not None:
            keys = self.folder / as_party / "credentials"
            context.load_cert_chain(keys / CERTIFICATE, keys / TLS_KEY)
        return context.wrap_socket(dial(self.ports.sessions), server_hostname="localhost")

    def close(self) -> None:
        self._closing.close()

    def _attend(self, name: str) -> None:
        def open_party(task: Task) -> Echo:
            return Echo(name)

        session = PartySession(
            open_party,
            lambda: self.credentials(name),
            self.config.consortium.address,
            backoff=Backoff(0.05, 0.5),
        )
        thread = threading.Thread(target=session.run, daemon=True)
        thread.start()
        self._closing.callback(thread.join, PATIENCE_S)
        self._closing.callback(session.stop)

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def _end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.stdout.close()


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE_S)


def half_open_tls(port: int) -> socket.socket:
    """A connection that says that a ClientHello of 512 bytes begins, and sends no more of it."""
    connection = dial(port)
    connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    return connection


def is_closed(connection: socket.socket, within_s: float) -> bool:
    """Whether the other side ends the connection in time; what it sends before that is read and dropped."""
    deadline_s = time.monotonic() + within_s
    try:
        while (left_s := deadline_s - time.monotonic()) > 0:
            connection.settimeout(left_s)
            if not connection.recv(65536):
                return True
    except TimeoutError:
        return False
    except OSError:
        return True
    return False


def send_until_cut(connection: socket.socket, piece: Callable[[int], bytes], pieces: int) -> int:
    """Send pieces until the other side has had enough; how many were sent."""
    connection.settimeout(PATIENCE_S)
    for number in range(pieces):
        try:
            connection.sendall(piece(number))
        except OSError:
            return number
    return pieces
