"""Whether an institution's records are those that it last answered with: for itself alone, nothing of it is sent.

A digest of the records as the task encodes them is kept in the answer book, with an answer that leaves, so that a file
that was only saved again or sorted otherwise counts as the same.
"""

import hashlib
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collegium.data import Examples
from collegium.data.task import Task
from collegium.errors import StorageError

TABLE = (
    "CREATE TABLE IF NOT EXISTS records (task TEXT PRIMARY KEY, digest BLOB NOT NULL, records INTEGER NOT NULL, "
    "day TEXT NOT NULL) STRICT"
)
_BLOCK = 4096


@dataclass(frozen=True)
class RecordsKnown:
    """The records of one task.

    Parameters
    ----------
    task : digest of the task that they are encoded for.
    digest : of the records, whatever their order.
    records : how many.
    """

    task: str
    digest: bytes
    records: int

    @classmethod
    def of(cls, examples: Examples, task: Task) -> "RecordsKnown":
        """The records of a party; reads each of them once."""
        groups = [""] * len(examples) if examples.groups is None else examples.groups.tolist()
        labels, each = examples.labels(), []
        for start in range(0, len(examples), _BLOCK):
            block = np.ascontiguousarray(examples.x[start : start + _BLOCK])
            each += [
                hashlib.sha256(f"{group}\0{label}\0".encode() + row.tobytes()).digest()
                for row, label, group in zip(block, labels[start:].tolist(), groups[start:], strict=False)
            ]
        return cls(digest_of(task), hashlib.sha256(b"".join(sorted(each))).digest(), len(examples))


def digest_of(task: Task) -> str:
    """Names a task."""
    return hashlib.sha256(task.model_dump_json().encode()).hexdigest()


def changed(database: sqlite3.Connection, now: RecordsKnown) -> str | None:
    """That the records changed since the answer book says that some answered for their task, and what follows.

    None where they are the same, or none answered yet.
    """
    found = database.execute("SELECT digest, records, day FROM records WHERE task = ?", (now.task,)).fetchone()
    if found is None or found[:2] == (now.digest, now.records):
        return None
    return (
        f"RECORDS CHANGED since this party last answered, on {found[2]}: {found[1]} then, {now.records} now. An answer "
        "that is kept is sent again as it was, and a study that asks the same sums again gets those of then. What is "
        "asked anew, and paid anew, is answered from the records as they are now"
    )


def changed_since(file: Path, now: RecordsKnown) -> str | None:
    """See `changed`; ``file`` is the answer book. Nothing is written.

    Raises StorageError where the book cannot be read.
    """
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'records'").fetchone():
                return None
            return changed(database, now)
    except sqlite3.Error as error:
        raise StorageError(f"cannot read {file}: {error}; restore it from a copy") from error
