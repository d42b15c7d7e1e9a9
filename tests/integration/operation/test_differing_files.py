"""docs/differing-files.md as its readers follow it: five institutions whose files differ, from `init` to predictions.

The commands run in this process, each coordinator and party in a thread of its own.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from support.pages import ROOT, blocks_of, commands_of, text_of_page
from support.typist import Typist, reachable, typing
from support.waiting import PATIENCE_S

from collegium.coordinator.run.run_folder import read_run
from collegium.errors import DataError
from collegium.parties.answer_book import FILE
from collegium.privacy.ledger.ledger import Ledger

PAGE = text_of_page("differing-files.md")
WRITE, INIT, CHECK, PROVISION, SERVE, ENROL, PARTY_CHECK, PARTY_SERVE, PREDICT = commands_of(PAGE)
SETTINGS = dict(zip(("birch", "cedar", "oak"), blocks_of(PAGE, "toml"), strict=True))
NAMES = ("ash", "birch", "cedar", "oak", "yew")
OWN = {"NAMES": ",".join(NAMES), "--group PERSON": "--one-row-each"}
"""What every institution types itself into its line."""
PROPOSED = {
    "birch": r'separator = ";"(.|\n)*classes = \{ "\w+" = "\?"',
    "cedar": r'"ON FOOT" = "on foot".*"fever" = \{ "[01]" = "\?"',
    "oak": r'absent = "missing"',
}
"""What `party check` proposes before the settings of the page are there."""


@pytest.fixture
def typist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Typist]:
    monkeypatch.chdir(tmp_path)
    with typing(capsys) as typist:
        yield typist


@pytest.mark.slow
def test_five_institutions_whose_files_differ_come_to_predictions(typist: Typist) -> None:
    assert WRITE == "python wards.py"
    exec((ROOT / "examples" / "wards.py").read_text(encoding="utf-8"), {})
    assert CHECK in typist.type(INIT)
    settings = Path("consortium.toml")
    for port, free in typist.ports.items():
        settings.write_text(settings.read_text().replace(port, free))
    assert PROVISION in typist.type(CHECK)
    printed = typist.type(PROVISION)
    assert printed.endswith(f"Next: {SERVE}\n")
    coordinator = typist.begin("coordinator", SERVE)
    reachable(int(typist.ports["7444"]))
    parties = []
    for name in NAMES:
        line = next(line for line in printed.splitlines() if f" --name {name} " in line)
        label = "Verbleib" if name == "birch" else "outcome"
        written = ENROL.replace("Verbleib", "COLUMN")
        for word, typed in OWN.items():
            written = written.replace(typed, word)
        assert re.sub(r"(?<=--code )\S+|(?<=--fingerprint )\S+", "", line).split() == [
            word.replace("7444", typist.ports["7444"]).replace("birch.csv", "FILE").replace("birch", name)
            for word in written.split()
            if word not in ("CODE", "SHA256")
        ]
        said = typist.type(line, FILE=f"{name}.csv", COLUMN=label, **OWN)
        assert PARTY_CHECK.replace("birch", name) in said and PARTY_SERVE.replace("birch", name) in said
        if name in SETTINGS:
            found = typist.type(PARTY_CHECK, status=0 if name == "cedar" else DataError.exit_status, birch=name)
            assert re.search(PROPOSED[name], found), found
            with (Path(name) / "party.toml").open("a", encoding="utf-8") as file:
                file.write(SETTINGS[name])
        found = typist.type(PARTY_CHECK, birch=name)
        assert "no known category" not in found and found.endswith(f"next: {PARTY_SERVE.replace('birch', name)}\n")
        assert ("no record is of the class intensive" in found) == (name == "yew")
        parties.append(typist.begin(name, PARTY_SERVE, birch=name))
    coordinator.join(PATIENCE_S)
    assert typist.ended.get("coordinator") == 0
    for thread in parties:
        thread.join(PATIENCE_S)
    assert typist.ended == dict.fromkeys(("coordinator", *NAMES), 0)
    run = read_run(Path("consortium/run"))
    assert run.state == "finished" and run.evaluation is not None and run.evaluation.measures is not None
    with Ledger.read(Path("consortium/ledger.sqlite")) as ledger:
        assert f"ε = {ledger.epsilon():.2f} for a patient" in PAGE
        # Every party was shown the ledger as it grew: an older copy of it would be noticed.
        for name in NAMES:
            with closing(sqlite3.connect(Path(name) / "state" / FILE)) as book:
                assert book.execute("SELECT head FROM head").fetchall() == [(str(ledger.head()),)]
    typist.type(PREDICT)
    made = pd.read_csv("predictions.csv")
    assert len(made) == 100 and {"patient", "outcome", "probability_intensive"} <= set(made.columns)
    # 0.73 on average over the noise, with a standard deviation of 0.02; always "ward" has 0.46.
    assert (made["prediction"] == made["outcome"]).mean() > 0.55
