"""What an operator with the files in hand does to a coordinator that was killed, and how it is undone."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chaos.faults import Kind

_LEDGER, _RECORD = "ledger.sqlite", "run.json"


@dataclass(frozen=True)
class OlderCopy:
    """Ledger and run.json as they were after so many ``rounds``."""

    rounds: int
    ledger: bytes
    record: str


@dataclass(frozen=True)
class Edit:
    """Files that were changed, what the coordinator must say of it, and the files as they were."""

    kind: Kind
    word: str
    settings: Path
    settings_text: str
    run: Path

    @property
    def aside(self) -> Path:
        return self.run.with_name("run-as-it-was")

    def undo(self) -> None:
        self.settings.write_text(self.settings_text, encoding="utf-8")
        shutil.rmtree(self.run)
        _move_ledger(self.aside, self.run.parent)
        self.aside.rename(self.run)


def _move_ledger(source: Path, target: Path) -> None:
    """Put the files of a ledger in the place of those in another folder."""
    for path in target.glob(f"{_LEDGER}*"):
        path.unlink()
    for path in source.glob(f"{_LEDGER}*"):
        shutil.move(path, target / path.name)


def keep(run: Path, rounds: int) -> OlderCopy:
    """Copy the files of a coordinator that runs; the ledger is at least as new as run.json."""
    record = (run / _RECORD).read_text(encoding="utf-8")
    with closing(sqlite3.connect(run.parent / _LEDGER)) as source, closing(sqlite3.connect(":memory:")) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")
        return OlderCopy(rounds, copy.serialize(), record)


def edit(kind: Kind, settings: Path, run: Path, older: OlderCopy) -> Edit:
    """Do it, under a coordinator that does not run."""
    words: dict[Kind, str] = {
        "older ledger": "LedgerCorrupt",
        "older ledger and run.json": "refused-ledger",
        "edited run.json": "LedgerCorrupt",
        "edited settings": "another mechanism",
    }
    done = Edit(kind, words[kind], settings, settings.read_text(encoding="utf-8"), run)
    shutil.copytree(run, done.aside)
    for path in run.parent.glob(f"{_LEDGER}*"):
        shutil.copy2(path, done.aside)
    if kind.startswith("older"):
        for path in run.parent.glob(f"{_LEDGER}*"):
            path.unlink()
        (run.parent / _LEDGER).write_bytes(older.ledger)
        if kind != "older ledger":
            (run / _RECORD).write_text(older.record, encoding="utf-8")
    elif kind == "edited run.json":
        record = json.loads((run / _RECORD).read_text(encoding="utf-8"))
        seq, _, digest = record["ledger"]["head"].partition(":")
        record["ledger"]["head"] = f"{seq}:{digest[::-1]}"
        (run / _RECORD).write_text(json.dumps(record), encoding="utf-8")
    else:
        settings.write_text(re.sub(r"sigma = [\d.]+", "sigma = 0.5", done.settings_text), encoding="utf-8")
    return done
