"""The small web server of a coordinator: GET alone, a few connections at a time, nothing kept, nothing logged.

It is for the operator's own machine or network, without TLS and without a login, so it listens on 127.0.0.1 unless it
is told another address; what it shows is meant to be seen. A name in the Host header that is not this server's is
refused, so that no web site can have a visitor's browser read it (DNS rebinding).
"""

import ipaddress
import json
import logging
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from collegium.coordinator.run.run_folder import plain
from collegium.coordinator.watching.metrics import exposition
from collegium.coordinator.watching.page import POLICY, render
from collegium.errors import CollegiumError, StorageError
from collegium.protocol.channels import split_address

logger = logging.getLogger("collegium.coordinator")

CONNECTIONS = 32
"""At a time; further ones are closed at once."""
REQUEST_S = 5.0
"""How long a request, and then its answer, may take in all."""
LONGEST_LINE_BYTES = 2048
PLAIN_TEXT = "text/plain; charset=utf-8"
REPORT = "/report.html"
LOOK_S = 0.1
"""How often the server looks whether it is to end."""

Snapshot = Mapping[str, Any]
Report = Callable[[], str | None]

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Connection": "close",
}


class StatusServer:
    """Serves ``/``, ``/report.html``, ``/status.json``, ``/metrics`` and ``/healthz`` while it is entered.

    Parameters
    ----------
    address : ``host:port``; port 0 takes a free one.
    snapshot : what to show; see `Snapshots`.
    report : makes the text of the run's report; None before there is one.

    Raises StorageError, when entered, where the address cannot be had.
    """

    def __init__(self, address: str, snapshot: Callable[[], Snapshot], report: Report = lambda: None) -> None:
        self._host, self._port = split_address(address)
        self._snapshot, self._report = snapshot, report
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}/"

    def __enter__(self) -> "StatusServer":
        try:
            self._server = _Server(self._host, self._port, self._snapshot, self._report)
        except OSError as error:
            raise StorageError(
                f"cannot show the status at {self._host}:{self._port}: {error.strerror}; name another address"
            ) from error
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(LOOK_S,), name="status", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = CONNECTIONS

    def __init__(self, host: str, port: int, snapshot: Callable[[], Snapshot], report: Report) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        self.address_family = found[0][0]
        self.host, self.snapshot, self.report = host, snapshot, report
        self._open: set[socket.socket] = set()
        super().__init__((str(found[0][4][0]), port), _Handler)

    def server_bind(self) -> None:
        super(ThreadingHTTPServer, self).server_bind()  # TCPServer's own; HTTPServer's would look the name up in DNS

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._open) < CONNECTIONS:
            self._open.add(request)
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Stop listening, and cut whoever is connected: a browser keeps spare connections."""
        super().server_close()
        for connection in list(self._open):
            _cut(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a peer that went away is nobody's concern
            logger.exception("the status page failed")


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):  # its peer was faster
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    raw_requestline: bytes
    protocol_version = default_request_version = "HTTP/1.0"
    server_version, sys_version = "collegium", ""

    def handle(self) -> None:
        """Answer one request, however slowly its peer sends: at the deadline the connection is cut."""
        self._deadline = self._cut_after(REQUEST_S)
        with suppress(OSError):  # it went away, or took too long
            super().handle()
        self._deadline.cancel()

    def _cut_after(self, seconds: float) -> threading.Timer:
        deadline = threading.Timer(seconds, _cut, (self.connection,))
        deadline.daemon = True
        deadline.start()
        return deadline

    def parse_request(self) -> bool:
        if len(self.raw_requestline) > LONGEST_LINE_BYTES:
            self.requestline = self.command = ""
            self.request_version = self.default_request_version
            self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)
            return False
        return super().parse_request()

    def do_GET(self) -> None:
        if not self._is_for_us(self.headers.get("Host")):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return
        self._deadline.cancel()
        self._deadline = self._cut_after(REQUEST_S)
        path = self.path.partition("?")[0]
        if path not in _PAGES and path != REPORT:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        kind, text_of = _PAGES[path if path != REPORT else "/"]
        try:
            text = text_of(self.server.snapshot()) if path != REPORT else self.server.report()
        except CollegiumError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, PLAIN_TEXT, f"{error.code}: see the log\n")
            return
        if text is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self._answer(HTTPStatus.OK, kind, text)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """One plain line that repeats nothing of the request."""
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED and self.command:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self._answer(status, PLAIN_TEXT, f"{status.value} {status.phrase}\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: visitors of the page are not recorded."""

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode("utf-8")
        self.send_response(status)
        headers = HEADERS | {"Content-Type": kind, "Content-Length": str(len(body))}
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = "GET"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _is_for_us(self, host: str | None) -> bool:
        """Whether a Host header names this server by a number, as localhost, or by the name that it was given."""
        if not host:
            return False
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if name.lower() in ("localhost", self.server.host.lower()):
            return True
        try:
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True


_PAGES: dict[str, tuple[str, Callable[[Snapshot], str]]] = {
    "/": ("text/html; charset=utf-8", render),
    "/status.json": ("application/json", lambda held: json.dumps(plain(held), allow_nan=False) + "\n"),
    "/metrics": (CONTENT_TYPE_PLAIN_0_0_4, exposition),
    "/healthz": (PLAIN_TEXT, lambda held: "ok\n"),
}
"""The content type of each page, and what makes its text of a snapshot."""
