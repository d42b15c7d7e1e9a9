"""What strangers and dishonest insiders can do to a coordinator's ports: not much, and the honest work on meanwhile."""

from __future__ import annotations

import queue
from contextlib import ExitStack

import pytest
from support.attackers import (
    CONTINUATION,
    DATA,
    HEADERS,
    HONEST,
    INSIDER,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    Fortress,
    dial,
    frame,
    half_open_tls,
    is_closed,
    send_until_cut,
)
from support.waiting import PATIENCE_S

from collegium.protocol.channels import ATTEND, HANDSHAKE_TIMEOUT_S, channel_credentials, channel_options
from collegium.protocol.enrolment import EXCHANGE_S
from collegium.protocol.grpc_tls13 import grpc

MOST_GROWTH_BYTES = 48 * 1024 * 1024
"""Of the coordinator's resident memory by any one attack here."""
MOST_CPU_S = 2.0
"""For 20,000 requests that are reset; 0.02 s was measured."""
CROWD = 300
HELD_BYTES = 80 * 1024
"""Of the coordinator's memory for one connection that begins and does not go on; 41 to 60 KiB were measured."""
KIB_16 = 16 * 1024


def assert_holds(fortress: Fortress, before_bytes: int, most_bytes: int = MOST_GROWTH_BYTES) -> None:
    """The honest parties answer, and memory has not grown by much."""
    assert fortress.ask() == dict.fromkeys(HONEST, "Description")
    grown = fortress.memory_bytes() - before_bytes
    assert grown < most_bytes, f"{grown / 2**20:.0f} MiB more"


def test_whoever_shows_no_certificate_is_cut_off(fortress: Fortress) -> None:
    """In TLS 1.3 the client's side of a handshake ends before the server has seen that there is none."""
    before = fortress.memory_bytes()
    with fortress.tls() as stranger:
        assert is_closed(stranger, PATIENCE_S)
    assert_holds(fortress, before)


@pytest.mark.parametrize(
    "sent",
    [
        frame(DATA, b"x" * KIB_16, stream=1, length=2**24 - 1),
        frame(HEADERS, b"\xff" * 64, flags=4, stream=1),
        frame(CONTINUATION, b"x", stream=1),
        frame(99, b"\x00" * KIB_16, stream=2**31 - 1) * 8 + frame(SETTINGS, b"x"),
        b"\xff" * 65536,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["oversized frame", "garbled headers", "continuation of nothing", "unknown frames", "noise", "HTTP/1.1"],
)
def test_an_insider_that_sends_malformed_frames_is_cut_off(sent: bytes, fortress: Fortress) -> None:
    before = fortress.memory_bytes()
    start = b"" if sent.startswith(b"GET") else PREFACE + frame(SETTINGS)
    with fortress.tls(as_party=INSIDER) as insider:
        send_until_cut(insider, lambda number: start + sent, 1)
        assert is_closed(insider, PATIENCE_S)
    assert_holds(fortress, before)


def test_headers_that_never_end_fill_no_memory(fortress: Fortress) -> None:
    """768 MiB of one request's headers, in pieces as large as a frame may be: a third of it would be too much."""
    before = fortress.memory_bytes()
    with fortress.tls(as_party=INSIDER) as insider:
        insider.sendall(PREFACE + frame(SETTINGS) + frame(HEADERS, b"\x83", stream=1))
        piece = frame(CONTINUATION, b"\x00\x04name\x7f\xf8\x7e" + b"v" * (KIB_16 - 9), stream=1)
        send_until_cut(insider, lambda number: piece, 768 * 64)
        assert_holds(fortress, before, 256 * 1024 * 1024)


def test_whoever_floods_with_pings_is_cut_off(fortress: Fortress) -> None:
    before = fortress.memory_bytes()
    with fortress.tls(as_party=INSIDER) as insider:
        insider.sendall(PREFACE + frame(SETTINGS))
        send_until_cut(insider, lambda number: frame(PING, b"12345678") * 100, 200)
        assert is_closed(insider, PATIENCE_S)
    assert_holds(fortress, before)


def test_streams_that_are_opened_and_reset_at_once_cost_nearly_nothing(fortress: Fortress) -> None:
    """20,000 of them, which gRPC answers; it keeps the connection."""
    before, cpu_s = fortress.memory_bytes(), fortress.cpu_s()
    # HPACK: :method POST, :scheme https, :path /, and content-type as a literal.
    head = b"\x83\x87\x84\x5f\x10application/grpc"

    def opened_and_reset(number: int) -> bytes:
        return b"".join(
            frame(HEADERS, head, flags=4, stream=at) + frame(RST_STREAM, b"\x00\x00\x00\x08", stream=at)
            for at in range(200 * number + 1, 200 * (number + 1), 2)
        )

    with fortress.tls(as_party=INSIDER) as insider:
        insider.sendall(PREFACE + frame(SETTINGS))
        assert send_until_cut(insider, opened_and_reset, 200) == 200
        assert_holds(fortress, before)
    spent_s = fortress.cpu_s() - cpu_s
    assert spent_s < MOST_CPU_S, f"{spent_s:.1f} s of processor time"


def test_metadata_beyond_the_limit_is_refused(fortress: Fortress) -> None:
    before = fortress.memory_bytes()
    address = fortress.config.consortium.address
    options = [(key, value) for key, value in channel_options(address) if key != "grpc.max_metadata_size"]
    with grpc.secure_channel(address, channel_credentials(fortress.credentials(INSIDER)), options) as channel:
        call = channel.stream_stream(ATTEND)(iter([b""]), metadata=[("x", "y" * 64 * 1024)], timeout=PATIENCE_S)
        with pytest.raises(grpc.RpcError):
            next(call)
        assert call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert_holds(fortress, before)


def test_hundreds_that_begin_and_never_go_on_are_held_cheaply_and_not_for_long(fortress: Fortress) -> None:
    """Half-open handshakes at both ports with TLS, silent connections at all three, streams without a Hello."""
    before = fortress.memory_bytes()
    ports = fortress.ports
    with ExitStack() as held:
        at_sessions = [held.enter_context(half_open_tls(ports.sessions)) for _ in range(CROWD)]
        at_enrolment = [held.enter_context(half_open_tls(ports.enrolment)) for _ in range(CROWD)]
        silent = [held.enter_context(dial(port)) for port in vars(ports).values() for _ in range(CROWD // 3)]
        with_certificate = [held.enter_context(fortress.tls(as_party=INSIDER)) for _ in range(20)]
        for connection in with_certificate:
            connection.sendall(PREFACE + frame(SETTINGS))
        channels = [_idle_streams(fortress, held) for _ in range(4)]
        most_bytes = HELD_BYTES * len([*at_sessions, *at_enrolment, *silent, *with_certificate, *channels])
        assert_holds(fortress, before, most_bytes)
        fortress.enrol(HONEST[0])  # who is enrolled renews; the port answers others meanwhile
        slow_s = max(HANDSHAKE_TIMEOUT_S, EXCHANGE_S)
        for connection in (*at_sessions, *at_enrolment, *silent):
            assert is_closed(connection, 3 * slow_s)
        for calls in channels:
            for call in calls:
                with pytest.raises(grpc.RpcError):
                    next(call)
        assert_holds(fortress, before, most_bytes)


def _idle_streams(fortress: Fortress, held: ExitStack) -> list[grpc.Call]:
    """A channel of an insider with as many open streams as it may have, on which it says nothing."""
    address = fortress.config.consortium.address
    credentials = channel_credentials(fortress.credentials(INSIDER))
    channel = held.enter_context(grpc.secure_channel(address, credentials, channel_options(address)))
    method = channel.stream_stream(ATTEND)
    return [method(iter(queue.SimpleQueue[bytes]().get, None), timeout=PATIENCE_S) for _ in range(4)]


def test_a_scanner_that_knocks_all_day_is_logged_once(fortress: Fortress) -> None:
    before, lines_before = fortress.memory_bytes(), len(fortress.log_lines())
    for _ in range(40):
        with dial(fortress.ports.sessions) as plain:
            plain.sendall(b"\x00" * 64)
        with fortress.tls() as stranger:
            assert is_closed(stranger, PATIENCE_S)
    for _ in range(10):
        with grpc.secure_channel(
            fortress.config.consortium.address,
            channel_credentials(fortress.credentials(INSIDER)),
            channel_options(fortress.config.consortium.address),
        ) as channel:
            call = channel.stream_stream(ATTEND)(iter([b"\xff\xff\xff"]), timeout=PATIENCE_S)
            with pytest.raises(grpc.RpcError):
                next(call)
    assert_holds(fortress, before)
    fresh = fortress.log_lines()[lines_before:]
    assert sum(line["event"] == "refused" for line in fresh) <= 1
    assert len(fresh) <= 3, fresh


def test_no_error_that_nobody_foresaw_was_logged(fortress: Fortress) -> None:
    """Last in this file: of all that came before."""
    assert [line for line in fortress.log_lines() if "exception" in line or line["level"] == "error"] == []
