"""The roster decides by name, signing key and fingerprint."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from pydantic import ValidationError

from collegium.clock import utc_now
from collegium.errors import IdentityError, StorageError
from collegium.protocol.certificates import Subject
from collegium.protocol.roster import AnnouncedLimits, Roster

ASH = Subject("ash", "party", b"\x01" * 32, "ab" * 32, utc_now())


def changed(roster: Roster, **fields: object) -> Roster:
    return roster.model_copy(update={"parties": {"ash": roster.parties["ash"].model_copy(update=fields)}})


def test_the_roster_admits_whom_it_names_by_the_key_it_names() -> None:
    roster = Roster.of("oaks", {"ash": b"\x01" * 32})
    roster.admit(ASH)
    for stranger, why in (
        (dataclasses.replace(ASH, name="birch"), "not on the roster of oaks"),
        (dataclasses.replace(ASH, signing_key=b"\x02" * 32), "another signing key"),
    ):
        with pytest.raises(IdentityError, match=why):
            roster.admit(stranger)
    with pytest.raises(IdentityError, match="no longer admitted"):
        changed(roster, admitted=False).admit(ASH)
    with pytest.raises(IdentityError, match="was revoked"):
        changed(roster, revoked_certificates=(ASH.fingerprint,)).admit(ASH)


def test_a_roster_survives_its_file(tmp_path: Path) -> None:
    roster = Roster.of("oaks", {"birch": b"\x02" * 32, "ash": ASH.signing_key})
    roster.save(tmp_path / "roster.json")
    assert Roster.load(tmp_path / "roster.json") == roster
    assert roster.admitted() == ["ash", "birch"]


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        '{"consortium": "oaks", "parties": {"Not A Name": {"signing_key": "' + "0" * 64 + '"}}}',
        '{"consortium": "oaks", "parties": {"ash": {"signing_key": "short"}}}',
        '{"consortium": "oaks", "parties": {}, "extra": 1}',
    ],
)
def test_a_roster_that_is_not_valid_says_where(tmp_path: Path, text: str) -> None:
    (tmp_path / "roster.json").write_text(text)
    with pytest.raises(IdentityError, match=r"roster\.json is not valid"):
        Roster.load(tmp_path / "roster.json")
    with pytest.raises(StorageError, match="cannot read"):
        Roster.load(tmp_path / "nowhere.json")


def test_a_promise_to_institutions_that_nothing_limits_is_not_announced() -> None:
    """A policy that was written from it would set no limit at all on what the institution's own votes cost."""
    for limits in ({}, {"record_epsilon": 2.0}):
        with pytest.raises(ValidationError, match="nothing limits what is promised to a party"):
            AnnouncedLimits(unit="party", epsilon=1.0, delta=1e-5, **limits)
    assert AnnouncedLimits(unit="party", epsilon=1.0, delta=1e-5, party_epsilon=2.0).policy()["epsilon"] == 2.0
    assert AnnouncedLimits(unit="party", epsilon=1.0, delta=1e-5, record_rho=0.1).policy()["record_rho"] == 0.1
