"""Where a ledger's entries are kept: one append-only SQLite table, durable at every commit.

This room knows SQLite and nothing of budgets. Write-ahead log with full synchronisation: a commit has
returned only when its bytes are on the disk. One writer at a time across processes.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from collegium.errors import LedgerCorrupt, StorageError
from collegium.privacy.ledger.chain import Head, Row
from collegium.privacy.ledger.witness import Witness

BUSY_TIMEOUT_S = 60.0
"""How long a writer waits for the others; a transaction takes milliseconds."""

_RETRY_S = 0.01
_SCHEMA = (
    "CREATE TABLE {}entries (seq INTEGER PRIMARY KEY, body BLOB NOT NULL, hash BLOB NOT NULL, signature BLOB NOT NULL)"
    " STRICT",
    "CREATE TABLE {}checkpoint (one INTEGER PRIMARY KEY, state BLOB NOT NULL, signature BLOB NOT NULL) STRICT",
    "CREATE TABLE {}witnesses (party TEXT PRIMARY KEY, key BLOB NOT NULL, head TEXT NOT NULL, signature BLOB NOT NULL, "
    "agreed TEXT NOT NULL) STRICT",
)

_ALL = "SELECT seq, body, hash, signature FROM {0}entries WHERE seq"
ROWS = f"{_ALL} < 0 UNION ALL {_ALL} >= ? ORDER BY seq LIMIT ?"
"""The entries from one on, and such as no honest ledger has. With OR in place of UNION SQLite reads the whole table."""


_WHOLE = "BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"
_PART = "SAVEPOINT part", "RELEASE part", "ROLLBACK TO part"


class EntryStore:
    """The rows of one ledger. Every method raises StorageError or LedgerCorrupt for what SQLite reports.

    Parameters
    ----------
    chain : what the names of its tables begin with, where a file holds other things or several ledgers.
    lock : held by whoever uses the connection; those that share a connection share it. Then the file is closed by its
        owner, and `close` does nothing.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, chain: str = "", lock: "threading.RLock | None" = None
    ) -> None:
        self.path, self.lock = path, lock or threading.RLock()
        self._connection, self._shared = connection, lock is not None
        self._chain = f"{chain}_" if chain else ""

    @classmethod
    def open(cls, path: Path, on_connect: Callable[[sqlite3.Connection], None] | None = None) -> "EntryStore":
        """Open ``path`` to write, making a file where there is none."""
        return cls(path, connected(path, on_connect))

    @classmethod
    def read(cls, path: Path, chain: str = "") -> "EntryStore":
        """Open an existing file to look at it."""
        if not path.is_file():
            raise StorageError(f"no ledger at {path}; give the path of a run's ledger.sqlite")
        # A copy on a medium that cannot be written has no write-ahead log, and nobody to wait for.
        still = not path.with_name(path.name + "-wal").exists() and not os.access(path.parent, os.W_OK)
        with _reported(path):
            connection = _connect(f"{path.resolve().as_uri()}?{'immutable=1' if still else 'mode=ro'}")
        store = cls(path, connection, chain)
        try:
            if not store._has_table():
                named = f"no ledger {chain!r}, or" if chain else "no"
                raise StorageError(f"{path} has {named} entries yet; start its owner first")
        except BaseException:
            connection.close()
            raise
        return store

    def begin(self) -> bool:
        """Make the tables where there are none, and tell whether there were none.

        Call it inside ``writing`` and let the first row follow, so that both become durable together: a
        table without rows is a damaged ledger, not a new one.
        """
        if self._has_table():
            return False
        for table in _SCHEMA:
            self._done(table)
        return True

    def rows(self, from_seq: int = 0, at_most: int = -1) -> list[Row]:
        """Rows from ``from_seq`` on, in order, as of one moment; all of them where ``at_most`` is -1."""
        return [Row(*row) for row in self._done(ROWS, from_seq, at_most)]

    def holds(self, head: Head) -> bool:
        """Whether this entry is there, with this hash."""
        rows = self.rows(head.seq, 1)
        return bool(rows) and (rows[0].seq, rows[0].hash) == (head.seq, head.hash)

    def checkpoint(self) -> tuple[bytes, bytes] | None:
        """State and signature as `keep` was given them, or as somebody has changed them since."""
        rows = self._done("SELECT state, signature FROM {}checkpoint")
        return rows[0] if rows else None

    def keep(self, state: bytes, signature: bytes) -> None:
        """Put this checkpoint in the place of the one before, inside ``writing``."""
        self._done("INSERT OR REPLACE INTO {}checkpoint VALUES (1, ?, ?)", state, signature)

    def witnesses(self) -> dict[str, Witness]:
        """What each party signed last, as the file has it."""
        rows = self._done("SELECT party, key, head, signature, agreed FROM {}witnesses ORDER BY party")
        return {party: Witness(*signed) for party, *signed in rows}

    def keep_witness(self, party: str, witness: Witness) -> None:
        """Put this in the place of what the party signed before, inside ``writing``."""
        self._done("INSERT OR REPLACE INTO {}witnesses VALUES (?, ?, ?, ?, ?)", party, *witness)

    def insert(self, row: Row) -> None:
        """Add one row, inside ``writing``."""
        insert = "INSERT INTO {}entries (seq, body, hash, signature) VALUES (?, ?, ?, ?)"
        self._done(insert, row.seq, row.body, row.hash, row.signature)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction, alone among all writers: all of it is durable afterwards, or nothing of it.

        Within another one on the same connection it is a part of that: undone alone where it fails, durable with it.
        """
        begin, keep, undo = _PART if self._connection.in_transaction else _WHOLE
        self._done(begin)
        try:
            yield
            self._done(keep)
        except BaseException:
            if self._connection.in_transaction:
                self._done(undo)
                if undo is _PART[2]:
                    self._done(keep)
            raise

    def _done(self, statement: str, *values: object) -> list[Any]:
        """The rows that a statement gives; {} in it is what the names of this ledger's tables begin with."""
        with _reported(self.path):
            return self._connection.execute(statement.format(self._chain), values).fetchall()

    def _has_table(self) -> bool:
        wanted = f"{self._chain}entries" if self._chain else ""
        ((found,),) = self._done("SELECT count(*) FROM sqlite_master WHERE ? IN ('', name)", wanted)
        return bool(found)

    def close(self) -> None:
        """Let go of the file, unless it is another's."""
        if not self._shared:
            with _reported(self.path):
                self._connection.close()


def connected(path: Path, on_connect: Callable[[sqlite3.Connection], None] | None = None) -> sqlite3.Connection:
    """A connection to write ``path`` by, made where there is none; StorageError or LedgerCorrupt.

    Only its owner's account may read the file. A commit has returned only when its bytes are on the disk.
    """
    with _reported(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # SQLite's own files beside it take over its mode
        connection = _connect(str(path))
    try:
        with _reported(path):
            if on_connect is not None:
                on_connect(connection)
            _use_write_ahead_log(connection)
            connection.execute("PRAGMA synchronous=FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(address: str) -> sqlite3.Connection:
    # Threads share the connection; the ledger's own lock keeps them apart.
    return sqlite3.connect(
        address, uri=address.startswith("file:"), timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch modes; SQLite does not wait by itself when another process is switching the same new file."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)
            continue
        if mode != "wal":
            raise StorageError(f"this file system cannot hold a ledger (SQLite stays in {mode} mode); use a local disk")
        return


def copy_ledger(path: Path, to: Path) -> None:
    """Copy a ledger that may be in use; the errors of opening one."""
    with _reported(path), closing(sqlite3.connect(path)) as held, closing(sqlite3.connect(to)) as copy:
        held.backup(copy)


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Turn what SQLite and the system report into errors that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        code = None if code is None else code & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            raise StorageError(f"the ledger {path} stays locked by another process; stop that one first") from None
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            raise LedgerCorrupt(f"{path} is damaged or no ledger ({error}); restore it from a backup") from None
        raise StorageError(f"the ledger {path} cannot be read or written: {error}") from None
    except UnicodeDecodeError:  # SQLite quotes the damaged text in its complaint, and Python cannot read that
        raise LedgerCorrupt(f"{path} is damaged or no ledger; restore it from a backup") from None
    except OSError as error:
        raise StorageError(f"the ledger {path} cannot be read or written: {error.strerror}") from None
