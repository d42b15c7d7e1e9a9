"""A week in fast motion: one consortium, twenty studies, and all that happens to its parties in between.

Every command runs in this process, the coordinator and each party in a thread of its own, over TLS. All of them start
anew for every study. Nobody waits for a certificate to expire: it is replaced by one that did.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.typist import PATIENCE_S, Typist, reachable, typing

from collegium.clock import utc_now
from collegium.errors import DataError, IdentityError
from collegium.parties.account import Account
from collegium.parties.cli import PartyConfig, policy_of
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.protocol.identities import CERTIFICATE, Credentials, create_identity, load_authority

FIRST, LAST = ("ash", "birch", "cedar", "oak"), "yew"
VOTES = """
[teachers]
kind = "random-forest"
per_party = 2
options = {{ trees = 2 }}
[mechanism]
name = "{name}"
parameters = {parameters}
"""
RUN = '[queries]\ncount = 24\n[student]\nmethod = "random-forest"\noptions = { trees = 5 }\n[votes]\nmode = "masked"\n'
STUDIES = (
    '[mechanism]\nname = "class-sums"\nparameters = { sigma = 5.0 }\n',
    VOTES.format(name="gnmax", parameters="{ sigma = 8.0 }") + RUN,
    VOTES.format(name="lnmax", parameters="{ gamma = 0.1 }") + RUN,
    '[mechanism]\nname = "individual-knn"\nparameters = { sigma = 20.0, participations = 2 }\n'
    '[neighbours]\nfeatures = "standard"\ndimensions = 0\nshare = 0.2\n' + RUN,
)
"""What differs from one study to the next; they come in turn."""
SERVE = "collegium coordinator serve consortium.toml --study STUDY --wait WAIT"
QUERIES = (1, 24, 24, 24)
"""What a party counts as answers in each of them."""
DATABASE = 'source = "sqlite:///../cedar.sqlite"\nquery = "SELECT a, b, y FROM visits"'
PARTY_SERVE = "collegium party serve NAME/party.toml"


class Week:
    """The consortium; ``here`` are the parties that serve."""

    def __init__(self, typist: Typist) -> None:
        self.typist, self.here, self.studies = typist, list(FIRST), 0
        self.lines: list[str] = []
        self.attended: dict[str, list[int]] = defaultdict(list)

    def found(self) -> None:
        rng = np.random.default_rng(0)
        for name in (*FIRST, LAST, "pool"):
            frame = pd.DataFrame(rng.normal(size=(40 if name == "pool" else 200, 2)).round(2), columns=["a", "b"])
            frame["y"] = np.where(frame["a"] + frame["b"] > 0, "yes", "no")
            if name == "cedar":
                with closing(sqlite3.connect("cedar.sqlite")) as database:
                    frame.to_sql("visits", database, index=False)
            frame.drop(columns="y" if name == "pool" else []).to_csv(f"{name}.csv", index=False)
        self.typist.type("collegium init pool.csv --classes no,yes")
        text = Path("consortium.toml").read_text()
        for port, free in self.typist.ports.items():
            text = text.replace(port, free)
        text = re.sub(r"\[evaluation\].*\n.*\n", "", text).replace("epsilon = 1 ", "epsilon = 30 ")
        Path("consortium.toml").write_text(text)
        self.lines = self.typist.type("collegium provision consortium.toml").splitlines()

    def study(self, *, arriving: tuple[str, ...] = (), renewing: tuple[str, ...] = ()) -> None:
        """The next study, from its file to its student. Some enrol or renew their certificates at its beginning."""
        settings, name = STUDIES[self.studies % len(STUDIES)], f"study-{self.studies}"
        self.studies += 1
        self.typist.type(f"collegium study new consortium.toml {name}")
        file = Path("consortium/studies") / name / "study.toml"
        file.write_text(f"[budget]\nepsilon = 30.0\n{settings}")
        # A round needs four. Where there are five, all are waited for: one that comes too late would wait for long.
        five = len({*self.here, *arriving}) == 5
        coordinator = self.typist.begin("coordinator", SERVE, STUDY=name, WAIT="60" if five else "0")
        if arriving or renewing:
            reachable(int(self.typist.ports["7444"]))
        for party in arriving:
            self.enrol(party)
        for party in renewing:
            line = next(line for line in self.lines if " --fingerprint " in line)
            self.typist.type(
                re.sub(r"--name \S+ --code \S+(.*) --folder.*", rf"--name {party}\1 --folder {party}", line)
            )
        for party in self.here:
            self.attended[party].append(self.studies - 1)
        parties = [self.typist.begin(party, PARTY_SERVE, NAME=party) for party in self.here]
        coordinator.join(PATIENCE_S)
        assert self.typist.ended.get("coordinator") == 0, name
        for thread in parties:
            thread.join(PATIENCE_S)
        assert self.typist.ended == dict.fromkeys(("coordinator", *self.here), 0), name
        self.typist.ended.clear()
        assert file.with_name("student.safetensors").exists() and file.with_name("report.html").exists()

    def enrol(self, name: str) -> None:
        line = next(line for line in self.lines if f" --name {name} " in line)
        self.typist.type(line, FILE=f"{name}.csv", COLUMN="y")
        policy = Path(name) / "policy.toml"
        text = policy.read_text()
        for setting, value in {
            "sum_modes": '["masked", "masked+noised"]',
            "mechanisms": '["noised-class-sums", "gnmax", "lnmax", "individual-knn"]',
            r"minimum_noise_\w+": None,
            "few_parties": "true",
            "queries": "1000",
            "times_per_query": "20",
        }.items():
            line = "minimum_noise_votes = 5.0" if value is None else f"{setting} = {value}"
            text = re.sub(rf"^{setting} = .*", line, text, flags=re.MULTILINE)
        policy.write_text(text + "record_rho = 1.0\n")
        self.here = sorted({*self.here, name})


def expire(name: str) -> None:
    """Put a certificate that ended yesterday in place of the party's own, for the same keys."""
    folder = Path(name) / "credentials"
    request = create_identity(folder, name, "party")
    authority = load_authority(Path("consortium/authority"))
    past = utc_now() - timedelta(days=10)
    (folder / CERTIFICATE).write_bytes(authority.issue(request, name=name, role="party", days=9, now=past))


@pytest.fixture
def week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Week]:
    monkeypatch.chdir(tmp_path)
    with typing(capsys) as typist:
        yield Week(typist)


@pytest.mark.slow
def test_a_week_of_twenty_studies_ends_with_books_that_agree(week: Week) -> None:
    week.found()
    week.here = []
    week.study(arriving=FIRST)
    cedar = Path("cedar/party.toml")
    file_of_cedar = str(Path("cedar.csv").resolve())
    cedar.write_text(cedar.read_text().replace(f'source = "{file_of_cedar}"', DATABASE))
    week.study()
    # Tuesday: one more institution, which was expected all along.
    for _ in range(3):
        week.study(arriving=() if LAST in week.here else (LAST,))
    # Wednesday: a party's database is down. One line says so, and the others go on.
    Path("cedar.sqlite").rename("elsewhere")
    line = week.typist.type("collegium party check cedar/party.toml", status=DataError.exit_status)
    assert "there is no" in line and "cedar.sqlite" in line
    week.here.remove("cedar")
    for _ in range(3):
        week.study()
    Path("elsewhere").rename("cedar.sqlite")
    week.here.append("cedar")
    week.study()
    # Thursday: an institution leaves.
    week.typist.type("collegium provision consortium.toml --revoke birch")
    week.here.remove("birch")
    for _ in range(3):
        week.study()
    # Friday: nothing happens.
    for _ in range(3):
        week.study()
    # Saturday: a certificate has expired. Its party is told, renews it by its own keys, and goes on.
    expire("ash")
    line = week.typist.type(PARTY_SERVE, status=IdentityError.exit_status, NAME="ash").splitlines()[-1]
    assert "expired on" in line
    week.study(renewing=("ash",))
    # Sunday: the last studies, and the books.
    while week.studies < 20:
        week.study()
    ledger = Path("consortium/ledger.sqlite")
    with Ledger.read(ledger) as held:
        unit, spent = held.units()[0], held.epsilon()
        charged = {str(entry.terms.mechanism["name"]) for entry in held.entries() if entry.terms.mechanism}
    assert charged == {"noised-class-sums", "gnmax", "lnmax", "individual-knn"}
    owner = Credentials.load(Path("consortium/coordinator"), "coordinator").subject.signing_key
    least, most = verify(ledger, owner).bounds(*unit)
    assert 0.0 < least <= spent <= most < float("inf")
    assert f"{spent:.4f} spent for one record" in week.typist.type("collegium study list consortium.toml")
    answered = {}
    for name in (*FIRST, LAST):
        config = PartyConfig.read(Path(name) / "party.toml")
        credentials = Credentials.load(config.credentials, "party")
        for books in ("ledger.sqlite", "record-ledger.sqlite"):
            verify(config.folder / books, credentials.subject.signing_key)
        account = Account(config.folder, name, policy_of(config), credentials.signing_key)
        answered[name] = account.queries_answered()
        assert account.record_spent_altogether()[0] > 0.0
        account.close()
    most = {name: sum(QUERIES[study % 4] for study in week.attended[name]) for name in answered}
    # A round that was asked before, such as the one sum of all records, has its answer and counts once.
    assert all(0 < answered[name] <= most[name] for name in answered)
    assert answered["ash"] == answered["oak"] == max(answered.values()), "these two missed no study"
