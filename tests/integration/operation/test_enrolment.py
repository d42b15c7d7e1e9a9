"""Enrolment over real sockets: what a party sends to whom, and what the port takes from strangers."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID
from support.ports import free_ports
from support.typist import typed
from support.waiting import PATIENCE_S

from collegium.cli import main
from collegium.clock import utc_now
from collegium.coordinator.membership.enrolment_service import EnrolmentService, Registrar
from collegium.coordinator.membership.members import Members, MembersFile
from collegium.errors import ConfigurationError, IdentityError, ProtocolViolation, StorageError, Unreachable
from collegium.parties.enrolment import TASKS, enrol, enrolled_tasks
from collegium.protocol.certificates import Authority
from collegium.protocol.enrolment import (
    MAX_ANSWER_BYTES,
    MAX_ASK_BYTES,
    AuthorityIs,
    _read_answer,
    answer_line,
    new_code,
)
from collegium.protocol.identities import Credentials, issue_kit
from collegium.protocol.roster import AnnouncedLimits, AnnouncedTerms


class Listening(Registrar):
    """Remembers every line that it was asked."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.heard: list[bytes] = []

    def answer(self, line: bytes) -> bytes:
        self.heard.append(line)
        return super().answer(line)


TERMS = AnnouncedTerms(
    limits=AnnouncedLimits(epsilon=1.0, delta=1e-5, record_epsilon=2.0),
    sum_mode="masked",
    mechanism="gnmax",
    noise_votes=2.0,
    pools=("ab" * 32,),
    answers=24,
)


@dataclass
class EnrolmentScene:
    """A consortium whose port is open for `ash`."""

    folder: Path
    authority: Authority
    registrar: Listening
    members: MembersFile
    port: int
    code: str
    enrolled: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    def enrol(self, folder: str = "ash", *, code: str | None = None, name: str = "ash", fingerprint: str = "") -> None:
        enrol(
            self.address,
            name,
            self.code if code is None else code,
            fingerprint or self.authority.fingerprint,
            self.folder / folder,
            parties=() if (self.folder / folder / "party.toml").exists() else ("ash", "birch", "cedar"),
        )


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[EnrolmentScene]:
    authority, code = Authority.create("trial"), new_code()
    identity = tmp_path / "coordinator"
    issue_kit(authority, identity, "coordinator", "coordinator", hosts=["localhost"])
    members = MembersFile(tmp_path)
    start = Members(consortium="trial").with_code("ash", code, utc_now(), hours=1)
    members.change(lambda found: (found, None), first=start)
    names: list[str] = []
    registrar = Listening(authority, members, sessions="localhost:7443", terms=TERMS, days=30, on_enrolled=names.append)
    with contextlib.closing(EnrolmentService(registrar, identity)) as service:
        yield EnrolmentScene(tmp_path, authority, registrar, members, service.start("localhost:0"), code, names)


def test_a_party_enrols_and_gets_what_it_needs_to_serve(scene: EnrolmentScene) -> None:
    scene.enrol()
    credentials = Credentials.load(scene.folder / "ash" / "credentials", "party")
    assert credentials.name == "ash" and scene.enrolled == ["ash"]
    from collegium.parties.config import PartyConfig, known_roster, policy_of

    config = PartyConfig.read(scene.folder / "ash" / "party.toml")
    assert config.coordinator == "localhost:7443"
    known = known_roster(config, credentials)
    assert known is not None and dict(known) == {"ash": credentials.subject.signing_key}
    policy = policy_of(config)
    assert (policy.sum_modes, policy.mechanisms, policy.minimum_noise_votes) == (("masked",), ("gnmax",), 2.0)
    assert policy.queries is not None and policy.queries >= 12
    assert policy.pools == TERMS.pools and not policy.few_parties
    for key in (scene.folder / "ash" / "credentials").glob("*key.pem"):
        assert key.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("said", "decided"),
    [(["--group", ""], None), ([], None), (["--group", "", "--one-row-each"], True), (["--several-rows"], False)],
)
def test_whose_a_row_is_stands_in_the_file_as_it_was_said_and_not_where_it_was_not(
    scene: EnrolmentScene, capsys: pytest.CaptureFixture[str], said: list[str], decided: bool | None
) -> None:
    """An empty name of a column, as of a variable of a shell that is not set, names nobody and decides nothing."""
    from collegium.parties.config import PartyConfig

    where = ["--coordinator", scene.address, "--fingerprint", scene.authority.fingerprint]
    where += ["--name", "ash", "--code", scene.code, "--parties", "ash,birch,cedar"]
    status, _, err = typed(capsys, "party", "enrol", *where, "--folder", scene.folder / "ash", *said)
    assert status == 0, err
    records = PartyConfig.read(scene.folder / "ash" / "party.toml").data
    assert (records.group, records.one_row_each, records.persons) == (None, decided, decided)


def test_no_private_key_leaves_the_party(scene: EnrolmentScene) -> None:
    scene.enrol()
    sent = b"".join(scene.registrar.heard)
    assert b"CERTIFICATE REQUEST" in sent and b"PRIVATE" not in sent
    for key in (scene.folder / "ash" / "credentials").glob("*key.pem"):
        body = "".join(key.read_text().splitlines()[1:-1])
        assert body.encode() not in sent.replace(b"\\n", b"")


def test_enrolling_again_renews_without_a_code_and_keeps_edited_files(scene: EnrolmentScene) -> None:
    scene.enrol()
    folder = scene.folder / "ash"
    before = Credentials.load(folder / "credentials", "party")
    (folder / "policy.toml").write_text("queries = 7\n")
    scene.enrol(code="")
    after = Credentials.load(folder / "credentials", "party")
    assert after.certificate_pem != before.certificate_pem
    assert after.subject.signing_key == before.subject.signing_key
    assert (folder / "policy.toml").read_text() == "queries = 7\n"


def test_who_enrols_again_is_told_what_its_policy_lacks_and_nobody_else_is(
    scene: EnrolmentScene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.enrol()
    policy = scene.folder / "ash" / "policy.toml"
    policy.write_text(policy.read_text().replace('["gnmax"]', '["lnmax"]').replace("queries = 24", "queries = 23"))
    with pytest.raises(SystemExit) as ended:
        asked = ["--coordinator", scene.address, "--name", "ash", "--fingerprint", scene.authority.fingerprint]
        main(["party", "enrol", *asked, "--folder", str(scene.folder / "ash")])
    said = capsys.readouterr().out.splitlines()
    told = next(number for number, line in enumerate(said) if "refuses what the consortium means to ask now" in line)
    assert said[told + 1 : told + 3] == ['mechanisms = ["lnmax", "gnmax"]', "queries = 24"] and ended.value.code == 0
    assert b"lnmax" not in b"".join(scene.registrar.heard)


def test_a_code_that_was_used_enrols_nobody_else(scene: EnrolmentScene) -> None:
    scene.enrol()
    with pytest.raises(IdentityError, match="used already"):
        scene.enrol("thief")
    assert not (scene.folder / "thief" / "party.toml").exists()


def test_a_wrong_code_or_name_is_one_clear_error(scene: EnrolmentScene) -> None:
    for wrong in ({"code": new_code()}, {"name": "oak", "folder": "oak"}):
        with pytest.raises(IdentityError, match="the name or the join code is wrong"):
            scene.enrol(**wrong)
    scene.enrol()


def test_no_code_is_logged_nor_told_to_anybody(scene: EnrolmentScene, caplog: pytest.LogCaptureFixture) -> None:
    wrong = new_code()
    with caplog.at_level("DEBUG"):
        with pytest.raises(IdentityError) as error:
            scene.enrol(code=wrong)
        scene.enrol()
    assert "enrolment refused" in caplog.text and "ash enrolled" in caplog.text
    for code in (wrong, scene.code):
        for text in (caplog.text, str(error.value), (scene.folder / "ash" / "party.toml").read_text()):
            assert code not in text and code.replace("-", "") not in text


def test_when_all_places_are_taken_the_longest_idler_loses_its_own(
    scene: EnrolmentScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collegium.coordinator.membership.enrolment_service.MAX_EXCHANGES", 2)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("localhost", scene.port), PATIENCE_S) as mute,
        socket.create_connection(("localhost", scene.port), PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as idle,
    ):
        assert b"authority_pem" in converse(scene, b'{"ask":"authority"}\n')
        assert not mute.recv(1)
        idle.sendall(b'{"ask":"authority"}\n')
        assert b"authority_pem" in idle.recv(65536)
    scene.enrol()


def test_nothing_is_sent_where_the_fingerprint_is_another(scene: EnrolmentScene) -> None:
    with pytest.raises(IdentityError, match="nothing was sent"):
        scene.enrol(fingerprint="ab" * 32)
    assert len(scene.registrar.heard) == 1 and scene.code.encode() not in scene.registrar.heard[0]
    assert not (scene.folder / "ash").exists()
    with pytest.raises(ConfigurationError, match="64 hexadecimal digits"):
        scene.enrol(fingerprint="ab")


def test_a_folder_with_the_keys_for_another_consortium_is_left_alone(scene: EnrolmentScene) -> None:
    folder = scene.folder / "ash" / "credentials"
    issue_kit(Authority.create("elsewhere"), folder, "ash", "party")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(IdentityError, match="holds the keys for another consortium: choose another folder"):
        scene.enrol()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert not any(scene.code.encode() in line for line in scene.registrar.heard)


def test_whom_to_be_summed_with_is_said_in_one_place(tmp_path: Path) -> None:
    """What is typed anew might be what the coordinator told; the file is what the institution agreed to."""
    file = tmp_path / "party.toml"
    file.write_text('coordinator = "localhost:1"\n')
    with pytest.raises(ConfigurationError, match="is there already: name the parties in it, and leave --parties out"):
        enrol("localhost:1", "ash", new_code(), "ab" * 32, tmp_path, parties=["ash", "ghost"])
    assert [one.name for one in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize("text", [b"", b"edited", b'[{"classes": 7}]', b"\xff"])
def test_a_list_of_tasks_that_was_edited_is_refused_and_not_taken_for_an_empty_one(text: bytes, tmp_path: Path) -> None:
    assert enrolled_tasks(tmp_path) == ()
    (tmp_path / TASKS).write_bytes(text)
    with pytest.raises(StorageError, match="enrol again in the same folder, which writes it anew"):
        enrolled_tasks(tmp_path)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"", "gave no whole answer"),
        (b'{"authority_pem": "cut o', "gave no whole answer"),
        (b"x" * (MAX_ANSWER_BYTES + 1), "gave no whole answer"),
        (b'{"roster": 7}\n', "is no enrolment: check the address"),
        (b"hello\n", "is no enrolment: check the address"),
    ],
)
def test_an_answer_that_is_cut_off_or_none_is_said_to_be_that(line: bytes, told: str) -> None:
    with pytest.raises(ProtocolViolation, match=told):
        _read_answer("localhost:1", line, AuthorityIs)


def eavesdropper(folder: Path, pem: bytes, heard: list[bytes]) -> tuple[int, threading.Thread]:
    """A server with the identity in ``folder`` that says that ``pem`` is its authority; two connections long."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "tls-key.pem")
    listener = socket.create_server(("localhost", 0))
    listener.settimeout(PATIENCE_S)

    def serve() -> None:
        with listener:
            for _ in range(2):
                plain, _ = listener.accept()
                plain.settimeout(PATIENCE_S)
                try:
                    with context.wrap_socket(plain, server_side=True) as secured, secured.makefile("rb") as reader:
                        heard.append(reader.readline())
                        secured.sendall(answer_line(AuthorityIs(authority_pem=pem.decode())))
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return int(listener.getsockname()[1]), thread


@pytest.mark.parametrize(
    ("who", "told"),
    [
        ("another authority", "not this consortium's coordinator"),
        ("a party of the same consortium", "not this consortium's coordinator"),
        ("a party whose certificate would do for a server", "a party, not the coordinator"),
    ],
)
def test_somebody_in_between_who_shows_the_right_authority_does_not_get_the_code(
    who: str, told: str, scene: EnrolmentScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = scene.folder / "between"
    if who == "another authority":
        issue_kit(Authority.create("trial"), identity, "coordinator", "coordinator", hosts=["localhost"])
    else:
        with monkeypatch.context() as planted:
            if who.endswith("server"):
                planted.setattr(ExtendedKeyUsageOID, "CLIENT_AUTH", ExtendedKeyUsageOID.SERVER_AUTH)
            issue_kit(scene.authority, identity, "birch", "party", hosts=["localhost"])
    heard: list[bytes] = []
    port, thread = eavesdropper(identity, scene.authority.pem, heard)
    with pytest.raises(IdentityError, match=told):
        enrol(
            f"localhost:{port}", "ash", scene.code, scene.authority.fingerprint, scene.folder / "ash", parties=["ash"]
        )
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert heard and not any(scene.code.encode() in line for line in heard)


def converse(scene: EnrolmentScene, data: bytes, *, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = newest
    with (
        socket.create_connection(("localhost", scene.port), PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        secured.sendall(data)
        received = b""
        while chunk := secured.recv(65536):
            received += chunk
        return received


def test_tls_1_2_is_refused(scene: EnrolmentScene) -> None:
    with pytest.raises(ssl.SSLError):
        converse(scene, b'{"ask":"authority"}\n', newest=ssl.TLSVersion.TLSv1_2)


@pytest.mark.parametrize(
    "line", [b"hello\n", b'{"ask":"keys"}\n', b'{"ask":"authority"},"x":{}\n', b"[" * 9000 + b"\n", b"\xff\xfe\n"]
)
def test_what_is_no_request_is_answered_by_a_typed_error(line: bytes, scene: EnrolmentScene) -> None:
    assert b'"error":"protocol"' in converse(scene, line)
    scene.enrol()


def test_a_line_that_never_ends_is_cut_off_and_the_port_goes_on(scene: EnrolmentScene) -> None:
    with contextlib.suppress(OSError):  # cut off while it was still being sent
        assert converse(scene, b"x" * (4 * MAX_ASK_BYTES)) == b""
    assert scene.registrar.heard == []
    scene.enrol()


def test_plain_text_gets_no_answer_and_the_port_goes_on(scene: EnrolmentScene) -> None:
    with socket.create_connection(("localhost", scene.port), PATIENCE_S) as plain:
        plain.sendall(b'{"ask":"authority"}\n')
        assert b"authority_pem" not in plain.recv(65536)
    scene.enrol()


def test_nobody_there_and_somebody_else_there_are_told_apart(scene: EnrolmentScene, tmp_path: Path) -> None:
    with socket.create_server(("localhost", 0)) as silent:
        port = silent.getsockname()[1]
    with pytest.raises(Unreachable, match="cannot reach the enrolment"):
        enrol(f"localhost:{port}", "ash", scene.code, scene.authority.fingerprint, tmp_path / "x", parties=["ash"])
    with socket.create_server(("localhost", 0)) as listener:

        def speak_plainly() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=speak_plainly, daemon=True).start()
        with pytest.raises(ProtocolViolation, match=r"no TLS 1\.3"):
            enrol(
                f"localhost:{listener.getsockname()[1]}",
                "ash",
                scene.code,
                scene.authority.fingerprint,
                tmp_path / "x",
                parties=["ash"],
            )


@pytest.mark.parametrize(
    ("name", "label", "group", "says"),
    [
        ("r.csv", "WRONG", None, "--label WRONG: r.csv has no such column; it has Größe, y"),
        ("r.csv", "y", "person", "--group person: r.csv has no such column; it has Größe, y"),
        ("r.xlsx", "y", "person", "--group person: r.xlsx has no such column; it has note, Größe, y"),
        ("r.csv", "y", None, "cannot reach the enrolment"),  # nothing is wrong with the file
        ("r.xlsx", "Größe", None, "cannot reach the enrolment"),  # on the second sheet
        ("r.npz", "diagnosis", None, "cannot reach the enrolment"),  # arrays have no columns
        ("sqlite:///r.db", "y", None, 'which rows? Write --data sqlite:///r.db --query "SELECT … FROM …"'),
        ("r.db", "y", None, 'r.db is a database: write --data sqlite:///r.db --query "SELECT … FROM …"'),
        ("sqlite:///no.db SELECT 1", "y", None, "there is no no.db: correct data.source; or leave --data out"),
        ("sqlite:///r.db ", "y", None, "query"),
        ("postgresql://u@host/r?password=SECRET SELECT 1", "y", None, "data.source holds a password: take it out"),
        ("sqlite:///r.db SELECT y FROM t", "x", None, "--label x: sqlite:///r.db has no such column; it has y"),
        ("sqlite:///r.db SELECT y FROM t", "y", None, "cannot reach the enrolment"),
    ],
)
def test_a_column_that_the_file_lacks_is_refused_at_once_in_one_line(
    name: str,
    label: str,
    group: str | None,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"Größe": ["1,5"], "y": ["ja"]})
    frame.to_csv("r.csv", sep=";", encoding="cp1252", index=False)
    with pd.ExcelWriter("r.xlsx") as book:
        pd.DataFrame({"note": ["x"]}).to_excel(book, sheet_name="Notes", index=False)
        frame.to_excel(book, sheet_name="Data", index=False)
    np.savez("r.npz", x=np.zeros((2, 2)), y=np.zeros(2))
    nobody = f"localhost:{free_ports(1)[0]}"
    asked = ["--coordinator", nobody, "--name", "ash", "--code", "c", "--fingerprint", "ab" * 32, "--parties", "ash"]
    with contextlib.closing(sqlite3.connect("r.db")) as database:
        database.execute("CREATE TABLE t (y TEXT)")
    name, asks, query = name.partition(" ")
    asked += [*(["--group", group] if group else []), *(["--query", query] if asks else [])]
    asked += ["--folder", "ash", "--data", name, "--label", label]
    status, out, err = typed(capsys, "party", "enrol", *asked)
    assert status != 0 and says in err and len(err.splitlines()) == 1 and not out
    assert "SECRET" not in err and not Path("ash/party.toml").exists()
