"""SQLite files that several processes may use: durable at every commit, and a change that fails leaves nothing."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from collegium.errors import StorageError

_BUSY_S = 30.0
"""How long a writer waits for the others; a change takes milliseconds."""


@contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection, within which every statement is a change by itself; StorageError where SQLite reports one."""
    try:
        with closing(sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            yield database
    except sqlite3.Error as error:
        raise StorageError(f"cannot use {path}: {error}; restore it from a copy") from error


@contextmanager
def changing(database: sqlite3.Connection, *, keep: bool = True) -> Iterator[None]:
    """One change that nobody else is in: on the disk afterwards; undone where the block raises, or unless ``keep``."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT" if keep else "ROLLBACK")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
