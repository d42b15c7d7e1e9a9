"""An authority whose key is kept apart: requests go to it in a file, and certificates come back in one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import typist

from collegium.clock import utc_now
from collegium.coordinator.membership.enrolment_service import Registrar
from collegium.coordinator.membership.members import MembersFile
from collegium.coordinator.service.session_service import SessionService
from collegium.coordinator.settings.consortium import read_consortium
from collegium.data.values import ArraySpec
from collegium.errors import IdentityError, StorageError
from collegium.protocol.certificates import Authority, pem_blocks, read_certificate
from collegium.protocol.enrolment import AskEnrolment
from collegium.protocol.identities import Credentials, create_identity, install_certificate, load_authority
from collegium.protocol.roster import AnnouncedLimits, AnnouncedTerms

CONFIG = """\
name = "trial"
consortium = { address = "hub.test:1", enrolment = "hub.test:2", parties = ["ash", "birch", "cedar"], folder = "c" }
task = { classes = ["no", "yes"], inputs = { kind = "image", height = 2, width = 2 } }
pool = { source = "pool.npz" }
budget = { epsilon = 1.0 }
mechanism = { name = "gnmax", parameters = { sigma = 40.0 } }
teachers = { kind = "random-forest", options = { trees = 5 } }
student = { method = "random-forest", options = { trees = 5 } }
queries = { count = 2 }
"""
TERMS = AnnouncedTerms(
    limits=AnnouncedLimits(epsilon=1.0, delta=1e-5, record_epsilon=2.0),
    sum_mode="masked",
    mechanism="gnmax",
    noise_votes=2.0,
    pools=("ab" * 32,),
    answers=24,
)
Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Types a command in the folder of a consortium whose authority is in ``vault``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "consortium.toml").write_text(CONFIG)
    np.savez(tmp_path / "pool.npz", x=np.zeros((9, 2, 2), dtype=np.uint8))
    (tmp_path / "passphrase").write_text("correct horse\n")
    return lambda *words: typist.typed(capsys, *words)


def provision(typed: Typed, *options: str) -> dict[str, Any]:
    status, out, err = typed("provision", "consortium.toml", "--json", *options)
    assert status == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def sign(typed: Typed, *options: str) -> tuple[int, str, str]:
    words = ("c/requests.pem", "--folder", "vault", "--output", "c/certificates.pem", "--yes", *options)
    return typed("authority", "sign", *words, "--passphrase-file", "passphrase", "--host", "hub.test")


def begin(typed: Typed) -> dict[str, Any]:
    assert typed("authority", "create", "trial", "--folder", "vault", "--passphrase-file", "passphrase")[0] == 0
    return provision(typed, "--authority", "vault/authority.pem")


def enrol(name: str, code: str) -> dict[str, Any]:
    """What a party that asks with its code is answered, and its keys are in a folder of its own name."""
    authority = load_authority(Path("c/authority"))
    registrar = Registrar(authority, MembersFile(Path("c")), sessions="hub.test:1", terms=TERMS, days=30)
    ask = AskEnrolment(name=name, code=code, request_pem=create_identity(Path(name), name, "party").decode())
    answer: dict[str, Any] = json.loads(registrar.answer(ask.model_dump_json().encode()))
    return answer


def code_of(made: dict[str, Any], name: str) -> str:
    words = made["commands"][name].split()
    return str(words[words.index("--code") + 1])


def test_the_key_is_encrypted_and_never_where_the_coordinator_is(typed: Typed, tmp_path: Path) -> None:
    begin(typed)
    assert b"ENCRYPTED PRIVATE KEY" in (tmp_path / "vault" / "authority-key.pem").read_bytes()
    assert not (tmp_path / "c" / "authority" / "authority-key.pem").exists()
    (tmp_path / "passphrase").write_text("wrong")
    status, _, err = sign(typed)
    assert status == 4 and "is not a key under this passphrase" in err and len(err.splitlines()) == 1


def test_a_party_that_asks_is_not_told_where_the_coordinator_keeps_its_files(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    code = code_of(begin(typed), "ash")

    def full(*_: Any, **__: Any) -> Any:
        raise StorageError(f"{tmp_path}/c/members.json cannot be written: no space left")

    with monkeypatch.context() as patched:
        patched.setattr(MembersFile, "change", full)
        told = enrol("ash", code)
    assert told["error"] == "storage" and str(tmp_path) not in told["message"] and "its log says why" in told["message"]
    assert "no space left" in caplog.text


def test_requests_go_out_certificates_come_in_and_a_party_is_enrolled(typed: Typed, tmp_path: Path) -> None:
    made = begin(typed)
    assert made["requests_to_sign"] == 1  # the coordinator's own
    told = enrol("ash", code_of(made, "ash"))
    assert told["error"] == "identity" and "signs it by hand" in told["message"]
    assert "signs it by hand" in enrol("ash", "")["message"]
    waiting = provision(typed)
    assert waiting["requests_to_sign"] == 2 and waiting["enrolled"] == [] and waiting["expected"][0] == "ash"
    status, out, _ = sign(typed)
    assert status == 0 and "coordinator" in out and "ash" in out
    done = provision(typed)
    assert done["requests_to_sign"] == 0 and done["enrolled"] == ["ash"]
    assert not (tmp_path / "c" / "requests.pem").exists() and not (tmp_path / "c" / "certificates.pem").exists()
    assert Credentials.load(tmp_path / "c" / "coordinator", "coordinator").name == "coordinator"
    given = enrol("ash", "")["certificate_pem"].encode()
    assert install_certificate(Path("ash"), "party", given, load_authority(Path("vault"), b"correct horse").pem)
    # A renewal is asked for when less than a month is left; until it is signed the old certificate is given.
    assert provision(typed)["requests_to_sign"] == 0 and enrol("ash", "")["certificate_pem"].encode() == given


def test_a_certificate_that_ends_soon_is_renewed_by_hand_too(typed: Typed) -> None:
    enrol("ash", code_of(begin(typed), "ash"))
    provision(typed)
    sign(typed, "--days", "20")
    provision(typed)
    old = enrol("ash", "")["certificate_pem"]
    assert provision(typed)["requests_to_sign"] == 2  # the coordinator's is as old
    sign(typed)
    provision(typed)
    new = enrol("ash", "")["certificate_pem"]
    assert new != old and (read_certificate(new.encode()).not_valid_after_utc - utc_now()).days > 300


def test_an_operator_without_the_key_makes_no_ghost(typed: Typed, tmp_path: Path) -> None:
    made = begin(typed)
    enrol("ash", code_of(made, "ash"))
    provision(typed)
    sign(typed)
    signed = (tmp_path / "c" / "certificates.pem").read_bytes()
    own, request = Authority.create("trial"), create_identity(tmp_path / "ghost", "ghost", "party")
    for pem, words in (
        (own.issue(request, name="ghost", role="party"), "issued by another authority"),
        (sign_for(tmp_path, request), "nobody asked for the certificate of party ghost"),
    ):
        (tmp_path / "c" / "certificates.pem").write_bytes(pem)
        status, _, err = typed("provision", "consortium.toml")
        assert status == 4 and words in err
    (tmp_path / "c" / "certificates.pem").write_bytes(signed)
    assert provision(typed)["enrolled"] == ["ash"] and len(pem_blocks(signed)) == 2


def sign_for(folder: Path, request: bytes) -> bytes:
    """What the authority would issue to somebody who never gave a code."""
    authority = load_authority(folder / "vault", b"correct horse")
    return authority.issue(request, name="ghost", role="party")


def test_the_coordinators_request_needs_its_host(typed: Typed) -> None:
    begin(typed)
    words = ("c/requests.pem", "--folder", "vault", "--yes", "--passphrase-file", "passphrase")
    status, _, err = typed("authority", "sign", *words)
    assert status == 4 and "--host" in err


def test_before_the_first_certificate_comes_serving_says_what_is_missing(typed: Typed) -> None:
    begin(typed)
    config = read_consortium(Path("consortium.toml"))
    pool = ArraySpec("ab" * 32, "uint8", (10, 2, 2, 1))
    with pytest.raises(IdentityError, match=r"have .*requests\.pem signed"):
        SessionService(config, pool=pool, wait_s=0.0, on_event=lambda event: None)
