"""A party whose folder is an older copy, or gone, has forgotten which of its records voted: nobody else counts them."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sklearn.datasets import load_wine
from sklearn.utils import shuffle

import collegium as cg
from collegium.coordinator.rounds.readiness import Readiness
from collegium.coordinator.run import coordinator as run
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples, PoolStore
from collegium.data.examples import examples_of
from collegium.parties.answer_book import FILE, AnswerBook
from collegium.parties.known_ledger import KnownLedger
from collegium.parties.party import Party
from collegium.parties.policy import Policy
from collegium.parties.summing import Membership
from collegium.settings import validate_config
from collegium.simulations.local import InProcessParties

X, Y = shuffle(*load_wine(return_X_y=True), random_state=0)
NAMES = [f"c-{n}" for n in range(5)]
TASK = cg.Task.from_array(X[:40], classes=["a", "b", "c"])
POLICY = cg.PolicyConfig(minimum_noise_votes=1, record_rho=0.5)
PARTICIPATIONS = 2
WITHIN: dict[str, Any] = {
    "mechanism": {"name": "individual-knn", "parameters": {"sigma": 8.0, "participations": PARTICIPATIONS}},
    "neighbours": {"share": 0.2, "features": "standard", "dimensions": 8},
}
VOTED: dict[str, Any] = {
    "mechanism": {"name": "gnmax", "parameters": {"sigma": 3.0}},
    "teachers": {"kind": "random-forest", "options": {"trees": 5}},
}


class Clinics:
    """Five of them as their folders and keys leave them, and one ledger."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.votes, self.pools = folder, Counter[bytes](), PoolStore(None)
        self.keys = {name: Ed25519PrivateKey.generate() for name in NAMES}
        self.operator = Ed25519PrivateKey.generate()
        for name in NAMES:
            (folder / name).mkdir()

    @property
    def roster(self) -> dict[str, bytes]:
        return {name: key.public_key().public_bytes_raw() for name, key in self.keys.items()}

    def _party(self, number: int, name: str) -> Party:
        own, key = self.folder / name, self.keys[name]
        book = AnswerBook(own, name, POLICY, key)
        return Party(
            name,
            examples_of(X[40 + number :: 5], Y[40 + number :: 5], TASK),
            TASK,
            folder=own,
            pools=self.pools,
            split_key=bytes(32),
            policy=Policy(POLICY),
            account=book,
            record_rho=POLICY.record_rho,
            membership=Membership("local", self.roster, key.sign),
            ledger=KnownLedger(book, key.sign),
        )

    def ask(
        self, asked: dict[str, Any], queries: int, study: str = "first", put_back: str = "", mode: str = "masked"
    ) -> RunRecord:
        """Ask for so many labels in all; counts which records of the first clinic voted, and how often.

        After every round its folder becomes that of ``put_back`` again, and it connects anew.
        """
        parties = InProcessParties([self._party(n, name) for n, name in enumerate(NAMES)], "local")
        values = {
            "name": "local",
            "task": TASK,
            "pool": {"source": "wine"},
            "budget": {"epsilon": 60.0},
            "queries": {"count": queries, "batch": 4},
            "student": {"method": "random-forest", "options": {"trees": 5}},
            "votes": {"mode": mode, "quorum": 0.8},
        }
        before = self._spent()

        def stop() -> bool:
            nonlocal before
            if put_back:
                self.votes += self._spent() - before
                self.put_back(put_back)
                before, parties._parties[NAMES[0]] = self._spent(), self._party(0, NAMES[0])
            return False

        done = run.CoordinatorRun(
            validate_config(values | asked, RunConfig, "test"),
            run.Reach(parties, roster=NAMES, signing_keys=self.roster),
            run.Storage(self.folder / study, self.folder / "ledger.sqlite", signer=self.operator, study=study),
            public=PublicData(Examples(cg.encode(X[:40], TASK))),
            watch=run.Watch(should_stop=stop),
        ).label()
        self.votes += self._spent() - before
        assert done.labels is not None and done.labels.asked == queries
        return done

    def _spent(self) -> Counter[bytes]:
        file = self.folder / NAMES[0] / FILE
        if not file.exists():
            return Counter()
        with sqlite3.connect(file) as database:
            return Counter(dict(database.execute("SELECT record, SUM(units_squared) FROM spent GROUP BY record")))

    def copy(self, to: str) -> None:
        shutil.copytree(self.folder / NAMES[0], self.folder / to)

    def put_back(self, copied: str) -> None:
        shutil.rmtree(self.folder / NAMES[0])
        shutil.copytree(self.folder / copied, self.folder / NAMES[0])

    def begin_again(self) -> None:
        """Revoked and added again: another key, another folder."""
        shutil.rmtree(self.folder / NAMES[0])
        (self.folder / NAMES[0]).mkdir()
        self.keys[NAMES[0]] = Ed25519PrivateKey.generate()


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
