"""Which inputs a party has answered about: one exact sum for each, ever, which may leave again only as it was.

In the exact modes the coordinator may ask for the same answer again, as it does when a round failed. That is free where
it tells nothing new: the same counts go to the same request, among the same roster, and the party signs one list of
survivors for each input. Every other exact question about the input is refused for good, whatever its study, mechanism,
noise, teachers or features: another study reuses the labels, or has the parties add the noise.

Two lists for one input would each need the signatures of more than half of the roster and of those who collude, so an
honest party would have signed both: two exact sums of one input, whose difference shows single parties, are never
opened. All sums of sampled records about one input, of whichever stage, are opened with one list for the same reason.
They have one roster, too, since the quorums of two rosters need not meet. On a sparse graph, where a listed party may
be left out of the sum, a list counts with its round: what was signed is signed in no other round, even if that one
failed. Where the parties add noise, every answer is a new one, and is counted and paid as such.
"""

import hashlib
import sqlite3
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from collegium.errors import QueriesRefused
from collegium.parties.answers import Answer
from collegium_accounting.units import IntArray

TABLES = (
    "CREATE TABLE IF NOT EXISTS answered (subject BLOB NOT NULL, row BLOB NOT NULL, counts BLOB, "
    "times INTEGER NOT NULL, PRIMARY KEY (subject, row)) STRICT, WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS bound (subject BLOB PRIMARY KEY, roster BLOB NOT NULL, signed BLOB) "
    "STRICT, WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS agreed (agreement TEXT NOT NULL, subject BLOB NOT NULL, "
    "PRIMARY KEY (agreement, subject)) STRICT, WITHOUT ROWID",
)

_ONCE = "policy: another exact sum of an input left already: one is answered, with one list of "


class Answered:
    """The tables of what left and of what it was opened with; every change lies within a transaction of its caller.

    Parameters
    ----------
    queries : most answers altogether; None sets no limit.
    """

    def __init__(self, database: sqlite3.Connection, queries: int | None) -> None:
        self._database, self._queries = database, queries

    def total(self) -> int:
        """Answers that left, repeats in which the parties' noise was fresh included."""
        return int(self._database.execute("SELECT COALESCE(SUM(times), 0) FROM answered").fetchone()[0])

    def kept(self, asked: Answer, counts: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
        """``counts``, shape ``[queries, entries]``, but as they left before where the same answer did, and where.

        An answer that followed changed records would show the change beside the one before.
        """
        settled, left = counts.copy(), np.zeros(len(counts), dtype=bool)
        if asked.exact:
            for row, (subject, use) in enumerate(zip(asked.keys.subjects, asked.keys.rows, strict=True)):
                if (held := self._exact(subject)) is not None and held[0] == use:
                    settled[row], left[row] = np.frombuffer(held[1], dtype=np.int64), True
        return settled, left

    def new(self, asked: Answer, left_before: NDArray[np.bool_] | None = None) -> list[int]:
        """For which inputs, by number, the answer is a new one, to be counted and paid.

        Parameters
        ----------
        left_before : which of the counts are those that left before; `kept` said so when they were read.

        Raises
        ------
        QueriesRefused
            If the answer, with those of its kind to come, passes a limit of the policy, names an input twice, is a
            second exact one about an input, or was given in another round since its counts were read: these would
            leave free of charge, and may differ.
        """
        if len(set(asked.keys.subjects)) < len(asked.keys.subjects):
            raise QueriesRefused("policy: a request names one input twice: ask once for each")
        fresh = []
        for row, (subject, use) in enumerate(zip(asked.keys.subjects, asked.keys.rows, strict=True)):
            held = self._exact(subject) if asked.exact else None
            if held is None:
                fresh.append(row)
            elif held[0] != use:
                raise QueriesRefused(_ONCE + "terms and parties")
            elif left_before is not None and not left_before[row]:
                raise QueriesRefused("policy: an input was answered since this round began: begin another round")
        if any(self._bound(subject)[0] not in (None, asked.roster) for subject in _summed(asked)):
            raise QueriesRefused(_ONCE + "parties on the roster")
        before, wanted = self.total(), len(fresh) + asked.question.to_come
        if self._queries is not None and fresh and before + wanted > self._queries:
            raise QueriesRefused(
                f"policy: {before} of {self._queries} queries are answered; {wanted} more are not agreed to (queries)"
            )
        return fresh

    def take(self, asked: Answer, counts: IntArray, fresh: Sequence[int]) -> None:
        """Count an answer that leaves, shape ``[queries, entries]``; ``fresh`` as `new` found it."""
        counts = counts.astype(np.int64)
        for row in fresh:
            kept = counts[row].tobytes() if asked.exact else None
            self._database.execute(
                "INSERT INTO answered VALUES (?, ?, ?, 1) ON CONFLICT (subject, row) DO UPDATE SET times = times + 1",
                (asked.keys.subjects[row], asked.keys.rows[row], kept),
            )
        rows = ((subject, asked.roster) for subject in _summed(asked))
        self._database.executemany("INSERT OR IGNORE INTO bound VALUES (?, ?, NULL)", rows)

    def sign(self, asked: Answer, signed: bytes) -> None:
        """Bind an exact answer that left to the list ``signed`` that it is opened with.

        Raises
        ------
        QueriesRefused
            If it was bound to another list.
        """
        for subject in _summed(asked):
            roster, held = self._bound(subject)
            if roster != asked.roster or held not in (None, signed):
                raise QueriesRefused(_ONCE + "parties that open it")
            self._database.execute("UPDATE bound SET signed = ? WHERE subject = ?", (signed, subject))

    def agree(self, asked: Answer, signed: bytes) -> None:
        """Note that the party agreed to the release of an answer's rows; the same rows again are no further ones.

        Noise of the parties is drawn anew in each sum: there they are the same only under one ``signed`` list.
        """
        drawn = b"" if asked.exact else hashlib.sha256(signed).digest()
        rows = ((asked.agreement, subject + drawn) for subject in asked.keys.subjects)
        self._database.executemany("INSERT OR IGNORE INTO agreed VALUES (?, ?)", rows)

    def agreed(self) -> dict[str, int]:
        """Rows that the party agreed to have released, by agreement."""
        return dict(self._database.execute("SELECT agreement, COUNT(*) FROM agreed GROUP BY agreement").fetchall())

    def _exact(self, subject: bytes) -> tuple[bytes, bytes] | None:
        """The exact answer about an input that left: what it depended on, and its counts."""
        found = self._database.execute(
            "SELECT row, counts FROM answered WHERE subject = ? AND counts IS NOT NULL", (subject,)
        ).fetchone()
        return None if found is None else (found[0], found[1])

    def _bound(self, subject: bytes) -> tuple[bytes | None, bytes | None]:
        """The roster and the signed list of exact sums of ``subject``, None where there is none yet."""
        found = self._database.execute("SELECT roster, signed FROM bound WHERE subject = ?", (subject,)).fetchone()
        return (None, None) if found is None else (found[0], found[1])


def _summed(asked: Answer) -> Sequence[bytes]:
    """What the parties are noted for that an answer is summed with."""
    return [*asked.keys.subjects, *asked.keys.samples] if asked.roster else []
