"""status.json in the consortium's folder: the newest snapshot, always whole, and no trace of what went wrong."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from support.snapshots import snapshot
from support.waiting import PATIENCE_S

from collegium.coordinator.watching import live_state
from collegium.coordinator.watching.live_state import kept_current
from collegium.errors import LedgerCorrupt


class Shown:
    """Shows ``now``, and tells when it was asked ``looks`` times."""

    def __init__(self) -> None:
        self.now: dict[str, Any] | Exception = snapshot()
        self.looks = threading.Semaphore(0)

    def __call__(self) -> dict[str, Any]:
        self.looks.release()
        if isinstance(self.now, Exception):
            raise self.now
        return self.now

    def wait(self, looks: int) -> None:
        for _ in range(looks):
            assert self.looks.acquire(timeout=PATIENCE_S)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    monkeypatch.setattr(live_state, "WRITTEN_EVERY_S", 0.01)
    return Shown()


def test_the_file_is_the_snapshot_and_at_the_end_the_last_one(shown: Shown, tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    with kept_current(path, shown):
        shown.wait(2)
        assert json.loads(path.read_text()) == snapshot()
        shown.now = snapshot(state="finished")
        shown.now["privacy"]["units"]["party"]["spent"] = float("inf")
    held = json.loads(path.read_text())
    assert held["state"] == "finished" and held["privacy"]["units"]["party"]["spent"] == "inf"
    assert [file.name for file in tmp_path.iterdir()] == ["status.json"]


def test_nothing_is_written_while_only_the_time_passes(shown: Shown, tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    with kept_current(path, shown):
        shown.wait(2)
        before = path.stat()
        later = snapshot(at="2026-03-03T14:09:00Z")
        later["phase"]["seconds_left"] = 4
        shown.now = later
        shown.wait(5)
    assert path.stat().st_mtime_ns == before.st_mtime_ns and path.stat().st_ino == before.st_ino


def test_what_cannot_be_read_is_logged_once_and_the_file_stays(
    shown: Shown, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "status.json"
    with caplog.at_level(logging.ERROR), kept_current(path, shown):
        shown.wait(2)
        shown.now = LedgerCorrupt("ledger.sqlite: entry 17 was changed")
        shown.wait(5)
    assert json.loads(path.read_text()) == snapshot()
    assert [record.getMessage() for record in caplog.records] == ["ledger.sqlite: entry 17 was changed"]
