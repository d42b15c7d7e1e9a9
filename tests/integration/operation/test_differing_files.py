"""docs/differing-files.md as its readers follow it: five institutions whose files differ, from `init` to predictions.

The commands run in this process, each coordinator and party in a thread of its own.
"""

from __future__ import annotations

import logging
import re
import shlex
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd
import pytest
from support.pages import ROOT, blocks_of, commands_of, text_of_page
from support.ports import free_ports

from collegium.cli import main
from collegium.coordinator.run.run_folder import read_run
from collegium.errors import DataError
from collegium.privacy.ledger.ledger import Ledger

PAGE = text_of_page("differing-files.md")
WRITE, INIT, CHECK, PROVISION, SERVE, ENROL, PARTY_CHECK, PARTY_SERVE, PREDICT = commands_of(PAGE)
SETTINGS = dict(zip(("birch", "cedar", "oak"), blocks_of(PAGE, "toml"), strict=True))
NAMES = ("ash", "birch", "cedar", "oak", "yew")
PROPOSED = {
    "birch": r'separator = ";"(.|\n)*classes = \{ "\w+" = "\?"',
    "cedar": r'"ON FOOT" = "on foot".*"fever" = \{ "[01]" = "\?"',
    "oak": r'absent = "missing"',
}
"""What `party check` proposes before the settings of the page are there."""
PATIENCE_S = 240.0


class Typist:
    """Types commands of the page, with the ports of this test."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.ports = dict(zip(("7443", "7444"), map(str, free_ports(2)), strict=True))
        self.ended: dict[str, object] = {}

    def _words(self, command: str, changed: Mapping[str, str]) -> list[str]:
        for word, other in {**self.ports, **changed}.items():
            command = command.replace(word, other)
        return shlex.split(command)[1:]

    def type(self, command: str, *, refused: bool = False, **changed: str) -> str:
        """Run a command to its end; what it printed."""
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(self._words(command, changed))
        out, err = self._capsys.readouterr()
        assert ended.value.code == (DataError.exit_status if refused else 0), err
        return str(out)

    def begin(self, name: str, command: str, **changed: str) -> threading.Thread:
        """Run a command in a thread; ``ended`` then has its exit status."""

        def run() -> None:
            try:
                main(self._words(command, changed))
            except SystemExit as ended:
                self.ended[name] = ended.code

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread


@pytest.fixture
def typist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Typist]:
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield Typist(capsys)
    root.handlers[:] = handlers
    root.setLevel(level)


def reachable(port: int) -> None:
    """Wait until something listens there."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        with socket.socket() as trial:
            if trial.connect_ex(("localhost", port)) == 0:
                return
        time.sleep(0.02)  # between two looks at the condition
    raise AssertionError("the coordinator does not listen")


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
        assert re.sub(r"(?<=--code )\S+|(?<=--fingerprint )\S+", "", line).split() == [
            word.replace("7444", typist.ports["7444"]).replace("birch.csv", "FILE").replace("birch", name)
            for word in ENROL.replace("Verbleib", "COLUMN").split()
            if word not in ("CODE", "SHA256")
        ]
        said = typist.type(line, FILE=f"{name}.csv", COLUMN=label)
        assert PARTY_CHECK.replace("birch", name) in said and PARTY_SERVE.replace("birch", name) in said
        if name in SETTINGS:
            found = typist.type(PARTY_CHECK, refused=name != "cedar", birch=name)
            assert re.search(PROPOSED[name], found), found
            with (Path(name) / "party.toml").open("a", encoding="utf-8") as file:
                file.write(SETTINGS[name])
        found = typist.type(PARTY_CHECK, birch=name)
        assert "no known category" not in found and found.endswith(f"next: {PARTY_SERVE.replace('birch', name)}\n")
        assert ("no record is of the class intensive" in found) == (name == "yew")
        parties.append(typist.begin(name, PARTY_SERVE, birch=name))
    for thread in (coordinator, *parties):
        thread.join(PATIENCE_S)
    assert typist.ended == dict.fromkeys(("coordinator", *NAMES), 0)
    run = read_run(Path("consortium/run"))
    assert run.state == "finished" and run.evaluation is not None and run.evaluation.measures is not None
    with Ledger.read(Path("consortium/ledger.sqlite")) as ledger:
        assert f"ε = {ledger.epsilon():.2f} for a patient" in PAGE
    typist.type(PREDICT)
    made = pd.read_csv("predictions.csv")
    assert len(made) == 100 and {"patient", "outcome", "probability_intensive"} <= set(made.columns)
    # 0.73 on average over the noise, with a standard deviation of 0.02; always "ward" has 0.46.
    assert (made["prediction"] == made["outcome"]).mean() > 0.55
