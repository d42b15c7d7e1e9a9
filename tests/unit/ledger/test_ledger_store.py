"""What happens to the file itself: torn writes, damage, other files in its place, other processes holding it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collegium.errors import LedgerCorrupt, StorageError
from collegium.privacy.ledger import store as ledger_store
from collegium.privacy.ledger.entry import Terms
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify

OpenLedger = Callable[..., Ledger]


def fill(ledger: Ledger, batches: int = 4) -> None:
    done = len(ledger.labels())
    for batch in range(done, done + batches):
        paid = ledger.charge("release", [f"pool:{batch}"])
        ledger.release(paid, {f"pool:{batch}": 1})


def test_a_log_torn_at_any_byte_leaves_a_whole_shorter_ledger(open_ledger: OpenLedger, tmp_path: Path) -> None:
    with open_ledger() as ledger:
        fill(ledger)
        live = ledger._store.path
        log = live.with_name(live.name + "-wal").read_bytes()
        hashes = [entry.hash for entry in ledger.entries()]
        torn = tmp_path / "torn" / "ledger.sqlite"
        torn.parent.mkdir()
        lengths = []
        for size in range(0, len(log) + 1, 211):  # 211 is coprime to the log's frames of 4,120 bytes
            shutil.copyfile(live, torn)
            torn.with_name(torn.name + "-wal").write_bytes(log[:size])
            torn.with_name(torn.name + "-shm").unlink(missing_ok=True)
            try:
                with Ledger.read(torn) as rest:
                    found = [entry.hash for entry in rest.entries()]
            except StorageError:  # torn before the first entry
                found = []
            assert found == hashes[: len(found)]
            lengths.append(len(found))
    assert lengths == sorted(lengths)
    whole = {length for length in range(len(hashes) + 1) if length != 1}  # settings and terms become durable together
    assert set(lengths) == whole - ({len(hashes)} if len(log) % 211 else set())


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_either_noticed_or_says_the_same(
    open_ledger: OpenLedger, path: Path, tmp_path: Path, data: st.DataObject
) -> None:
    if not path.exists():
        with open_ledger() as ledger:
            fill(ledger)
    whole = verify(path)
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(content)
    try:
        with Ledger.read(damaged) as ledger:
            assert ledger.queries_charged() == sum(charged for _, charged in whole.periods)
            assert ledger.labels() == whole.labels
        assert verify(damaged) == whole
    except (LedgerCorrupt, StorageError):
        pass


@pytest.mark.parametrize("name", [b"tableentriesentries", b"table\xffntries\xffntries"])
def test_a_schema_that_is_no_text_is_called_damaged(open_ledger: OpenLedger, path: Path, name: bytes) -> None:
    """SQLite quotes the name, which may be no text either."""
    open_ledger().close()
    held = path.read_bytes().replace(b"CREATE TABLE entries", b"\xffREATE \xffABLE entries")
    path.write_bytes(held.replace(b"tableentriesentries", name))
    for look in (open_ledger, lambda: Ledger.read(path)):
        with pytest.raises(LedgerCorrupt, match="damaged or no ledger"):
            look()


@pytest.mark.parametrize("content", [b"index,label\n0,1\n" * 100, b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_file_that_is_no_ledger_is_called_damaged(open_ledger: OpenLedger, path: Path, content: bytes) -> None:
    path.write_bytes(content)
    for look in (open_ledger, lambda: Ledger.read(path)):
        with pytest.raises(LedgerCorrupt, match="damaged or no ledger"):
            look()


def test_another_database_is_not_taken_for_a_ledger(open_ledger: OpenLedger, path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE recipes (name)")
    for look in (open_ledger, lambda: Ledger.read(path)):
        with pytest.raises(LedgerCorrupt, match="damaged or no ledger"):
            look()


def test_an_emptied_table_is_not_taken_for_a_new_ledger(open_ledger: OpenLedger, path: Path) -> None:
    open_ledger().close()
    with closing(sqlite3.connect(path)) as vandal:
        vandal.execute("DELETE FROM entries")
        vandal.commit()
    for look in (open_ledger, lambda: Ledger.read(path)):
        with pytest.raises(LedgerCorrupt, match="first entry is missing"):
            look()


def test_looking_at_a_missing_ledger_does_not_create_one(path: Path) -> None:
    with pytest.raises(StorageError, match="no ledger at"):
        Ledger.read(path)
    assert not path.exists()


def test_a_creation_cut_short_is_taken_up_again(open_ledger: OpenLedger, path: Path) -> None:
    path.touch()
    with pytest.raises(StorageError, match="no entries yet"):
        Ledger.read(path)
    with open_ledger() as ledger:
        fill(ledger)
        assert len(verify(path).labels) == len(ledger.labels()) == 4


@pytest.mark.parametrize("place", [lambda folder: folder / "file" / "ledger.sqlite", lambda folder: folder])
def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path: Path, place: Callable[[Path], Path]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be read or written"):
        Ledger.open(place(tmp_path), signer=None, delta=1e-5, terms=Terms(), name="")


def test_a_ledger_held_by_another_process_says_so(
    open_ledger: OpenLedger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_ledger().close()
    monkeypatch.setattr(ledger_store, "BUSY_TIMEOUT_S", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="locked by another process"):
            open_ledger()


def test_each_commit_waits_for_the_disk(open_ledger: OpenLedger) -> None:
    connections: list[sqlite3.Connection] = []
    with open_ledger(on_connect=connections.append):
        assert connections[0].execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connections[0].execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_a_ledger_that_no_crash_can_be_survived_in_is_not_opened() -> None:
    """Where SQLite has no write-ahead log, as on some network disks; here in memory."""
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(StorageError, match="stays in memory mode"):
        ledger_store._use_write_ahead_log(connection)


def test_only_another_process_that_switches_modes_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*codes: int) -> Any:
        left = list(codes)

        def execute(_: str) -> Any:
            if not left:
                return SimpleNamespace(fetchone=lambda: ("wal",))
            error = sqlite3.OperationalError()
            error.sqlite_errorcode = left.pop(0)
            raise error

        return SimpleNamespace(execute=execute, left=left)

    monkeypatch.setattr(ledger_store, "_RETRY_S", 0.0)
    busy = failing(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_RECOVERY)
    ledger_store._use_write_ahead_log(busy)
    assert not busy.left
    with pytest.raises(sqlite3.OperationalError):
        ledger_store._use_write_ahead_log(failing(sqlite3.SQLITE_READONLY))
    monkeypatch.setattr(ledger_store, "BUSY_TIMEOUT_S", -1.0)
    with pytest.raises(sqlite3.OperationalError):
        ledger_store._use_write_ahead_log(failing(sqlite3.SQLITE_BUSY))


def test_a_reader_sees_what_a_writer_adds(open_ledger: OpenLedger, path: Path) -> None:
    with open_ledger() as writer, Ledger.read(path) as reader:
        fill(writer)
        assert reader.labels() == writer.labels()
        assert reader.head() == writer.head()
        with pytest.raises(StorageError, match="readonly"):
            reader.charge("release", 1)


def test_a_charge_does_not_read_the_whole_ledger(open_ledger: OpenLedger) -> None:
    """How SQLite finds the entries from one on: by their numbers. A scan would make charging quadratic."""
    connections: list[sqlite3.Connection] = []
    with open_ledger(on_connect=connections.append):
        steps = [
            row[3] for row in connections[0].execute(f"EXPLAIN QUERY PLAN {ledger_store.ROWS.format('')}", (1, -1))
        ]
    assert any("SEARCH entries" in step for step in steps) and not any("SCAN" in step for step in steps)
