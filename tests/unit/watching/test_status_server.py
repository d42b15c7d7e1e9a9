"""The status server: what it answers, to whom, and that nobody can make it hold more than a little."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPResponse
from typing import Any

import pytest
from support.snapshots import snapshot
from support.waiting import PATIENCE_S, comes_true

from collegium.coordinator.watching import server as server_module
from collegium.coordinator.watching.server import CONNECTIONS, StatusServer
from collegium.errors import ConfigurationError, LedgerCorrupt, StorageError


@pytest.fixture
def server() -> Iterator[StatusServer]:
    with StatusServer("127.0.0.1:0", snapshot) as server:
        yield server


def port_of(server: StatusServer) -> int:
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/", server.url)
    assert found is not None
    return int(found[1])


def ask(server: StatusServer, text: str) -> tuple[int, dict[str, str], str]:
    """Status, headers and body of the answer to raw text."""
    with socket.create_connection(("127.0.0.1", port_of(server)), timeout=PATIENCE_S) as connection:
        connection.sendall(text.encode("latin-1"))
        return answer_on(connection)


def answer_on(connection: socket.socket) -> tuple[int, dict[str, str], str]:
    with HTTPResponse(connection) as answer:
        answer.begin()
        return answer.status, dict(answer.getheaders()), answer.read().decode()


def get(server: StatusServer, path: str, host: str = "127.0.0.1:1") -> tuple[int, dict[str, str], str]:
    return ask(server, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/?x=1", "text/html; charset=utf-8"),
        ("/status.json", "application/json"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
        ("/healthz", "text/plain; charset=utf-8"),
    ],
)
def test_each_path_answers_under_a_strict_policy_and_sets_no_cookie(path: str, kind: str, server: StatusServer) -> None:
    status, headers, body = get(server, path)
    assert (status, headers["Content-Type"]) == (200, kind) and len(body.encode()) == int(headers["Content-Length"])
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in headers["Content-Security-Policy"] and "http" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
    assert "Set-Cookie" not in headers and "Python" not in headers["Server"]


def test_status_json_is_the_snapshot(server: StatusServer) -> None:
    assert json.loads(get(server, "/status.json")[2]) == snapshot()


def test_an_infinite_epsilon_is_valid_json_all_the_same() -> None:
    endless: dict[str, Any] = snapshot()
    endless["privacy"]["units"]["party"]["spent"] = float("inf")
    with StatusServer("127.0.0.1:0", lambda: endless) as server:
        assert json.loads(get(server, "/status.json")[2])["privacy"]["units"]["party"]["spent"] == "inf"
        assert "ε = ∞" in get(server, "/")[2]


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 405),
        ("DELETE /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        ("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        ("GET / HTTP/1.1\r\nHost: evil.example:8080\r\n\r\n", 421),
        ("GET / HTTP/1.1\r\n\r\n", 421),
        ("GET /" + "x" * 9000 + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        ("GET / HTTP/1.1\r\nHost: localhost\r\n" + "X: y\r\n" * 2000 + "\r\n", 431),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n", 413),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: secret\r\n\r\n", 501),
        ("<script>alert(1)</script>\r\n\r\n", 400),
        ("<script>alert(1)</script> / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ],
)
def test_anything_else_is_refused_in_one_plain_line_that_repeats_nothing(
    request_text: str, status: int, server: StatusServer
) -> None:
    found, headers, body = ask(server, request_text)
    assert found == status and headers["Content-Type"].startswith("text/plain")
    assert re.fullmatch(rf"{status} [A-Za-z -]+\n", body)
    assert (headers.get("Allow") == "GET") == (status == 405)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1", "[::1]:8080", "10.1.2.3:80"])
def test_a_browser_that_dials_a_number_or_this_machine_is_answered(host: str, server: StatusServer) -> None:
    assert get(server, "/healthz", host)[0] == 200


def test_what_a_party_or_a_peer_said_is_shown_as_text() -> None:
    planted = "<img src=x onerror=alert(1)>"
    said = snapshot(consortium=planted, last_failures=[{"when": "round 1", "party": "ash", "outcome": planted}])
    with StatusServer("127.0.0.1:0", lambda: said) as server:
        body = get(server, "/")[2]
    assert "<img" not in body and body.count("&lt;img src=x onerror=alert(1)&gt;") >= 3


def test_a_ledger_that_cannot_be_read_is_told_without_where_it_lies() -> None:
    def broken() -> dict[str, Any]:
        raise LedgerCorrupt("/srv/secret/place/ledger.sqlite: entry 17 was changed")

    with StatusServer("127.0.0.1:0", broken) as server:
        for path in ("/", "/metrics", "/healthz"):
            status, _, body = get(server, path)
            assert (status, body) == (503, "ledger-corrupt: see the log\n")


def test_whoever_sends_byte_by_byte_is_cut_off_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "CONNECTION_S", 0.5)
    began_s = time.monotonic()
    with (
        StatusServer("127.0.0.1:0", snapshot) as server,
        socket.create_connection(("127.0.0.1", port_of(server)), timeout=PATIENCE_S) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        connection.settimeout(0.05)
        while time.monotonic() - began_s < PATIENCE_S:
            try:
                connection.sendall(b"y")
                if connection.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert 0.4 <= time.monotonic() - began_s < PATIENCE_S, "not at the first byte, and long before the last"


def test_a_connection_beyond_the_limit_takes_the_place_of_the_oldest(server: StatusServer) -> None:
    with ExitStack() as closing:
        held = [
            closing.enter_context(socket.create_connection(("127.0.0.1", port_of(server)), timeout=PATIENCE_S))
            for _ in range(CONNECTIONS + 1)
        ]
        oldest, *others = held
        assert oldest.recv(1) == b""
        for connection in others:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert answer_on(connection)[0] == 200


def test_whoever_reads_nothing_of_a_long_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "CONNECTION_S", 0.5)
    long = snapshot(consortium="x" * 30_000_000)
    with StatusServer("127.0.0.1:0", lambda: long) as server:
        connection = socket.create_connection(("127.0.0.1", port_of(server)), timeout=PATIENCE_S)
        with connection:
            connection.sendall(b"GET /status.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert comes_true(lambda: is_reset(connection))
        assert get(server, "/healthz")[0] == 200


def is_reset(connection: socket.socket) -> bool:
    """Whether the other side has closed: it is told so by whoever sends, though nothing is read."""
    try:
        connection.sendall(b"y")
    except OSError:
        return True
    return False


def test_once_closed_not_even_a_connection_from_before_is_answered() -> None:
    with StatusServer("127.0.0.1:0", snapshot) as server:
        assert get(server, "/healthz")[0] == 200
        spare = socket.create_connection(("127.0.0.1", port_of(server)), timeout=PATIENCE_S)
        # The server takes connections in their order: once a later one is answered, this one is held.
        assert get(server, "/healthz")[0] == 200
    with spare:
        try:
            spare.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert spare.recv(1) == b""
        except OSError:
            pass
    with pytest.raises(OSError):
        get(server, "/")


def test_an_address_that_cannot_be_had_is_one_clear_line(server: StatusServer) -> None:
    with pytest.raises(StorageError, match=r"cannot show the status at 127\.0\.0\.1:\d+: .*; name another address"):
        StatusServer(f"127.0.0.1:{port_of(server)}", snapshot).__enter__()
    with pytest.raises(StorageError, match="no-such-host"):
        StatusServer("no-such-host.invalid:80", snapshot).__enter__()
    with pytest.raises(ConfigurationError, match="write host:port"):
        StatusServer("8080", snapshot)


def test_the_report_is_served_once_there_is_one_and_under_the_same_policy() -> None:
    made: list[str] = []
    with StatusServer("127.0.0.1:0", snapshot, lambda: made[-1] if made else None) as server:
        assert get(server, "/report.html")[0] == 404
        made.append("<!DOCTYPE html><p>report</p>")
        status, headers, body = get(server, "/report.html")
    assert status == 200 and body == made[0] and headers["Content-Type"].startswith("text/html")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
