"""Errors travel as gRPC statuses and come back as themselves; addresses; how much and how many a server takes."""

from __future__ import annotations

import resource
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.processes import killed_at_the_end, start
from support.waiting import comes_true

from collegium import limits
from collegium.errors import CollegiumError, ConfigurationError, IdentityError, Unreachable, VersionMismatch
from collegium.protocol.certificates import Authority
from collegium.protocol.channels import (
    ERROR_CODE_KEY,
    MIN_CONNECTIONS,
    OTHER_FILES,
    certified,
    channel_options,
    error_of,
    refusal,
    require_tls13,
    server_credentials,
    server_options,
    split_address,
)
from collegium.protocol.grpc_tls13 import grpc
from collegium.protocol.identities import issue_kit
from collegium.protocol.messages import Reply
from collegium.protocol.replies import Counts, SecureSumAnswer
from collegium.protocol.v1 import collegium_pb2 as pb
from collegium.protocol.v1 import secure_sum_pb2 as sum_pb


def kinds(root: type[CollegiumError] = CollegiumError) -> list[type[CollegiumError]]:
    return [root] + [kind for child in root.__subclasses__() for kind in kinds(child)]


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.code)
def test_every_error_crosses_the_wire_unchanged(kind: type[CollegiumError]) -> None:
    status, details, metadata = refusal(kind("do this"))
    assert status is not grpc.StatusCode.OK
    received = error_of(status, details, metadata)
    assert type(received) is kind and str(received) == "do this"


def test_what_grpc_reports_itself_is_a_lost_connection() -> None:
    assert isinstance(error_of(grpc.StatusCode.UNAVAILABLE, "Socket closed", ()), Unreachable)
    assert isinstance(error_of(grpc.StatusCode.RESOURCE_EXHAUSTED, None, None), Unreachable)
    assert isinstance(error_of(grpc.StatusCode.UNIMPLEMENTED, "", ()), VersionMismatch)


def test_what_stands_in_the_place_of_an_error_s_code_is_no_code() -> None:
    for metadata in ([("other", "refused")], [(ERROR_CODE_KEY, b"refused")]):
        assert type(error_of(grpc.StatusCode.UNAVAILABLE, "Socket closed", metadata)) is Unreachable


def test_a_peer_s_text_is_cut() -> None:
    received = error_of(grpc.StatusCode.INTERNAL, "x" * 10_000, ())
    assert len(str(received)) < 2 * limits.MAX_TEXT_CHARS


@pytest.mark.parametrize(
    ("chain", "told"), [([], "no certificate was shown"), (["ash"], "the certificate of a party, not of a coordinator")]
)
def test_who_shows_no_certificate_or_one_of_another_role_is_nobody(chain: list[str], told: str, tmp_path: Path) -> None:
    kit = issue_kit(Authority.create("trial"), tmp_path, "ash", "party")
    context: Any = SimpleNamespace(auth_context=lambda: {"x509_pem_cert": [kit.certificate_pem for _ in chain]})
    with pytest.raises(IdentityError, match=told):
        certified(context, "coordinator")
    if chain:
        assert certified(context, "party") == kit.subject


def test_a_server_wants_a_certificate_of_each_client_and_shows_its_own_new_one_at_the_next_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority.create("trial")
    first, second = (issue_kit(authority, tmp_path, "coordinator", "coordinator") for _ in range(2))
    held, made = [first], list[Any]()
    monkeypatch.setattr(grpc, "ssl_server_certificate_configuration", lambda pairs, root_certificates: pairs[0][1])
    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials", lambda *given, **named: made.append((*given, named)))
    server_credentials(first, lambda: held[-1])
    shown, fetch, named = made[0]
    assert shown == first.certificate_pem and named == {"require_client_authentication": True}
    assert fetch() is None, "nothing changed"
    held.append(second)
    assert fetch() == second.certificate_pem != shown and fetch() is None


def test_a_server_that_would_speak_tls_1_2_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever answers by a handshake speaks it; an alert, nothing, or a connection that is cut off is a refusal."""
    for answer, speaks in ((b"\x16\x03\x03", True), (b"\x15\x03\x03", False), (b"", False), (None, False)):

        def connect(*_: Any, answer: bytes | None = answer) -> socket.socket:
            if answer is None:
                raise ConnectionResetError
            near, far = socket.socketpair()
            far.sendall(answer)
            far.shutdown(socket.SHUT_WR)
            held.enter_context(far)
            return near

        with ExitStack() as held, monkeypatch.context() as patched:
            patched.setattr("collegium.protocol.channels.socket.create_connection", connect)
            if speaks:
                with pytest.raises(ConfigurationError, match=r"would accept TLS 1\.2"):
                    require_tls13("localhost", 1)
            else:
                require_tls13("localhost", 1)


@pytest.mark.parametrize(
    ("address", "parts"), [("hub.example.org:7443", ("hub.example.org", 7443)), ("[::1]:0", ("::1", 0))]
)
def test_addresses(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["", "hub", ":7443", "hub:", "hub:x", "hub:70000", "hub:-1"])
def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(ConfigurationError, match="host:port"):
        split_address(address)


@pytest.mark.parametrize(("address", "proxy"), [("127.0.0.1:1", 0), ("localhost:1", 0), ("hub.example.org:1", 1)])
def test_this_machine_is_never_reached_through_a_proxy(address: str, proxy: int) -> None:
    assert dict(channel_options(address))["grpc.enable_http_proxy"] == proxy


def test_the_most_counts_of_an_answer_fit_into_a_message() -> None:
    counts = np.full((limits.MAX_COUNTS_PER_ANSWER // 1000, 1000), limits.MAX_NEIGHBOUR_COUNT, dtype=np.int64)
    reply = Reply("0" * 32, Counts(counts)).to_proto()
    assert len(pb.FromParty(reply=reply).SerializeToString()) <= limits.MAX_REPLY_BYTES
    words = bytes(4 * limits.MAX_COUNTS_PER_ANSWER)  # of the larger of the two rings
    vector = sum_pb.InputMasked(ring_bits=32, vector=words, view_signature=bytes(64))
    masked = Reply("0" * 32, SecureSumAnswer(sum_pb.SecureSumReply(setup=bytes(32), input_masked=vector))).to_proto()
    assert len(pb.FromParty(reply=masked).SerializeToString()) <= limits.MAX_REPLY_BYTES


@pytest.mark.parametrize(
    ("parties", "soft", "hard", "raised", "connections"),
    [
        (5, 1024, 524_288, MIN_CONNECTIONS + OTHER_FILES, MIN_CONNECTIONS),
        (5, 1024, resource.RLIM_INFINITY, MIN_CONNECTIONS + OTHER_FILES, MIN_CONNECTIONS),
        (5, 65_536, 65_536, 65_536, MIN_CONNECTIONS),
        (5, 1024, 1024, 1024, 1024 - 256),
        (5_000, 1024, 524_288, 10_256, 10_000),
    ],
)
def test_connections_leave_files_for_everything_else(
    parties: int, soft: int, hard: int, raised: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda which: held[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: held.append(limits))
    assert dict(server_options(parties))["grpc.max_allowed_incoming_connections"] == connections
    assert held[-1] == (raised, hard)


SERVER = f"""
import resource, sys
from concurrent.futures import ThreadPoolExecutor
import grpc
from collegium.protocol.channels import server_options

resource.setrlimit(resource.RLIMIT_NOFILE, ({OTHER_FILES} + 3, {OTHER_FILES} + 3))
server = grpc.server(ThreadPoolExecutor(1), options=server_options(3))
print(server.add_insecure_port("localhost:0"), flush=True)
server.start()
sys.stdin.read()
"""
"""A server that may hold so few files open that three connections are all that it takes."""


def answers(connection: socket.socket) -> bool:
    """Whether an HTTP/2 server is at the other end."""
    connection.settimeout(10.0)
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
    try:
        return connection.recv(16) != b""
    except ConnectionError:
        return False


def test_whoever_connects_beyond_the_limit_is_turned_away_until_another_leaves() -> None:
    with killed_at_the_end() as started:
        started.append(start("-c", SERVER, stdin=subprocess.PIPE))
        assert started[0].stdout is not None
        port = int(started[0].stdout.readline())
        with ExitStack() as held:
            three = [held.enter_context(socket.create_connection(("localhost", port))) for _ in range(3)]
            assert all(answers(connection) for connection in three)
            with socket.create_connection(("localhost", port)) as fourth:
                assert not answers(fourth)

        def next_is_answered() -> bool:
            with socket.create_connection(("localhost", port)) as next_one:
                return answers(next_one)

        assert comes_true(next_is_answered), "the server has to notice that they left"
