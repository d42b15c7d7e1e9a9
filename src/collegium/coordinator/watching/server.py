"""The page of a coordinator, served by waitress: GET alone, a few connections at a time, nothing kept, nothing logged.

It is for the operator's own machine or network, without TLS and without a login, so it listens on 127.0.0.1 unless it
is told another address; what it shows is meant to be seen. A name in the Host header that is not this server's is
refused, so that no web site can have a visitor's browser read it (DNS rebinding).
"""

import ipaddress
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from http import HTTPStatus
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app
from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.server import create_server
from waitress.task import ErrorTask

from collegium.coordinator.run.run_folder import plain
from collegium.coordinator.watching.metrics import SnapshotMetrics
from collegium.coordinator.watching.page import POLICY, render
from collegium.errors import CollegiumError, StorageError
from collegium.protocol.channels import split_address

logger = logging.getLogger("collegium.coordinator")

CONNECTIONS = 32
"""At a time; one more takes the place of the oldest."""
CONNECTION_S = 10.0
"""A connection that is older is cut, whatever it does."""
LOOK_S = 0.5
"""How often the server looks which connections are too old, and whether it is to end."""
LIMITS = {
    "threads": 4,
    "connection_limit": 2 * CONNECTIONS,  # never reached: one is accepted at a time, and the oldest is cut
    "backlog": CONNECTIONS,
    "max_request_header_size": 8192,
    "max_request_body_size": 1024,
    "asyncore_use_poll": True,  # a coordinator may have more files open than select() takes
}

Snapshot = Mapping[str, Any]
Report = Callable[[], str | None]

HEADERS = [
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
]


class StatusServer:
    """Serves ``/``, ``/report.html``, ``/status.json``, ``/metrics`` and ``/healthz`` while it is entered.

    Parameters
    ----------
    address : ``host:port``; port 0 takes a free one.
    snapshot : what to show; see `Snapshots`.
    report : makes the text of the run's report; None before there is one.
    hosts : further names under which it may be asked for, such as that of a service that leads here.

    Raises StorageError, when entered, where the address cannot be had.
    """

    def __init__(
        self,
        address: str,
        snapshot: Callable[[], Snapshot],
        report: Report = lambda: None,
        hosts: Collection[str] = (),
    ) -> None:
        self._host, self._port = split_address(address)
        self._application = _application({self._host, *hosts}, snapshot, report)
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}/"

    def __enter__(self) -> "StatusServer":
        logging.getLogger("waitress").setLevel(logging.CRITICAL)  # its lines repeat what visitors ask for
        try:
            family, _, _, _, place = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)[0]
            listener = socket.create_server((str(place[0]), self._port), family=family)
        except OSError as error:
            raise StorageError(
                f"cannot show the status at {self._host}:{self._port}: {error.strerror}; name another address"
            ) from error
        self._port = listener.getsockname()[1]
        channels: dict[int, Any] = {}
        server = create_server(self._application, channels, sockets=[listener], ident="collegium", **LIMITS)
        server.channel_class = _Channel
        self._thread = threading.Thread(target=self._serve, args=(server, channels), name="status", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def _serve(self, server: Any, channels: dict[int, Any]) -> None:
        """waitress cuts connections that are idle; one whose peer sends byte by byte is never idle, so age decides."""
        while not self._ending.is_set():
            wasyncore.loop(LOOK_S, use_poll=True, map=channels, count=1)
            oldest, held = time.time() - CONNECTION_S, list(server.active_channels.values())  # in their order
            for number, channel in enumerate(held, 1):
                if channel.creation_time < oldest or number <= len(held) - CONNECTIONS:
                    channel.handle_close()
        wasyncore.close_all(channels)
        server.task_dispatcher.shutdown()


class _Refusal(ErrorTask):  # type: ignore[misc]
    """waitress's answer to what is no request, without its explanation, which repeats a part of what was sent."""

    def execute(self) -> None:
        error = self.request.error
        error.to_response = lambda ident: (
            f"{error.code} {error.reason}",
            [("Content-Type", "text/plain; charset=utf-8"), *HEADERS],
            f"{error.code} {error.reason}\n".encode(),
        )
        super().execute()


class _Channel(HTTPChannel):  # type: ignore[misc]
    error_task_class = _Refusal


def _application(hosts: Collection[str], snapshot: Callable[[], Snapshot], report: Report) -> WSGIApplication:
    """What answers a request; see `StatusServer`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotMetrics(snapshot))
    metrics: WSGIApplication = make_wsgi_app(registry, disable_compression=True)

    def healthy() -> str:
        snapshot()
        return "ok\n"

    pages: dict[str, tuple[str, Callable[[], str | None]]] = {
        "/": ("text/html", lambda: render(snapshot())),
        "/report.html": ("text/html", report),
        "/status.json": ("application/json", lambda: json.dumps(plain(snapshot()), allow_nan=False) + "\n"),
        "/healthz": ("text/plain", healthy),
    }

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        def begin(status: str, headers: list[tuple[str, str]], fault: Any = None, /) -> Callable[[bytes], object]:
            return start_response(status, [*headers, *HEADERS], fault)

        def refuse(status: HTTPStatus, why: str | None = None, **headers: str) -> list[bytes]:
            """One plain line that repeats nothing of the request."""
            begin(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8"), *headers.items()])
            return [f"{why or f'{status.value} {status.phrase}'}\n".encode()]

        if environ["REQUEST_METHOD"] != "GET":
            return refuse(HTTPStatus.METHOD_NOT_ALLOWED, Allow="GET")
        if not _is_for_us(environ.get("HTTP_HOST"), hosts):
            return refuse(HTTPStatus.MISDIRECTED_REQUEST)
        try:
            if environ["PATH_INFO"] == "/metrics":
                return metrics(environ, begin)
            kind, text_of = pages.get(environ["PATH_INFO"], ("", lambda: None))
            if (text := text_of()) is None:
                return refuse(HTTPStatus.NOT_FOUND)
        except CollegiumError as error:
            return refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"{error.code}: see the log")
        except Exception:
            logger.exception("the status page failed")
            return refuse(HTTPStatus.INTERNAL_SERVER_ERROR)
        begin("200 OK", [("Content-Type", f"{kind}; charset=utf-8" if kind.startswith("text") else kind)])
        return [text.encode()]

    return application


def _is_for_us(given: str | None, hosts: Collection[str]) -> bool:
    """Whether a Host header names this server by a number, as localhost, or by one of its names."""
    if not given:
        return False
    name = given.rpartition(":")[0] if not given.endswith("]") and ":" in given else given
    if name.lower() in ("localhost", *map(str.lower, hosts)):
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
