"""A week in fast motion: one consortium, twenty studies, and all that happens to its parties in between.

Every command runs in this process, the coordinator and each party in a thread of its own, over TLS. All of them start
anew for every study. The test moves `collegium.clock`, which join codes, the commands' own check of their certificates,
renewals, the ledger and the policies' hours read.

Three clocks are not moved, so this test says nothing of them. OpenSSL reads the machine's: to it no certificate expires
here, and what refuses one is the command of the party that holds it. (test_admission.py shows that the other side
refuses it too, by certificates that ended yesterday.) Deadlines, waits and time limits of connections read a monotonic
clock: they pass in the minutes that the test takes. And no process or connection lives for days: none is older than one
study.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sqlalchemy
from support.postgres import PROGRAMS, Server, server
from support.typist import Typist, reachable, typing
from support.waiting import PATIENCE_S

from collegium.clock import utc_now
from collegium.coordinator.membership.members import RENEW_BEFORE
from collegium.errors import DataError, IdentityError
from collegium.parties.answer_book import FILE
from collegium.parties.config import PartyConfig
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.protocol.certificates import read_certificate, read_subject
from collegium_accounting.terminal import epsilon_text

FIRST, LATE, ADDED = ("ash", "birch", "cedar", "oak"), "yew", "elm"
OWN = {"NAMES": ",".join((*FIRST, LATE)), "--group PERSON": "--one-row-each"}
"""What every institution types itself into its line."""
CODE_HOURS, CERTIFICATE_DAYS = 12, 5
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
EXACT = VOTES.format(name="lnmax", parameters="{ gamma = 0.1 }") + RUN
"""The first study: no later one has an exact sum of its inputs."""
STUDIES = (
    VOTES.format(name="gnmax", parameters="{ sigma = 12.0 }") + RUN,
    VOTES.format(name="gnmax", parameters="{ sigma = 8.0 }") + RUN,
    '[mechanism]\nname = "individual-knn"\nparameters = { sigma = 20.0, participations = 2 }\n'
    '[neighbours]\nfeatures = "standard"\ndimensions = 0\nshare = 0.2\n' + RUN,
    '[mechanism]\nname = "class-sums"\nparameters = { sigma = 5.0 }\n',
)
"""What differs from one study to the next; they come in turn."""
SERVE = "collegium coordinator serve consortium.toml --study STUDY --wait WAIT"
QUERIES = (24, 24, 24, 1)
"""What a party counts as answers in each of them."""
MECHANISMS = {"class-sums", "gnmax", "lnmax", "individual-knn"}
PARTY_SERVE = "collegium party serve NAME/party.toml"
PROVISION = "collegium provision consortium.toml"


class Calendar:
    """The clock that the test moves; takes the place of `datetime` in `collegium.clock`."""

    def __init__(self) -> None:
        self.days = 0

    def now(self, zone: tzinfo) -> datetime:
        return datetime.now(zone) + timedelta(days=self.days)


class File:
    """A database in a file, where there is no PostgreSQL. It is down while the file is elsewhere."""

    url, password = "sqlite:///cedar.sqlite", None

    def kill(self) -> None:
        Path("cedar.sqlite").rename("elsewhere")

    def start(self) -> None:
        Path("elsewhere").rename("cedar.sqlite")


class Week:
    """The consortium; ``here`` are the parties that serve, and ``database`` holds the records of cedar."""

    def __init__(self, typist: Typist, calendar: Calendar, database: File | Server) -> None:
        self.typist, self.calendar, self.database = typist, calendar, database
        self.down = "there is no" if isinstance(database, File) else "nothing was kept, start again"
        self.here: list[str] = []
        self.studies = 0
        self.lines: list[str] = []
        self.attended: dict[str, list[int]] = defaultdict(list)

    def found(self) -> None:
        rng = np.random.default_rng(0)
        for name in (*FIRST, LATE, ADDED, "pool"):
            frame = pd.DataFrame(rng.normal(size=(40 if name == "pool" else 200, 2)).round(2), columns=["a", "b"])
            frame["y"] = np.where(frame["a"] + frame["b"] > 0, "yes", "no")
            if name == "cedar":
                url = sqlalchemy.make_url(self.database.url).set(password=self.database.password)
                frame.to_sql("visits", sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool), index=False)
            frame.drop(columns="y" if name == "pool" else []).to_csv(f"{name}.csv", index=False)
        self.typist.type("collegium init pool.csv --classes no,yes --most-records 1000")
        text = Path("consortium.toml").read_text()
        for port, free in self.typist.ports.items():
            text = text.replace(port, free)
        text = re.sub(r"\[(evaluation|pool_check)\].*\n.*\n", "", text).replace("epsilon = 1 ", "epsilon = 30 ")
        short = f"[consortium]\ncode_hours = {CODE_HOURS}\ncertificate_days = {CERTIFICATE_DAYS}\n"
        Path("consortium.toml").write_text(text.replace("[consortium]\n", short))
        self.lines = self.typist.type(PROVISION).splitlines()

    def study(self, first: Callable[[], None] = lambda: None, *, coming: str = "") -> None:
        """The next study, from its file to its student; ``first`` happens once the coordinator listens.

        ``coming`` is a party that serves from then on. From the second on, the parties add the noise.
        """
        settings, name = STUDIES[self.studies % len(STUDIES)], f"study-{self.studies}"
        settings = settings.replace('"masked"', '"masked+noised"') if self.studies else EXACT
        self.studies += 1
        self.typist.type(f"collegium study new consortium.toml {name}")
        file = Path("consortium/studies") / name / "study.toml"
        file.write_text(f"[budget]\nepsilon = 30.0\n{settings}")
        # A round needs four. Where there are five, all are waited for: one that comes too late would wait for long.
        five = len({*self.here, coming} - {""}) == 5
        coordinator = self.typist.begin("coordinator", SERVE, STUDY=name, WAIT="60" if five else "0")
        reachable(int(self.typist.ports["7444"]))
        first()
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
        self.typist.type(line, FILE=f"{name}.csv", COLUMN="y", **OWN)
        policy = Path(name) / "policy.toml"
        text = policy.read_text()
        for setting, value in {
            "sum_modes": '["masked", "masked+noised"]',
            "mechanisms": str(sorted(MECHANISMS)).replace("'", '"'),
            r"minimum_noise_\w+": None,
            "few_parties": "true",
            "queries": "1000",
            "record_epsilon": "1000.0",
            "epsilon": "10000.0",
        }.items():
            line = "minimum_noise_votes = 5.0" if value is None else f"{setting} = {value}"
            text = re.sub(rf"^{setting} = .*", line, text, flags=re.MULTILINE)
        policy.write_text(re.sub(r"^record_rho = .*\n", "", text, flags=re.MULTILINE) + "record_rho = 1.0\n")
        self.here = sorted({*self.here, name})

    def enrol_first(self) -> None:
        for name in FIRST:
            self.enrol(name)

    def enrol_late(self) -> None:
        """A code that has expired is refused, and enrols nobody; the operator gives another."""
        line = next(line for line in self.lines if f" --name {LATE} " in line)
        said = self.typist.type(line, status=IdentityError.exit_status, FILE=f"{LATE}.csv", COLUMN="y", **OWN)
        assert f"the join code of {LATE} expired on" in said
        self.lines = self.typist.type(f"{PROVISION} --renew-code {LATE}").splitlines()
        self.enrol(LATE)

    def add(self) -> None:
        """One more institution, while the coordinator listens; the others name it in their own files."""
        self.lines = self.typist.type(f"{PROVISION} --add {ADDED}").splitlines()
        assert any(f"First, each other party names {ADDED} under parties" in line for line in self.lines)
        for name in self.here:
            file = Path(name) / "party.toml"
            before = file.read_text()
            file.write_text(before.replace("\nparties = [", f'\nparties = ["{ADDED}", '))
            assert file.read_text() != before
        self.enrol(ADDED)

    def fail_and_come_back(self) -> None:
        """The party whose database is down says so in one line and counts nothing; it serves once that is up again."""
        before = self.shown("cedar")
        said = self.typist.type(PARTY_SERVE, status=DataError.exit_status, NAME="cedar")
        assert len([line for line in said.splitlines() if self.down in line]) == 1, said
        assert self.shown("cedar") == before
        self.database.start()
        self.here.append("cedar")

    def renew(self, *names: str) -> None:
        """A study at whose beginning these parties, who read that their certificates have expired, renew them."""
        for name in names:
            said = self.typist.type(PARTY_SERVE, status=IdentityError.exit_status, NAME=name).splitlines()[-1]
            assert "expired on" in said and "with the same folder and no code" in said

        def renewing() -> None:
            line = next(line for line in self.lines if " --fingerprint " in line)
            for name in names:
                self.typist.type(
                    re.sub(r"--name \S+ --code \S+(.*) --folder.*", rf"--name {name}\1 --folder {name}", line)
                )

        self.study(renewing)

    def shown(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self.typist.type(f"collegium party show {name}/party.toml --json")))

    def verified(self, ledger: Path, certificate: Path, chain: str = "") -> None:
        which = f" --chain {chain}" if chain else ""
        said = self.typist.type(f"collegium ledger verify {ledger} --public-key {certificate}{which}")
        assert " entries agree" in said


@pytest.fixture
def week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Week]:
    calendar = Calendar()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("collegium.clock.datetime", calendar)
    # TLS reads the clock of the machine, by which a certificate of Saturday must have begun.
    monkeypatch.setattr("collegium.protocol.certificates.CLOCK_SKEW", timedelta(days=10))
    with typing(capsys) as typist, ExitStack() as stack:
        database = File() if PROGRAMS is None else stack.enter_context(server())
        monkeypatch.setenv("CEDAR_PASSWORD", database.password or "")
        yield Week(typist, calendar, database)


@pytest.mark.slow
def test_a_week_of_twenty_studies_ends_with_books_that_agree(week: Week) -> None:
    week.found()
    week.study(week.enrol_first)
    cedar, before = Path("cedar/party.toml"), f'source = "{Path("cedar.csv").resolve()}"'
    assert before in cedar.read_text()
    url = week.database.url.replace(":///", ":///../")  # a file's path starts at the folder of party.toml
    source = f'source = "{url}"\nquery = "SELECT a, b, y FROM visits"'
    secret = "" if isinstance(week.database, File) else '\npassword_from = "CEDAR_PASSWORD"'
    cedar.write_text(cedar.read_text().replace(before, source + secret))
    week.study()
    # Tuesday: one more institution, which was expected on Monday.
    week.calendar.days = 1
    week.study(week.enrol_late, coming=LATE)
    week.study()
    week.study()
    # Wednesday: a party's database is down. One line says so, and the others go on. Then it is up again.
    week.calendar.days = 2
    week.database.kill()
    line = week.typist.type("collegium party check cedar/party.toml", status=DataError.exit_status)
    assert week.down in line and line.count("\n") == 1
    week.here.remove("cedar")
    for _ in range(3):
        week.study()
    week.study(week.fail_and_come_back, coming="cedar")
    # Thursday: an institution leaves.
    week.calendar.days = 3
    week.typist.type(f"{PROVISION} --revoke birch")
    week.here.remove("birch")
    for _ in range(3):
        week.study()
    # Friday: another one is added.
    week.calendar.days = 4
    week.study(week.add, coming=ADDED)
    week.study()
    week.study()
    # Saturday: the certificates of Monday have expired. On Sunday that of Tuesday has.
    week.calendar.days = 5
    week.renew("ash", "cedar", "oak")
    week.study()
    week.calendar.days = 6
    week.renew(LATE)
    while week.studies < 20:
        week.study()
    # The books.
    ledger, owner = Path("consortium/ledger.sqlite"), Path("consortium/coordinator/certificate.pem")
    with Ledger.read(ledger) as held:
        unit, spent = held.units()[0], held.epsilon()
        charged = {str(entry.terms.mechanism["name"]) for entry in held.entries() if entry.terms.mechanism}
    assert charged == MECHANISMS
    coordinator = read_subject(read_certificate(owner.read_bytes()))
    assert coordinator.not_after - utc_now() > RENEW_BEFORE, "the coordinator renewed its own as the days went by"
    found = verify(ledger, coordinator.signing_key)
    least, most = found.bounds(*unit)
    assert 0.0 < least <= spent <= most < float("inf")
    assert f"{epsilon_text(spent)} spent for one record" in week.typist.type("collegium study list consortium.toml")
    week.verified(ledger, owner)
    answered = {}
    for name in (*FIRST, LATE, ADDED):
        config = PartyConfig.read(Path(name) / "party.toml")
        for chain in ("party", "record"):
            week.verified(config.folder / FILE, config.credentials / "certificate.pem", chain)
        shown = week.shown(name)
        assert shown["record_epsilon_of_all_answers"] > 0.0
        assert shown["ledger_head_shown"] in found.heads, "the chain that this party followed"
        assert (shown["certificate_days_left"] < 0) == (name == "birch"), "who left may still read its account"
        answered[name] = shown["queries_answered"]
    largest = {name: sum(QUERIES[study % 4] for study in week.attended[name]) for name in answered}
    # A round that was asked before, such as the one sum of all records, has its answer and counts once.
    assert all(0 < answered[name] <= largest[name] for name in answered)
    assert answered["ash"] == answered["oak"] == max(answered.values()), "these two missed no study"
