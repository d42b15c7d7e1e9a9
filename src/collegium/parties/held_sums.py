"""The secure sums that a party takes part in, in its answer book: what each of them needs until it was opened.

A vector and its noise are kept until they are masked, the masked bytes until a list is signed, and shares of others'
secrets until the sum was opened, or for as long as the institution says. Vector and noise are in a table of their own,
which is written once, as the row of the sum is written anew at each step. Noise is drawn once, when the vector is kept:
a round has one vector, and serves once. Of a round that is over, its name stays.
"""

import json
import math
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.clock import utc_now
from collegium.errors import ProtocolViolation
from collegium.latest import Latest
from collegium.parties.answer_book import AnswerBook
from collegium.protocol.messages import Request
from collegium.protocol.question import Question
from collegium.protocol.replies import Prepared
from collegium.protocol.requests import Ask
from collegium.protocol.secure_sum import SumSetup
from collegium.protocol.secure_sum.state import PartyState
from collegium_accounting.units import IntArray

MAX_PREPARED = 8
"""Rounds of which nothing left yet; the oldest makes room for another, as nothing was counted for it."""

_COLUMNS = "run, round, question, setup, terms, left_before, state"


@dataclass(frozen=True, eq=False)
class HeldSum:
    """One round of a party.

    Parameters
    ----------
    ask : what was asked for.
    vector, noise : int64, shape ``[queries, entries]`` and ``[length]``; None once they are masked, where they were not
        asked for, or without noise.
    setup : what its sum was begun under; None before.
    left_before : which of the inputs had left before it began, shape ``[queries]``; None where nothing is counted.
    """

    run_id: str
    round_id: str
    ask: Ask
    vector: IntArray | None
    noise: IntArray | None
    setup: SumSetup | None = None
    left_before: NDArray[np.bool_] | None = None
    state: PartyState | None = None


class HeldSums:
    """Keeps the sums of a party.

    Parameters
    ----------
    book : its policy says for how long what was not opened is kept.
    draw : the party's share of the noise for a question, ``[length]``; None where the coordinator adds the noise.
    """

    def __init__(
        self, book: AnswerBook, draw: Callable[[Question], IntArray | None], clock: Callable[[], datetime] = utc_now
    ) -> None:
        self._book, self._draw, self._clock = book, draw, clock
        self._setups: Latest[bytes, SumSetup] = Latest(MAX_PREPARED)
        self._asks: Latest[tuple[str, str], Ask] = Latest(1)

    def prepare(self, request: Request, body: Ask, answer: Callable[[], NDArray[Any]]) -> Prepared:
        """Keep the counts that ``answer`` returns, and the noise for them; a round that is kept already keeps both.

        Raises
        ------
        ProtocolViolation
            If the round was prepared for another request.
        """
        key, asked = (request.run_id, body.round_id), request.fingerprint()
        with self._book.changing() as database:
            known = database.execute("SELECT asked FROM sums WHERE run = ? AND round = ?", key).fetchone()
        if known is None:
            counts = answer().astype(np.int64)
            share = self._draw(body.question)
            sum_ = (*key, asked, request.to_bytes(), len(counts), self._clock().isoformat())
            numbers = (*key, _packed(counts), None if share is None else _packed(share))
            with self._book.changing() as database:
                added = database.execute(
                    "INSERT OR IGNORE INTO sums (run, round, asked, question, queries, began) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    sum_,
                )
                if added.rowcount:
                    database.execute("INSERT INTO numbers VALUES (?, ?, ?, ?)", numbers)
                self._make_room(database)
            self._asks.of(key, lambda: body)
        elif known != (asked,):
            # Two vectors summed in one round would show their difference.
            raise ProtocolViolation(f"round {body.round_id} was prepared for other queries: use a fresh id")
        return Prepared(body.round_id)

    def of(self, run_id: str, round_id: str) -> HeldSum:
        """The round that was prepared under this name; ProtocolViolation without one, and where its sum was begun."""
        found = self._find("run = ? AND round = ?", run_id, round_id, numbers=True)
        if found is None or found.vector is None:
            raise ProtocolViolation(f"no answer is prepared for round {round_id[:128]}: ask for it first")
        if found.setup is not None:
            raise ProtocolViolation(f"round {round_id[:128]} was begun before: a round id serves once")
        return found

    def under(self, setup: bytes, *, numbers: bool) -> HeldSum | None:
        """The round whose sum has this set-up, with its ``numbers`` or not; None where there is none, or it is over."""
        found = self._find("setup = ?", setup, numbers=numbers)
        return None if found is None or found.state is None else found

    def begin(self, held: HeldSum, state: PartyState) -> None:
        """Keep the first step of the sum of a round that `of` gave, within the same change."""
        assert held.setup is not None and held.vector is not None
        setup, left = held.setup, held.left_before
        begun = setup.digest, json.dumps(setup.about()), None if left is None else left.tobytes(), state.to_bytes()
        vector, key = _packed(held.vector), (held.run_id, held.round_id)
        with self._book.changing() as database:
            database.execute(
                "UPDATE sums SET setup = ?, terms = ?, left_before = ?, state = ? WHERE run = ? AND round = ?",
                (*begun, *key),
            )
            database.execute(
                "UPDATE numbers SET vector = ? WHERE run = ? AND round = ? AND vector != ?", (vector, *key, vector)
            )
        self._setups.of(setup.digest, lambda: setup)

    def keep(self, held: HeldSum, state: PartyState, *, masked: bool) -> None:
        """Keep what the next step needs; the vector and its noise only until they are ``masked``."""
        key = held.run_id, held.round_id
        with self._book.changing() as database:
            database.execute("UPDATE sums SET state = ? WHERE run = ? AND round = ?", (state.to_bytes(), *key))
            if masked:
                database.execute("DELETE FROM numbers WHERE run = ? AND round = ?", key)

    def settle(self, setups: Iterable[bytes]) -> None:
        """Forget the secrets of sums that were opened: the coordinator says that their results are kept."""
        with self._book.changing() as database:
            forgotten = [self._forget(database, "state IS NOT NULL AND setup = ?", setup) for setup in setups]
        if any(forgotten):
            self._book.erase()

    def _make_room(self, database: sqlite3.Connection) -> None:
        """Forget the oldest rounds of which nothing left, and all that were kept for long enough."""
        oldest = (self._clock() - self._book.sums_kept).isoformat()
        self._forget(database, "began < ?", oldest)
        waiting = database.execute(
            "SELECT sums.rowid FROM sums JOIN numbers USING (run, round) "
            "ORDER BY began DESC, sums.rowid DESC LIMIT -1 OFFSET ?",
            (MAX_PREPARED,),
        ).fetchall()
        for (row,) in waiting:
            self._forget(database, "rowid = ?", row)

    def _forget(self, database: sqlite3.Connection, which: str, value: object) -> int:
        """Leave of these rounds the name alone; it is never prepared again. Returns how many there were."""
        rounds = f"SELECT run, round FROM sums WHERE {which}"
        database.execute(f"DELETE FROM numbers WHERE (run, round) IN ({rounds})", (value,))
        changed = database.execute(
            f"UPDATE sums SET question = NULL, terms = NULL, left_before = NULL, state = NULL WHERE {which}", (value,)
        )
        return changed.rowcount

    def _find(self, which: str, *values: object, numbers: bool) -> HeldSum | None:
        kept: tuple[bytes, bytes | None] | None = None
        with self._book.changing() as database:
            row = database.execute(f"SELECT {_COLUMNS} FROM sums WHERE {which}", values).fetchone()
            if row is None or row[2] is None:
                return None
            run_id, round_id, question, digest, terms, left, state = row
            if numbers:
                found = database.execute(
                    "SELECT vector, noise FROM numbers WHERE run = ? AND round = ?", (run_id, round_id)
                )
                kept = found.fetchone()
        ask = self._asks.of((run_id, round_id), lambda: _asked(question))
        vector, noise = kept or (None, None)
        shape = ask.question.shape
        return HeldSum(
            run_id,
            round_id,
            ask,
            None if vector is None else _unpacked(vector, shape),
            None if noise is None else _unpacked(noise, shape).reshape(-1),
            None if terms is None else self._setups.of(digest, lambda: SumSetup.of(json.loads(terms))),
            None if left is None else np.frombuffer(left, dtype=np.bool_),
            None if state is None else PartyState.from_bytes(state),
        )


def _packed(numbers: NDArray[Any]) -> bytes:
    """Whole numbers in four bytes each where all fit, else in eight."""
    narrow = numbers.astype(np.int32)
    return (narrow if np.array_equal(narrow, numbers) else numbers.astype(np.int64)).tobytes()


def _unpacked(kept: bytes, shape: tuple[int, int]) -> IntArray:
    """What `_packed` gave of numbers of this shape, as int64."""
    return np.frombuffer(kept, dtype=f"i{len(kept) // math.prod(shape)}").astype(np.int64).reshape(shape)


def _asked(question: bytes) -> Ask:
    body = Request.from_bytes(question).body
    assert isinstance(body, Ask)
    return body
