"""Who is let in by which code, and what a join code is worth."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from collegium.coordinator.membership.members import WRONG_ATTEMPTS, Decision, Members, MembersFile, decide
from collegium.coordinator.service.coordinator_service import CoordinatorService
from collegium.errors import ConfigurationError, IdentityError, StorageError, UnnamedParties
from collegium.protocol.certificates import Authority, read_certificate, read_subject, verify_issued
from collegium.protocol.enrolment import AskEnrolment, code_digest, given_code, is_code, new_code
from collegium.protocol.identities import create_identity
from collegium.protocol.roster import Roster

NOW = datetime(2030, 1, 1, tzinfo=UTC)
AUTHORITY = Authority.create("trial", now=NOW)
CODE = "0123-4567-89ab-cdef-0123-4567-89ab-cdef"


def expecting(*names: str) -> Members:
    members = Members(consortium="trial")
    for name in names:
        members = members.with_code(name, CODE, NOW, hours=1)
    return members


def ask(members: Members, request: bytes, *, name: str = "ash", code: str = CODE, at: datetime = NOW) -> Decision:
    asked = AskEnrolment(name=name, code=code, request_pem=request.decode())
    return decide(members, AUTHORITY, asked, days=30, now=at)


def refused(decision: Decision, words: str) -> Members:
    assert isinstance(decision.answer, IdentityError)
    assert words in str(decision.answer)
    return decision.members


def let_in(decision: Decision) -> Members:
    assert isinstance(decision.answer, bytes), decision.answer
    verify_issued(read_certificate(decision.answer), AUTHORITY.certificate)
    return decision.members


@pytest.fixture
def request_pem(tmp_path: Path) -> bytes:
    return create_identity(tmp_path / "ash", "ash", "party")


def test_codes_have_128_bits_and_are_read_however_they_are_typed() -> None:
    code = new_code()
    assert len(code.replace("-", "")) == 32 and int(code.replace("-", ""), 16) >= 0
    assert len({new_code() for _ in range(1000)}) == 1000  # a repeat has chance 2^-109
    digest = code_digest("ash", code)
    assert is_code("ash", f" {code.upper().replace('-', ' ')} ", digest)
    assert not is_code("birch", code, digest)


def test_a_code_may_be_typed_or_read_from_a_file_so_that_no_command_line_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code").write_text(f"{CODE}\n")
    assert given_code("", str(tmp_path / "code")) == CODE == given_code(CODE, None)
    monkeypatch.setattr("getpass.getpass", lambda asked: CODE)
    assert given_code("", "-") == CODE
    with pytest.raises(ConfigurationError, match="not both"):
        given_code(CODE, "-")
    with pytest.raises(StorageError, match="cannot read a join code"):
        given_code("", str(tmp_path / "none"))


def test_no_code_is_kept() -> None:
    assert CODE not in expecting("ash").model_dump_json()
    assert CODE.replace("-", "") not in expecting("ash").model_dump_json()


def test_the_right_code_certifies_the_keys_that_were_sent(request_pem: bytes) -> None:
    decision = ask(expecting("ash"), request_pem)
    members = let_in(decision)
    assert isinstance(decision.answer, bytes)
    subject = read_subject(read_certificate(decision.answer))
    assert (subject.name, subject.role) == ("ash", "party")
    assert members.roster().signing_keys() == {"ash": subject.signing_key}
    members.roster().require_certified(AUTHORITY.pem)


def test_a_code_serves_once(request_pem: bytes, tmp_path: Path) -> None:
    members = let_in(ask(expecting("ash"), request_pem))
    another = create_identity(tmp_path / "thief", "ash", "party")
    assert refused(ask(members, another), "used already") == members


@pytest.mark.parametrize(("name", "code"), [("ash", CODE.replace("0", "1")), ("ash", ""), ("oak", CODE)])
def test_a_wrong_code_or_name_gets_the_same_answer(name: str, code: str, tmp_path: Path) -> None:
    request = create_identity(tmp_path / "kit", name, "party")
    refused(ask(expecting("ash"), request, name=name, code=code), "the name or the join code is wrong")


def test_an_expired_code_is_said_to_be_expired_to_who_has_it(request_pem: bytes) -> None:
    late = NOW + timedelta(hours=2)
    refused(ask(expecting("ash"), request_pem, at=late), "expired on 2030-01-01")
    refused(ask(expecting("ash"), request_pem, code="00", at=late), "wrong")


def test_guessing_makes_a_code_void(request_pem: bytes) -> None:
    members = expecting("ash")
    for _ in range(WRONG_ATTEMPTS):
        members = refused(ask(members, request_pem, code="00"), "wrong")
    refused(ask(members, request_pem), "ask the consortium for a new code")
    let_in(ask(members.with_code("ash", CODE, NOW, 1), request_pem))


def test_one_guess_less_leaves_it_valid(request_pem: bytes) -> None:
    members = expecting("ash")
    for _ in range(WRONG_ATTEMPTS - 1):
        members = refused(ask(members, request_pem, code="00"), "wrong")
    let_in(ask(members, request_pem))


def test_the_same_keys_renew_without_a_code(request_pem: bytes) -> None:
    members = let_in(ask(expecting("ash"), request_pem))
    renewed = let_in(ask(members, request_pem, code="", at=NOW + timedelta(days=20)))
    assert renewed.roster().signing_keys() == members.roster().signing_keys()
    assert renewed.members["ash"].certificate_pem != members.members["ash"].certificate_pem


def test_revoked_keys_are_never_certified_again_with_or_without_a_code(request_pem: bytes, tmp_path: Path) -> None:
    left = let_in(ask(expecting("ash"), request_pem)).without("ash")
    assert left.roster().admitted() == [] and left.expected() == []
    refused(ask(left, request_pem, code=""), "wrong")
    back = left.with_code("ash", CODE, NOW, 1)
    refused(ask(back, request_pem), "revoked")
    members = let_in(ask(back, create_identity(tmp_path / "new", "ash", "party")))
    assert members.roster().admitted() == ["ash"]
    # Nor after it came back with others: the old request would serve whoever stole the old keys.
    refused(ask(members.with_code("ash", CODE, NOW, 1), request_pem), "revoked")


def test_no_two_parties_share_keys(tmp_path: Path) -> None:
    members = let_in(ask(expecting("ash", "birch"), create_identity(tmp_path, "ash", "party")))
    refused(ask(members, create_identity(tmp_path, "birch", "party"), name="birch"), "are another's")


def test_a_party_cannot_be_certified_as_the_coordinator(tmp_path: Path) -> None:
    request = create_identity(tmp_path, "ash", "coordinator")
    refused(ask(expecting("ash"), request), "not for the party")


def test_garbage_in_place_of_a_signing_request_is_refused() -> None:
    members = expecting("ash")
    assert refused(ask(members, b"garbage"), "not a certificate signing request") == members


def test_revoking_nobody_names_who_there_is() -> None:
    with pytest.raises(IdentityError, match="nobody is called oak; there are ash"):
        expecting("ash").without("oak")


def test_the_file_is_the_operators_own_and_the_roster_shows_no_code(tmp_path: Path) -> None:
    file = MembersFile(tmp_path)
    file.change(lambda members: (expecting("ash"), None), first=Members(consortium="trial"))
    assert file.path.stat().st_mode & 0o077 == 0
    assert file.read() == expecting("ash")
    assert code_digest("ash", CODE) not in file.roster_path.read_text()


def test_a_step_that_changes_nothing_leaves_the_file_alone(tmp_path: Path) -> None:
    file = MembersFile(tmp_path)
    file.change(lambda members: (members, None), first=expecting("ash"))
    before = file.stamp()
    file.change(lambda members: (members, None))
    assert file.stamp() == before


def test_a_folder_that_was_not_provisioned_says_so(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="run collegium provision first"):
        MembersFile(tmp_path).read()
    (tmp_path / "members.json").write_text("{")
    with pytest.raises(StorageError, match="damaged"):
        MembersFile(tmp_path).read()


def test_a_party_that_names_others_again_and_again_does_not_have_them_left_out() -> None:
    """One refusal that named two of the five four times over was as good as four refusals."""
    names, service = [f"clinic-{n}" for n in range(5)], SimpleNamespace(_aside=set())
    roster = cast(Roster, SimpleNamespace(admitted=lambda: names))
    refusal = f"{UnnamedParties.code}: {UnnamedParties.text}"

    def left_out(**outcomes: str) -> set[str]:
        CoordinatorService._go_on_without(cast(CoordinatorService, service), roster, outcomes)
        return service._aside

    assert left_out(a=refusal + ", ".join(names[:2] * 4), b="answered", c="unreachable") == set()
    assert left_out(a=refusal + names[4], b=refusal + names[4], c=refusal + ", ".join(names[3:])) == {names[4]}
