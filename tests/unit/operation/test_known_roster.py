"""What a party takes over from a coordinator that announces a roster, and what it refuses."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from collegium.errors import IdentityError
from collegium.limits import MAX_ROSTER_BYTES
from collegium.parties.known_roster import KnownRoster, accept_key, begin
from collegium.protocol.certificates import Authority, read_certificate, read_subject
from collegium.protocol.identities import create_identity
from collegium.protocol.roster import Roster, RosterEntry

FOUR = ("ash", "birch", "cedar", "oak")
AUTHORITY, IMPOSTOR = Authority.create("trial"), Authority.create("trial")


def entry(folder: Path, name: str, authority: Authority = AUTHORITY) -> RosterEntry:
    request = create_identity(folder / name, name, "party")
    pem = authority.issue(request, name=name, role="party")
    key = read_subject(read_certificate(pem)).signing_key.hex()
    return RosterEntry(signing_key=key, certificate_pem=pem.decode())


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RosterEntry]:
    folder = tmp_path_factory.mktemp("kits")
    return {name: entry(folder, name) for name in (*FOUR, "ghost")}


def roster(entries: dict[str, RosterEntry], *names: str, **changed: RosterEntry) -> Roster:
    return Roster(consortium="trial", parties={name: entries[name] for name in names} | changed)


def known(folder: Path, start: Roster, *, vouched: tuple[str, ...] = FOUR, minimum: int = 3) -> KnownRoster:
    start.save(folder / "roster.json")
    return KnownRoster(folder / "roster.json", AUTHORITY.pem, vouched=vouched, minimum_parties=minimum)


def test_a_certified_newcomer_is_taken_over_and_kept(entries: dict[str, RosterEntry], tmp_path: Path) -> None:
    party = known(tmp_path, roster(entries, "ash", "birch", "cedar"))
    grown = roster(entries, "ash", "birch", "cedar", "oak")
    party.announced(grown.model_dump_json())
    assert dict(party) == grown.signing_keys()
    assert Roster.load(tmp_path / "roster.json") == grown


def test_who_left_is_gone(entries: dict[str, RosterEntry], tmp_path: Path) -> None:
    party = known(tmp_path, roster(entries, "ash", "birch", "cedar", "oak"))
    gone = entries["oak"].model_copy(update={"admitted": False})
    party.announced(roster(entries, "ash", "birch", "cedar", oak=gone).model_dump_json())
    assert sorted(party) == ["ash", "birch", "cedar"]


def planted(entries: dict[str, RosterEntry], folder: Path) -> dict[str, str]:
    """Rosters that a lying coordinator could announce."""
    uncertified = entries["oak"].model_copy(update={"certificate_pem": None})
    other_key = entries["oak"].model_copy(update={"signing_key": "0" * 64})
    others = entries["oak"].model_copy(update={"certificate_pem": entries["ash"].certificate_pem})
    three = ("ash", "birch", "cedar")
    elsewhere = roster(entries, *three, "oak").model_copy(update={"consortium": "other"})
    return {
        "no certificate of oak": roster(entries, *three, oak=uncertified).model_dump_json(),
        "not what its certificate says": roster(entries, *three, oak=other_key).model_dump_json(),
        "not what its": roster(entries, *three, oak=others).model_dump_json(),
        "another authority": roster(entries, *three, oak=entry(folder / "fake", "oak", IMPOSTOR)).model_dump_json(),
        "fewer than minimum_parties": roster(entries, "ash", "birch").model_dump_json(),
        "roster of 'other'": elsewhere.model_dump_json(),
        "a roster that is not valid": '{"version": 7}',
        "a roster has at most": roster(entries, *three).model_dump_json() + " " * MAX_ROSTER_BYTES,
    }


@pytest.mark.parametrize(
    "why",
    [
        "no certificate of oak",
        "not what its certificate says",
        "not what its",
        "another authority",
        "fewer than minimum_parties",
        "roster of 'other'",
        "a roster that is not valid",
        "a roster has at most",
    ],
)
def test_a_roster_that_does_not_hold_is_refused_and_the_one_before_stays(
    why: str, entries: dict[str, RosterEntry], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start = roster(entries, "ash", "birch", "cedar")
    party = known(tmp_path, start)
    with caplog.at_level(logging.ERROR, "collegium.party"):
        party.announced(planted(entries, tmp_path)[why])
    assert why in caplog.text
    assert dict(party) == start.signing_keys()
    assert Roster.load(tmp_path / "roster.json") == start


def test_nobody_joins_whom_the_institution_does_not_name(
    entries: dict[str, RosterEntry], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The authority is the operator's, so a certificate alone admits its ghosts."""
    start = roster(entries, "ash", "birch", "cedar")
    for vouched, joining in ((FOUR, "ghost"), (FOUR[:3], "oak")):
        party = known(tmp_path, start, vouched=vouched)
        party.announced(roster(entries, "ash", "birch", "cedar", joining).model_dump_json())
        assert dict(party) == start.signing_keys() and party.unnamed == (joining,)
        assert f"it admits {joining}, not named under parties" in caplog.text


def test_a_name_keeps_its_first_key_even_when_it_was_gone_for_a_while(
    entries: dict[str, RosterEntry], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    party = known(tmp_path, roster(entries, *FOUR))
    false = entry(tmp_path / "ghost", "oak")
    for between in ([], [roster(entries, "ash", "birch", "cedar")]):
        for announced in [*between, roster(entries, "ash", "birch", "cedar", oak=false)]:
            party.announced(announced.model_dump_json())
        assert "it has another key for oak" in caplog.text
        assert bytes.fromhex(false.signing_key) not in party.values()
    again = known(tmp_path, Roster.load(tmp_path / "roster.json"))
    again.announced(roster(entries, *FOUR).model_dump_json())
    assert dict(again) == roster(entries, *FOUR).signing_keys(), "with its own key it may come back"


def test_no_party_begins_in_the_file_of_another_consortium(entries: dict[str, RosterEntry], tmp_path: Path) -> None:
    file, start = tmp_path / "roster.json", roster(entries, "ash", "birch")
    start.save(file)
    pem = entries["cedar"].certificate_pem
    assert pem is not None
    with pytest.raises(IdentityError, match="is the roster of 'trial', not of 'other'"):
        begin(file, "other", read_subject(read_certificate(pem.encode())))
    assert Roster.load(file) == start


@pytest.mark.parametrize("key", ["", "ab" * 31, "AB" * 32, "zz" * 32, "ab" * 32 + "\n"])
def test_what_is_no_key_is_not_accepted_as_one(key: str, entries: dict[str, RosterEntry], tmp_path: Path) -> None:
    file, start = tmp_path / "roster.json", roster(entries, "ash", "birch")
    start.save(file)
    with pytest.raises(IdentityError, match="a signing key has 64 hexadecimal digits"):
        accept_key(file, "ash", key)
    assert Roster.load(file) == start


def test_the_digest_of_a_roster_tells_names_and_keys_apart(entries: dict[str, RosterEntry], tmp_path: Path) -> None:
    three = roster(entries, "ash", "birch", "cedar")
    renewed = entries["cedar"].model_copy(update={"certificate_pem": None})
    assert three.digest == roster(entries, "cedar", "birch", "ash").digest
    assert three.digest == roster(entries, "ash", "birch", cedar=renewed).digest, "a new certificate changes nothing"
    others = {
        roster(entries, *FOUR).digest,
        roster(entries, "ash", "birch", cedar=entry(tmp_path, "cedar")).digest,
        roster(entries, "ash", "birch", "oak").digest,
        three.model_copy(update={"consortium": "other"}).digest,
    }
    assert len(others | {three.digest}) == 5 and len(three.digest) == 24
