"""Five clinics as their folders and keys leave them, whose parties are made anew for every run."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sklearn.datasets import load_wine
from sklearn.utils import shuffle

import collegium as cg
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
from collegium.protocol.certificates import Authority
from collegium.protocol.identities import issue_kit
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


def signed_clinics(folder: Path) -> Clinics:
    """Whose operator signs by the certificate of an authority."""
    clinics = Clinics(folder)
    kit = issue_kit(Authority.create("clinics"), folder / "coordinator", "coordinator", "coordinator")
    clinics.operator = kit.signing_key
    return clinics
