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


@dataclass(frozen=True)
class LastAnswered:
    """The records with which a party last answered, and the day."""

    known: RecordsKnown
    day: str

    def compared(self, now: RecordsKnown) -> str | None:
        """That the records changed since, and what follows; None where they are the same."""
        if now == self.known:
            return None
        return (
            f"RECORDS CHANGED since this party last answered, on {self.day}: {self.known.records} then, {now.records} "
            "now. An answer that is kept is sent again as it was, and a study that asks the same sums again gets those "
            "of then. What is asked anew, and paid anew, is answered from the records as they are now"
        )


def digest_of(task: Task) -> str:
    """Names a task."""
    return hashlib.sha256(task.model_dump_json().encode()).hexdigest()


def last_answered(database: sqlite3.Connection, task: str) -> LastAnswered | None:
    """What the answer book holds for the task of this digest; None before an answer left."""
    found = database.execute("SELECT digest, records, day FROM records WHERE task = ?", (task,)).fetchone()
    return None if found is None else LastAnswered(RecordsKnown(task, found[0], found[1]), found[2])


def changed_since(file: Path, now: RecordsKnown) -> str | None:
    """See `LastAnswered.compared`, from the answer book; None where it holds no such answer. Nothing is written.

    Raises StorageError where the book cannot be read.
    """
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'records'").fetchone():
                return None
            before = last_answered(database, now.task)
    except sqlite3.Error as error:
        raise StorageError(f"cannot read {file}: {error}; restore it from a copy") from error
    return None if before is None else before.compared(now)
