"""Who is let in, and what is said to whom is not: through real sockets, on both sides."""

from __future__ import annotations

import dataclasses
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest
from support.sessions import (
    BackgroundQuestion,
    Echo,
    Hub,
    Kits,
    Listen,
    PartyThread,
    RawParty,
    Serve,
    fake_coordinator,
)
from support.waiting import PATIENCE_S

from collegium import limits
from collegium.clock import utc_now
from collegium.coordinator.service.sessions import SessionLimits
from collegium.errors import (
    CollegiumError,
    IdentityError,
    ProtocolViolation,
    Unreachable,
    VersionMismatch,
)
from collegium.parties.session import PartySession
from collegium.protocol.certificates import Authority, Subject, read_certificate, read_subject
from collegium.protocol.channels import Backoff, explain_failure
from collegium.protocol.grpc_tls13 import grpc
from collegium.protocol.identities import TLS_KEY, Credentials, create_identity, issue_kit
from collegium.protocol.replies import Description, Failure
from collegium.protocol.requests import Describe
from collegium.protocol.roster import Roster, RosterEntry
from collegium.protocol.v1 import collegium_pb2 as pb
from collegium.version import SOFTWARE


def expired(kits: Kits, folder: Path, name: str, role: str, hosts: tuple[str, ...] = ()) -> Credentials:
    """Credentials whose certificate ended yesterday, as nothing but a careless or hostile peer would use them."""
    past = utc_now() - timedelta(days=10)
    request = create_identity(folder, name, role)  # type: ignore[arg-type]
    pem = kits.authority.issue(request, name=name, role=role, hosts=hosts, days=9, now=past)  # type: ignore[arg-type]
    template = kits.parties["ash"]
    return dataclasses.replace(
        template,
        subject=read_subject(read_certificate(pem)),
        certificate_pem=pem,
        tls_key_pem=(folder / TLS_KEY).read_bytes(),
    )


def refused(hub: Hub, credentials: Credentials) -> tuple[grpc.StatusCode, CollegiumError]:
    with RawParty(credentials, hub.address) as raw:
        raw.hello(credentials.name)
        return raw.refusal()


def assert_still_serves(kits: Kits, hub: Hub, serve: Serve) -> None:
    serve(kits.parties["cedar"], hub.address)
    hub.parties.wait_for(["cedar"], timeout_s=PATIENCE_S)
    assert isinstance(hub.parties.ask({"cedar": Describe()}, timeout_s=PATIENCE_S)["cedar"], Description)


def with_party(roster: Roster, subject: Subject) -> Roster:
    """The roster with one more party, or with a new signing key of a party."""
    return Roster.of(roster.consortium, roster.signing_keys() | {subject.name: subject.signing_key})


def test_a_coordinator_of_another_authority_is_not_trusted(kits: Kits, hub: Hub, serve: Serve, tmp_path: Path) -> None:
    stranger = issue_kit(Authority.create("elms"), tmp_path / "ash", "ash", "party")
    error = serve(stranger, hub.address).ended()
    assert isinstance(error, IdentityError)
    assert "is not the one of this consortium" in str(error) and "authority.pem" in str(error)
    assert hub.log.of("connected") == []


def test_a_party_of_another_authority_is_refused(kits: Kits, hub: Hub, serve: Serve, tmp_path: Path) -> None:
    stranger = issue_kit(Authority.create("elms"), tmp_path / "ash", "ash", "party")
    status, _ = refused(hub, dataclasses.replace(stranger, authority_pem=kits.authority.pem))
    assert status is grpc.StatusCode.UNAVAILABLE
    assert hub.log.of("connected") == []
    assert_still_serves(kits, hub, serve)


def test_an_expired_party_is_refused_and_knows_it(kits: Kits, hub: Hub, tmp_path: Path) -> None:
    late = expired(kits, tmp_path, "ash", "party")
    status, _ = refused(hub, late)
    assert status is grpc.StatusCode.UNAVAILABLE
    assert hub.log.of("connected") == []
    with pytest.raises(IdentityError, match="expired on"):
        late.check_validity()


def test_an_expired_coordinator_is_not_trusted(kits: Kits, serve: Serve, tmp_path: Path) -> None:
    late = expired(kits, tmp_path, "hub", "coordinator", ("localhost",))
    with fake_coordinator(late) as address:
        error = serve(kits.parties["ash"], address).ended()
    assert isinstance(error, IdentityError) and "expired" in str(error)


def test_a_coordinator_under_another_host_name_is_not_trusted(kits: Kits, serve: Serve, tmp_path: Path) -> None:
    elsewhere = issue_kit(kits.authority, tmp_path, "hub", "coordinator", hosts=["coordinator.example.org"])
    with fake_coordinator(elsewhere) as address:
        error = serve(kits.parties["ash"], address).ended()
    assert isinstance(error, IdentityError) and "ostname mismatch" in str(error)


def test_a_party_cannot_pose_as_the_coordinator(kits: Kits, serve: Serve, tmp_path: Path) -> None:
    """Its certificate is the consortium's and may even name the host; it is not good for listening."""
    posing = issue_kit(kits.authority, tmp_path, "localhost", "party", hosts=["localhost"])
    with fake_coordinator(posing) as address:
        error = serve(kits.parties["ash"], address).ended()
    assert isinstance(error, IdentityError)


def test_the_coordinator_s_certificate_does_not_admit_as_a_party(kits: Kits, hub: Hub) -> None:
    status, _ = refused(hub, kits.coordinator)
    assert status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED)
    assert hub.log.of("connected") == []


def test_a_party_that_is_not_on_the_roster_is_told_so(kits: Kits, hub: Hub, serve: Serve) -> None:
    error = serve(kits.parties["stranger"], hub.address).ended()
    assert isinstance(error, IdentityError) and "not on the roster" in str(error)
    event = hub.log.wait_for("refused")
    assert event.party == "stranger" and "not on the roster" in event.detail
    # It ended when it was told. A connection that is cut before it was told is tried again.
    assert {event.party for event in hub.log.of("refused")} == {"stranger"} and hub.log.of("connected") == []


def test_a_known_name_with_another_signing_key_is_refused(kits: Kits, hub: Hub, serve: Serve, tmp_path: Path) -> None:
    error = serve(issue_kit(kits.authority, tmp_path, "ash", "party"), hub.address).ended()
    assert isinstance(error, IdentityError) and "another signing key" in str(error)


def test_a_renewed_certificate_of_the_same_party_is_admitted(kits: Kits, hub: Hub, tmp_path: Path) -> None:
    earlier = issue_kit(kits.authority, tmp_path, "birch", "party")
    (tmp_path / TLS_KEY).unlink()
    renewed = issue_kit(kits.authority, tmp_path, "birch", "party")
    assert renewed.subject.fingerprint != earlier.subject.fingerprint
    hub.parties.replace_roster(lambda: with_party(kits.roster, earlier.subject))
    with RawParty(renewed, hub.address) as raw:
        raw.hello("birch")
        assert raw.receive().WhichOneof("body") == "welcome"


def test_a_running_party_takes_up_its_renewed_certificate(kits: Kits, listen: Listen, tmp_path: Path) -> None:
    folder = tmp_path / "birch"
    first = issue_kit(kits.authority, folder, "birch", "party")
    hub = listen()
    hub.parties.replace_roster(lambda: with_party(kits.roster, first.subject))
    session = PartySession(
        lambda task: Echo("birch"), lambda: Credentials.load(folder, "party"), hub.address, backoff=Backoff(0.01, 0.05)
    )
    serving = PartyThread(session)
    hub.parties.wait_for(["birch"], timeout_s=PATIENCE_S)
    issue_kit(kits.authority, folder, "birch", "party")
    revoked = RosterEntry(
        signing_key=first.subject.signing_key.hex(), revoked_certificates=(first.subject.fingerprint,)
    )
    roster = kits.roster.model_copy(update={"parties": {"birch": revoked}})
    hub.parties.close()
    again = listen(f"127.0.0.1:{hub.port}", roster=roster)
    assert again.parties.wait_for(["birch"], timeout_s=PATIENCE_S) == ["birch"]
    # A broken folder later on does not end a party whose credentials still hold.
    (folder / TLS_KEY).unlink()
    again.parties.close()
    last = listen(f"127.0.0.1:{hub.port}", roster=roster)
    assert last.parties.wait_for(["birch"], timeout_s=PATIENCE_S) == ["birch"]
    session.stop()
    assert serving.ended() == "stopped"


def test_a_hello_in_another_party_s_name_is_refused(kits: Kits, hub: Hub) -> None:
    with RawParty(kits.parties["ash"], hub.address) as raw:
        raw.hello("birch")
        status, error = raw.refusal()
    assert status is grpc.StatusCode.UNAUTHENTICATED
    assert isinstance(error, IdentityError) and "'birch'" in str(error)
    assert hub.log.wait_for("refused").party == "ash"


SAME = f"({SOFTWARE}) {limits.PROTOCOL_VERSION}: install the same version of Collegium on both sides"


@pytest.mark.parametrize(
    ("software", "named"),
    [("collegium 0.2.0", "collegium 0.2.0"), ("", "an unknown version"), ("\x1b[0m", "an unknown version")],
    ids=["named", "silent", "hostile"],
)
def test_both_sides_read_both_versions_where_a_party_has_an_older_one(
    kits: Kits, hub: Hub, software: str, named: str
) -> None:
    with RawParty(kits.parties["ash"], hub.address) as raw:
        raw.hello("ash", version=1, software=software)
        status, error = raw.refusal()
    assert status is grpc.StatusCode.FAILED_PRECONDITION and isinstance(error, VersionMismatch)
    assert str(error) == f"this party ({named}) speaks version 1 of the protocol, the coordinator {SAME}"
    refused = hub.log.wait_for("refused")
    assert (refused.party, refused.detail) == ("ash", str(error))


def test_a_party_leaves_a_coordinator_of_another_version_and_names_both(kits: Kits, serve: Serve) -> None:
    welcome = pb.Welcome(protocol_version=1, consortium="oaks", task_json="{}", software="collegium 0.2.0")
    with fake_coordinator(kits.coordinator, pb.FromCoordinator(welcome=welcome).SerializeToString()) as address:
        error = serve(kits.parties["ash"], address).ended()
    assert isinstance(error, VersionMismatch)
    assert str(error) == f"the coordinator (collegium 0.2.0) speaks version 1 of the protocol, this party {SAME}"


def test_coordinator_and_party_name_their_versions_to_each_other(kits: Kits, hub: Hub) -> None:
    with RawParty(kits.parties["ash"], hub.address) as raw:
        raw.hello("ash")
        assert raw.receive().welcome.software == SOFTWARE


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"", b"\x12\x03\x0a\x01a"], ids=["garbage", "empty", "request"])
def test_a_party_leaves_a_coordinator_that_sends_what_is_no_welcome(kits: Kits, serve: Serve, data: bytes) -> None:
    with fake_coordinator(kits.coordinator, data) as address:
        assert isinstance(serve(kits.parties["ash"], address).ended(), ProtocolViolation)


@pytest.mark.parametrize(
    "data",
    [b"\xff\xff\xff\xff", b"", pb.FromParty(reply=pb.Reply(request_id="r")).SerializeToString()],
    ids=["garbage", "empty", "reply"],
)
def test_a_stream_that_does_not_begin_with_hello_is_refused(kits: Kits, hub: Hub, data: bytes) -> None:
    with RawParty(kits.parties["ash"], hub.address) as raw:
        raw.send(data)
        status, error = raw.refusal()
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert isinstance(error, ProtocolViolation)


def test_a_stream_that_says_nothing_is_closed(kits: Kits, listen: Listen) -> None:
    hub = listen(limits=SessionLimits(hello_timeout_s=0.05))
    with RawParty(kits.parties["ash"], hub.address) as raw:
        status, error = raw.refusal()
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert "no Hello" in str(error)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        pb.FromParty(hello=pb.Hello(protocol_version=limits.PROTOCOL_VERSION, party="ash")).SerializeToString(),
        b"\x00" * (limits.MAX_REPLY_BYTES + 1),
    ],
    ids=["garbage", "second hello", "oversized"],
)
def test_a_party_that_breaks_the_protocol_fails_alone(kits: Kits, hub: Hub, serve: Serve, data: bytes) -> None:
    serve(kits.parties["birch"], hub.address)
    with RawParty(kits.parties["ash"], hub.address) as raw:
        raw.hello("ash")
        raw.receive()
        hub.parties.wait_for(["ash", "birch"], timeout_s=PATIENCE_S)
        asking = BackgroundQuestion(hub, ("ash", "birch"))
        raw.receive()
        raw.send(data)
        status, _ = raw.refusal()
    replies = asking.result()
    assert status in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert isinstance(replies["birch"], Description)
    assert isinstance(replies["ash"], Failure) and replies["ash"].code == "protocol"
    assert hub.log.wait_for("violation").party == "ash"


def test_a_message_far_beyond_the_limit_is_not_even_read(kits: Kits, listen: Listen, serve: Serve) -> None:
    hub = listen(limits=SessionLimits(reconnect_grace_s=0.05))
    with RawParty(kits.parties["ash"], hub.address) as raw:
        raw.hello("ash")
        raw.receive()
        asking = BackgroundQuestion(hub, ("ash",))
        raw.receive()
        raw.send(b"\x00" * (2 * limits.MAX_REPLY_BYTES))
        status, _ = raw.refusal()
    assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
    reply = asking.result()["ash"]
    assert isinstance(reply, Failure) and reply.code == "unreachable"
    assert_still_serves(kits, hub, serve)


def test_a_flood_of_answers_that_nobody_asked_for_ends_the_session(kits: Kits, listen: Listen) -> None:
    hub = listen(limits=SessionLimits(late_replies=3))
    unasked = pb.FromParty(reply=pb.Reply(request_id="r")).SerializeToString()
    with RawParty(kits.parties["ash"], hub.address) as raw:
        raw.hello("ash")
        for _ in range(4):
            raw.send(unasked)
        status, error = raw.refusal()
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert "more answers than questions" in str(error)


def test_a_flood_of_notes_that_it_computes_ends_the_session(
    kits: Kits, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_NOTES_PER_REQUEST", 3)
    hub = listen()
    note = pb.FromParty(computing=pb.Computing(request_id="r")).SerializeToString()
    with RawParty(kits.parties["ash"], hub.address) as raw:
        raw.hello("ash")
        raw.receive()
        hub.parties.wait_for(["ash"], timeout_s=PATIENCE_S)
        BackgroundQuestion(hub, ("ash",))
        raw.receive()
        for _ in range(4):
            raw.send(note)
        status, error = raw.refusal()
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert "too often" in str(error)


def test_plain_text_gets_nothing_and_harms_nothing(kits: Kits, hub: Hub, serve: Serve) -> None:
    for text in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x00" * 4096):
        with socket.create_connection(("127.0.0.1", hub.port), PATIENCE_S) as plain:
            plain.sendall(text)
            received = b""
            try:
                while data := plain.recv(4096):
                    received += data
            except ConnectionResetError:
                pass
            assert len(received) < 64
    assert_still_serves(kits, hub, serve)


def tls_context(kits: Kits, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=kits.authority.pem.decode())
    context.load_cert_chain(kits.folder / "ash" / "certificate.pem", kits.folder / "ash" / TLS_KEY)
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2"])
    return context


def test_the_port_speaks_tls_1_3_and_nothing_older(kits: Kits, hub: Hub) -> None:
    with (
        socket.create_connection(("127.0.0.1", hub.port), PATIENCE_S) as plain,
        tls_context(kits, ssl.TLSVersion.TLSv1_3).wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        assert tls.version() == "TLSv1.3"
        assert tls.recv(9)[3] == 4, "an HTTP/2 SETTINGS frame: the certificate was accepted"
    with socket.create_connection(("127.0.0.1", hub.port), PATIENCE_S) as plain, pytest.raises(OSError):
        tls_context(kits, ssl.TLSVersion.TLSv1_2).wrap_socket(plain, server_hostname="localhost")


def test_a_coordinator_that_would_take_tls_1_2_does_not_start(kits: Kits) -> None:
    """The planted fault: gRPC loaded first, so that the restriction comes too late."""
    code = f"""
import grpc
from pathlib import Path
from collegium.coordinator.service.sessions import GrpcParties
from collegium.protocol.identities import Credentials
from collegium.protocol.roster import Roster
from collegium.data.task import ImageInputs, Task
parties = GrpcParties(
    credentials=Credentials.load(Path({str(kits.folder / "coordinator")!r}), "coordinator"),
    roster=Roster(consortium="oaks", parties={{}}), run_id="r",
    task=Task(classes=("a", "b"), inputs=ImageInputs(height=2, width=2)))
try:
    parties.start("127.0.0.1:0")
except Exception as error:
    print(type(error).__name__)
"""
    environment = {"PATH": "/usr/bin:/bin"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert run.stdout.strip() == "ConfigurationError", run.stderr


@contextmanager
def plain_server(text: bytes = b"HTTP/1.1 400 Bad Request\r\n\r\n") -> Iterator[str]:
    """Answers everybody in plain text, as a port of something else does."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        try:
            while True:
                with listener.accept()[0] as peer:
                    peer.recv(4096)
                    peer.sendall(text)
        except OSError:
            return

    Thread(target=answer, daemon=True).start()
    yield f"localhost:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def test_a_party_does_not_speak_to_a_port_without_tls(kits: Kits, serve: Serve) -> None:
    with plain_server() as address:
        error = serve(kits.parties["ash"], address).ended()
    assert isinstance(error, ProtocolViolation) and "no TLS 1.3" in str(error)


def test_a_proxy_whose_coordinator_is_down_is_no_reason_to_give_up(kits: Kits) -> None:
    """It takes connections and ends them; nothing in that says that there will be no TLS 1.3 behind it."""
    with plain_server(b"") as address:
        error = explain_failure(address, kits.parties["ash"])
    assert isinstance(error, Unreachable) and address in str(error)


def test_a_party_keeps_trying_while_nobody_listens(kits: Kits, listen: Listen, serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    party = Echo("ash")
    serving = serve(kits.parties["ash"], f"localhost:{port}", party)
    serving.waited.wait(PATIENCE_S)
    hub = listen(f"127.0.0.1:{port}")
    assert hub.parties.wait_for(["ash"], timeout_s=PATIENCE_S) == ["ash"]
