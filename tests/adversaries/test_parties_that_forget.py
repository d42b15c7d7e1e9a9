"""A party whose folder is an older copy, or gone, has forgotten which of its records voted: nobody else counts them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.clinics import NAMES, PARTICIPATIONS, VOTED, WITHIN, Clinics

from collegium.coordinator.rounds.readiness import Readiness


@pytest.fixture
def clinics(tmp_path: Path) -> Clinics:
    return Clinics(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["older copy", "added again"])
def test_records_that_their_party_forgot_vote_no_more_in_a_study_than_was_paid(
    clinics: Clinics, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They took part twice as often as ε said. The planted bug, a coordinator that asks the party still, shows it."""
    clinics.copy("older")
    clinics.ask(WITHIN, 4)
    assert max(clinics.votes.values()) <= PARTICIPATIONS
    if lost == "older copy":
        clinics.put_back("older")
    else:
        clinics.begin_again()
    held = clinics.ask(WITHIN, 8)
    assert lost in held.parties[NAMES[0]].status and held.rounds[-1].answered == 4
    assert max(clinics.votes.values()) <= PARTICIPATIONS
    if lost == "added again":
        assert clinics.ask(WITHIN, 4, "second", mode="masked+noised").parties[NAMES[0]].status == "ready", (
            "a new study pays anew"
        )
        return
    with monkeypatch.context() as planted:
        planted.setattr(Readiness, "_forgotten", lambda *_: "")
        clinics.ask(WITHIN, 20)
    assert max(clinics.votes.values()) > PARTICIPATIONS


@pytest.mark.slow
def test_where_each_label_is_paid_the_newest_copy_votes_and_so_does_a_party_that_was_added_again(
    clinics: Clinics,
) -> None:
    clinics.ask(VOTED, 4)
    clinics.copy("older")
    clinics.ask(VOTED, 8)
    clinics.copy("newest")
    clinics.put_back("older")
    assert "older copy" in clinics.ask(VOTED, 12).parties[NAMES[0]].status, "its count of its answers is behind"
    clinics.put_back("newest")
    assert clinics.ask(VOTED, 16).parties[NAMES[0]].status == "ready"
    clinics.begin_again()
    assert clinics.ask(VOTED, 20).parties[NAMES[0]].status == "ready"


@pytest.mark.slow
def test_records_vote_no_more_where_their_party_goes_back_to_an_older_copy_between_two_rounds(
    clinics: Clinics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was ready already, and was not looked at again before the next round. The planted bug does the same."""
    clinics.copy("older")
    held = clinics.ask(WITHIN, 12, put_back="older")
    assert [one.answered for one in held.rounds] == [5, 4, 4] and "older copy" in held.parties[NAMES[0]].status
    assert 0 < max(clinics.votes.values()) <= PARTICIPATIONS
    monkeypatch.setattr(Readiness, "_forgotten", lambda *_: "")
    clinics.votes.clear()
    clinics.ask(WITHIN, 20, "second", put_back="older", mode="masked+noised")
    assert max(clinics.votes.values()) > PARTICIPATIONS
