"""How often each input was answered, on disk: one answer for each, which may leave again only as it was.

In the exact modes the coordinator may ask for the same answer again, as it does when a round failed. That is free where
it tells nothing new: the same counts go to the same request, among the same roster, and the party signs one list of
survivors for each input. Another study, or another charge of a sum over all records, has noise of its own on the same
counts: the answer for it is another one.

Two lists for one input would each need the signatures of more than half of the roster and of those who collude, so an
honest party would have signed both: two exact sums of one input, whose difference shows single parties, are never
opened. Exact sums over all records, of whatever kind, are opened with one list for the same reason, and so are all sums
of sampled records about one input, by distance or by class and of whichever stage. They have one roster, too, since the
quorums of two rosters need not meet. On a sparse graph, where a listed party may be left out of the sum, a list counts
with its round: what was signed is signed in no other round, even if that one failed. Where the parties add noise, every
answer is a new one, and is counted and paid as such.
"""

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from collegium.errors import QueriesRefused
from collegium.parties.terms import mechanism_of
from collegium.protocol.requests import CastNeighbours, CastVotes, CountNearest, SumRecords, VoteRequest
from collegium.sqlite_files import changing, connected
from collegium_accounting.mechanisms import Mechanism, SumMode
from collegium_accounting.units import IntArray

_EVERY_KIND = b"exact sums over all records"
"""Stands for what such sums are about, where others are about an input."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What a request for votes asks of this party, input by input.

    Parameters
    ----------
    keys : of each input, what it is, whatever the terms: other terms on the same input are a second answer.
    uses : of each input, everything else that the answer depends on: terms, voters and, in the exact modes, roster.
    alike : names of what this answer and others tell about the same records, and the roster. Masked sums that share a
        name are opened with the same parties: the difference would show a single party.
    """

    request: VoteRequest
    mechanism: Mechanism
    keys: Sequence[bytes]
    uses: Sequence[bytes]
    alike: Sequence[tuple[bytes, bytes]]

    @classmethod
    def to(cls, run_id: str, body: VoteRequest, contents: Sequence[bytes], roster: bytes) -> "Answer":
        """The answer that ``body`` asks for within a run.

        Parameters
        ----------
        contents : names each input by what it is: a pool that was reversed, or changed in another place, holds the
            same inputs.
        roster : digest of the parties that the answer is summed with.

        Raises
        ------
        MechanismRefused, ModeRefused
            If the terms describe no mechanism that a party answers.
        """
        mechanism, terms = mechanism_of(body), body.terms
        # A mechanism with a sum for each stage needs an answer for each; sampled neighbours two, by distance and class.
        part = f"{terms.stage if mechanism.sum_per_stage else ''}:{isinstance(body, CountNearest) and body.by_class}"
        keys = [hashlib.sha256(b"%s:%s" % (row, part.encode())).digest() for row in contents]
        alike: Sequence[bytes] = []
        if terms.sum_mode == SumMode.MASKED:
            sampled = contents if isinstance(body, CountNearest) else []
            alike = [_EVERY_KIND] if isinstance(body, SumRecords) else [b"sample near %s" % row for row in sampled]
        parameters = dict(terms.parameters)
        if terms.sum_mode == SumMode.MASKED_AND_NOISED:
            # Every answer has its own noise and is paid: a party that joins or leaves stands in the way of none.
            roster, parameters["honest_survivors"] = b"", 0
        under = (
            run_id,
            terms.mechanism,
            sorted(parameters.items()),
            terms.adjacency,
            terms.sum_mode,
            terms.stage,
        )
        common = f"{under}|{_voters(body)}|".encode() + roster
        uses = [hashlib.sha256(common + _detail(body, row)).digest() for row in range(len(keys))]
        return cls(body, mechanism, keys, uses, [(name, roster) for name in alike])

    @property
    def exact(self) -> bool:
        """Whether the same answer comes out when it is asked for again; the parties' own noise is always fresh."""
        return self.request.terms.sum_mode != SumMode.MASKED_AND_NOISED


def _voters(body: VoteRequest) -> str:
    if isinstance(body, CastVotes):
        return f"{body.teacher.canonical_json()}|{body.ledger_id}"
    if isinstance(body, SumRecords):
        return f"{body.ledger_id}|{body.question.hex()}"
    kernel = body.kernel if isinstance(body, CastNeighbours) else ""
    return f"{body.features.digest()}|{kernel}|{body.ledger_id}"


def _detail(body: VoteRequest, row: int) -> bytes:
    if isinstance(body, CastNeighbours):
        return b"%d" % body.radii_squared[row]
    return body.edges_squared[row].tobytes() if isinstance(body, CountNearest) else b""


class AnswerCounts:
    """The answers that left this party.

    Parameters
    ----------
    path : of the SQLite file.
    queries : most answers altogether; None sets no limit.
    times_per_query : most answers about one input that differ.

    Raises
    ------
    StorageError
        If the file cannot be used.
    """

    def __init__(self, path: Path, queries: int | None, times_per_query: int) -> None:
        self._path, self._queries, self._times_per_query = path, queries, times_per_query
        with connected(path) as database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS answered (query BLOB NOT NULL, use BLOB NOT NULL, survivors BLOB, "
                "counts BLOB NOT NULL, times INTEGER NOT NULL, UNIQUE (query, use, survivors))"
            )

    def total(self) -> int:
        """Answers that left, repeats in which the parties' noise was fresh included."""
        with connected(self._path) as database:
            return _total(database)

    def kept(self, answer: Answer, counts: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
        """``counts``, shape ``[queries, entries]``, but as they left before where the same answer did, and where.

        An answer that followed changed records would show the change beside the one before.
        """
        settled, left = counts.copy(), np.zeros(len(counts), dtype=bool)
        if not answer.exact:
            return settled, left
        with connected(self._path) as database:
            for row, use in enumerate(zip(answer.keys, answer.uses, strict=True)):
                found = database.execute("SELECT counts FROM answered WHERE query = ? AND use = ?", use).fetchone()
                if found is not None:
                    settled[row], left[row] = np.frombuffer(found[0], dtype=np.int64), True
        return settled, left

    @contextmanager
    def leaving(
        self, answer: Answer, counts: IntArray | None, left_before: NDArray[np.bool_] | None = None
    ) -> Iterator[int]:
        """Count an answer that is about to leave; yields for how many inputs it is a new one, to be paid.

        Nothing is counted where the block raises, or where ``counts`` is None, which only asks whether it may leave.

        Parameters
        ----------
        left_before : which of the counts are those that left before; `kept` said so when they were read.

        Raises
        ------
        QueriesRefused
            If the answer passes a limit of the policy, names an input twice, or was given in another round since its
            counts were read: these would leave free of charge, and may differ.
        """
        if len(set(answer.keys)) < len(answer.keys):
            raise QueriesRefused("policy: a request names one input twice: ask once for each")
        rows = np.zeros((len(answer.keys), 0), dtype=np.int64) if counts is None else counts.astype(np.int64)
        with connected(self._path) as database, changing(database, keep=counts is not None):
            fresh, before = 0, _total(database)
            for row, (key, use) in enumerate(zip(answer.keys, answer.uses, strict=True)):
                known = database.execute("SELECT rowid FROM answered WHERE query = ? AND use = ?", (key, use))
                found = known.fetchone()
                if found is None:
                    self._require_room(database, key)
                    new = (key, use, rows[row].tobytes())
                    database.execute("INSERT INTO answered VALUES (?, ?, NULL, ?, 1)", new)
                elif left_before is not None and answer.exact and not left_before[row]:
                    raise QueriesRefused("policy: an input was answered since this round began: begin another round")
                elif not answer.exact:
                    database.execute("UPDATE answered SET times = times + 1 WHERE rowid = ?", found)
                fresh += found is None or not answer.exact
            for name, roster in answer.alike:
                if not _survivors(database, name, roster):
                    self._require_room(database, name)
                    database.execute("INSERT INTO answered VALUES (?, ?, NULL, ?, 0)", (name, roster, b""))
            self._require_total(before, fresh)
            yield fresh

    @contextmanager
    def signing(self, answer: Answer, survivors: bytes) -> Iterator[int]:
        """Bind an answer that left to the parties it is opened with; yields for how many inputs it is another sum.

        Raises
        ------
        QueriesRefused
            If it was bound to other parties, and the policy takes no further sum of the same input.
        """
        with connected(self._path) as database, changing(database):
            fresh, before = 0, _total(database)
            answers = zip(answer.keys, answer.uses, strict=True) if answer.exact else ()
            for times, (key, use) in [*((1, one) for one in answers), *((0, one) for one in answer.alike)]:
                held = _survivors(database, key, use)
                if survivors in held:
                    continue
                if None in held:
                    database.execute(
                        "UPDATE answered SET survivors = ? WHERE query = ? AND use = ? AND survivors IS NULL",
                        (survivors, key, use),
                    )
                else:
                    self._require_room(database, key)
                    again = (key, use, survivors, next(iter(held.values())), times)
                    database.execute("INSERT INTO answered VALUES (?, ?, ?, ?, ?)", again)
                    fresh += times
            self._require_total(before, fresh)
            yield fresh

    def _require_room(self, database: sqlite3.Connection, key: bytes) -> None:
        times = database.execute("SELECT COUNT(*) FROM answered WHERE query = ?", (key,)).fetchone()[0]
        if times >= self._times_per_query:
            raise QueriesRefused(
                f"policy: a query was answered {self._times_per_query} times already: a further sum of it, "
                "with other parties or noise, shows more than was agreed to"
            )

    def _require_total(self, before: int, fresh: int) -> None:
        if self._queries is not None and fresh and before + fresh > self._queries:
            raise QueriesRefused(
                f"policy: {before} of {self._queries} queries are answered; {fresh} more are not agreed to"
            )


def _survivors(database: sqlite3.Connection, query: bytes, use: bytes) -> dict[bytes | None, bytes]:
    """The lists of survivors that an answer was opened with, None where it only left so far, each with its counts."""
    return dict(database.execute("SELECT survivors, counts FROM answered WHERE query = ? AND use = ?", (query, use)))


def _total(database: sqlite3.Connection) -> int:
    return int(database.execute("SELECT COALESCE(SUM(times), 0) FROM answered").fetchone()[0])
