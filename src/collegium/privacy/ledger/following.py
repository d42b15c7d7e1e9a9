"""The file of a ledger, followed: every look first checks and takes in what others appended."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from collegium.errors import LedgerCorrupt
from collegium.limits import MAX_LEDGER_TERMS_BYTES
from collegium.privacy.ledger.chain import Chain, Entry, Head
from collegium.privacy.ledger.entry import Settings
from collegium.privacy.ledger.store import EntryStore
from collegium.privacy.ledger.witness import Witness


class FollowedLedger:
    """A ledger's entries as they stand in its file. Safe for threads and processes."""

    def __init__(self, store: EntryStore) -> None:
        self.path = store.path
        self._store = store
        self._lock = store.lock
        self._chain = Chain()

    @classmethod
    def read(cls, path: Path, signed: Sequence[str] = (), chain: str = "") -> Self:
        """Open an existing ledger to look at it; raises StorageError where there is none, LedgerCorrupt.

        ``signed`` are heads whose signatures were checked already, that of the first entry first. ``chain`` names one
        of several ledgers in a file; see `EntryStore`.
        """
        ledger = cls(EntryStore.read(path, chain))
        ledger._chain = Chain(signed)
        try:
            _ = ledger.settings
        except BaseException:
            ledger.close()
            raise
        return ledger

    def close(self) -> None:
        """Let go of the file. Everything was already durable."""
        with self._lock:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def reading(self) -> Iterator[Chain]:
        """What the entries add up to, which nobody changes until the block ends."""
        with self._lock:
            self._catch_up()
            yield self._chain

    @property
    def settings(self) -> Settings:
        """What this ledger was created with."""
        with self.reading() as chain:
            return chain.settings

    def identity(self) -> bytes:
        """The first entry's hash: it holds the time, so that a ledger made afresh has another one."""
        with self.reading() as chain:
            return chain.first

    def head(self) -> Head:
        """The last entry; print it in reports, so that an auditor can tell a shortened ledger."""
        with self.reading() as chain:
            _ = chain.settings
            assert chain.head is not None  # there are settings, hence a first entry
            return chain.head

    def require(self, head: Head) -> None:
        """LedgerCorrupt unless the ledger still holds this entry: it was cut, or an older copy took its place."""
        with self._lock:
            held = self._store.holds(head)
        if not held:
            raise LedgerCorrupt(
                f"the ledger {self.path} lacks entry {head.seq}, which it had: it was cut, or an older copy was put in "
                "its place; restore the newest one, or start in another folder"
            )

    def shown_after(self, head: Head | None, at_most: int) -> tuple[list[bytes], list[bytes]]:
        """SHA-256 of the lines of the entries after ``head``, in order, and the lines of those that state terms.

        They prove that the ledger still holds ``head``, to somebody who kept it (`chain.following`), and let them see
        what is charged. LedgerCorrupt where ``head`` is not there.
        """
        if head is not None:
            self.require(head)
        with self._lock:
            rows = self._store.rows(0 if head is None else head.seq + 1, at_most)
        digests, terms, left = list[bytes](), list[bytes](), MAX_LEDGER_TERMS_BYTES
        for row in rows:
            stated = [row.body] if json.loads(row.body)["kind"] == "terms" else []
            left -= sum(map(len, stated))
            if left < 0 and digests:
                break  # the rest is shown next
            digests.append(hashlib.sha256(row.body).digest())
            terms += stated
        return digests, terms

    def entries(self) -> Iterator[Entry]:
        """Every entry from the first; each is checked as it is read, so this may raise LedgerCorrupt."""
        with self._lock:
            rows = self._store.rows()
        chain = Chain()
        for row in rows:
            entry = chain.absorb(row)
            yield replace(entry, spent=chain.epsilon())
        chain.settle()

    def witnesses(self) -> dict[str, Witness]:
        """What each party signed last of this ledger, by name."""
        return self._store.witnesses()

    def _catch_up(self) -> None:
        """Check and take in what other processes appended."""
        head = self._chain.head
        rows = self._store.rows(0 if head is None else head.seq)
        if head is not None:
            if not rows or (rows[0].seq, rows[0].hash) != (head.seq, head.hash):
                raise LedgerCorrupt(f"entry {head.seq}: it was changed or removed while the ledger was open")
            rows = rows[1:]
        try:
            for row in rows:
                self._chain.absorb(row)
            if rows:
                self._chain.settle()
        except LedgerCorrupt:
            self._chain = Chain()
            raise
