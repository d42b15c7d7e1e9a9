"""A party's part in secure sums: its prepared answer enters the sum of its round and is used for nothing else.

Which counts, how many of them and with how much noise follow from the question that the party answered with
``Prepared``; the coordinator's proposal for the sum must agree with it.

What a sum needs until it was opened is in the answer book: a vector and its noise until they are masked, the masked
bytes until a list is signed, and shares of others' secrets until the sum was opened, or for as long as the institution
says. Vector and noise are in a table of their own, which is written once, as the row of the sum is written anew at each
step. Noise is drawn once, when the vector is kept: a round has one vector, and serves once. Of a round that is over,
its name stays.
"""

import json
import math
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.clock import utc_now
from collegium.errors import ProtocolViolation, UnnamedParties
from collegium.latest import Latest
from collegium.parties.answer_book import AnswerBook
from collegium.parties.answers import Answer
from collegium.parties.policy import described
from collegium.protocol.messages import Request
from collegium.protocol.question import Question
from collegium.protocol.replies import Prepared, SecureSumAnswer
from collegium.protocol.requests import Ask, SecureSumStep
from collegium.protocol.secure_sum import PartySum, Phase, SumSetup, accept_parameters
from collegium.protocol.secure_sum.errors import InsufficientPlan
from collegium.protocol.secure_sum.groups import group_of
from collegium.protocol.secure_sum.messages import phase_of
from collegium.protocol.secure_sum.state import PartyState
from collegium.protocol.v1 import secure_sum_pb2 as pb
from collegium_accounting.noise.sources import source_of
from collegium_accounting.units import IntArray

MAX_PREPARED = 8
"""Rounds of which nothing left yet; the oldest makes room for another, as nothing was counted for it."""


@dataclass(frozen=True, eq=False)
class Membership:
    """A party's identity and the roster of a secure sum.

    Parameters
    ----------
    consortium : its name, part of everything that is signed.
    roster : Ed25519 public key of every party, as this institution knows it; may change between rounds.
    sign : signs with this party's own Ed25519 identity.
    collusion_fraction : the share of the parties that this institution wants to be safe from.
    vouched : of how many parties it is a share, at least; the roster's own number may be of the operator's making.
    random_bytes : source of the secrets of one phase of a round, given both names; the operating system's unless
        simulated.
    unnamed : the parties for whom the coordinator's newest roster was refused.
    noise_seed : for research: this party's noise follows from it, its name and the question, and protects nobody. None,
        as anybody with records of real persons has it, draws from the operating system.
    """

    consortium: str
    roster: Mapping[str, bytes]
    sign: Callable[[bytes], bytes] = field(repr=False)
    collusion_fraction: float = 0.1
    vouched: int = 0
    random_bytes: Callable[[str], Callable[[int], bytes]] = field(default=lambda _: os.urandom, repr=False)
    unnamed: Callable[[], tuple[str, ...]] = field(default=tuple, repr=False)
    noise_seed: int | None = field(default=None, repr=False)


Asked = Callable[[str, Question, Mapping[str, bytes]], Answer | None]
"""What the book is asked for an answer of a run, summed over a roster; None counts nothing (simulations)."""
OnLeaving = Callable[[str, Ask], None]
"""Called with the run and what was asked; what it raises keeps the answer here."""


@dataclass(frozen=True, eq=False)
class HeldSum:
    """One round of a party.

    Parameters
    ----------
    key : its run and its own name.
    ask : what was asked for.
    setup : what its sum was begun under; None before.
    left_before : which of the inputs had left before it began, shape ``[queries]``; None where nothing is counted.
    state : what the steps of its sum so far left; None before the first.
    vector, noise : int64, shape ``[queries, entries]`` and ``[length]``; None once they are masked, where they were not
        asked for, or without noise.
    """

    key: tuple[str, str]
    ask: Ask
    setup: SumSetup | None
    left_before: NDArray[np.bool_] | None
    state: PartyState | None
    vector: IntArray | None
    noise: IntArray | None


class SecureSums:
    """Prepares answers, and answers the phases of their sums; each step is in the book before its reply leaves.

    Parameters
    ----------
    membership : who the party is among the others; None where it only prepares answers.
    book : keeps the sums, and counts and charges what it is ``asked`` for. Its policy says for how long what was not
        opened is kept.
    leave : called before a masked vector leaves.
    """

    def __init__(
        self,
        name: str,
        membership: Membership | None,
        book: AnswerBook,
        asked: Asked,
        leave: OnLeaving,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._name, self._membership = name, membership
        self._book, self._asked, self._leave, self._clock = book, asked, leave, clock
        self._setups: Latest[bytes, SumSetup] = Latest(MAX_PREPARED)
        self._asks: Latest[tuple[str, str], Ask] = Latest(1)

    def prepare(self, request: Request, answer: Callable[[], NDArray[Any]]) -> Prepared:
        """Keep the counts that ``answer`` returns, and the noise for them; a round that is kept already keeps both.

        Raises
        ------
        ProtocolViolation
            If the round was prepared for another request.
        """
        ask = request.body
        assert isinstance(ask, Ask)
        key, asked = (request.run_id, ask.round_id), request.fingerprint()
        with self._book.changing() as database:
            known = database.execute("SELECT asked FROM sums WHERE run = ? AND round = ?", key).fetchone()
        if known is None:
            counts = answer().astype(np.int64)
            noise = _noise_for(ask.question, self._name, self._membership)
            sum_ = (*key, asked, request.to_bytes(), len(counts), self._clock().isoformat())
            numbers = (*key, _packed(counts), None if noise is None else _packed(noise))
            with self._book.changing() as database:
                added = database.execute(
                    "INSERT OR IGNORE INTO sums (run, round, asked, question, queries, began) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    sum_,
                )
                if added.rowcount:
                    database.execute("INSERT INTO numbers VALUES (?, ?, ?, ?)", numbers)
                self._make_room(database)
            self._asks.of(key, lambda: ask)
        elif known != (asked,):
            # Two vectors summed in one round would show their difference.
            raise ProtocolViolation(f"round {ask.round_id} was prepared for other queries: use a fresh id")
        return Prepared(ask.round_id)

    def of(self, run_id: str, round_id: str) -> HeldSum:
        """The round that was prepared under this name; ProtocolViolation without one, and where its sum was begun."""
        held = self._find("sums.run = ? AND sums.round = ?", run_id, round_id)
        if held is None or held.vector is None:
            raise ProtocolViolation(f"no answer is prepared for round {round_id[:128]}: ask for it first")
        if held.setup is not None:
            raise ProtocolViolation(f"round {round_id[:128]} was begun before: a round id serves once")
        return held

    def __call__(self, request: Request) -> SecureSumAnswer:
        """The reply to one step of a sum."""
        assert isinstance(request.body, SecureSumStep) and self._membership is not None
        step = request.body.message
        phase = phase_of(step)
        with self._book.changing() as database:
            held = self._find("setup = ?", step.setup, numbers=phase is Phase.MASK)
            if held is None and phase is Phase.ADVERTISE:
                held = self._begin(request.run_id, step.advertise_keys.parameters, self._membership)
            if held is None or held.setup is None or held.setup.digest != step.setup:
                raise ProtocolViolation("this party takes no part in that sum: begin with a new round")
            running = PartySum(
                held.setup,
                self._name,
                self._membership.sign,
                None if held.vector is None else held.vector.reshape(-1),
                held.noise,
                self._membership.random_bytes(f"{held.setup.round_id}/{phase.name}"),
                held.state,
            )
            reply = SecureSumAnswer(running.handle(step))
            if running.state is held.state:
                return reply
            if phase >= Phase.MASK:
                self._count(held, held.setup, phase, running)
                database.execute("DELETE FROM numbers WHERE run = ? AND round = ?", held.key)
            state = running.state.to_bytes()
            database.execute("UPDATE sums SET state = ? WHERE run = ? AND round = ?", (state, *held.key))
        if phase in (Phase.MASK, Phase.SIGN):
            self._book.erase()
        return reply

    def _count(self, held: HeldSum, setup: SumSetup, phase: Phase, running: PartySum) -> None:
        """Count and charge a vector that leaves, and bind it to the list that is signed."""
        asked = self._asked(held.key[0], held.ask.question, setup.roster)
        if phase is Phase.MASK:
            assert held.vector is not None  # it is kept until it is masked
            if asked is not None:
                self._book.leave(asked, held.vector, held.left_before)
            self._leave(held.key[0], held.ask)
        elif phase is Phase.SIGN and asked is not None:
            self._book.sign(asked, running.opened if asked.exact else running.signed)

    def settle(self, setups: Iterable[bytes]) -> None:
        """Forget the secrets of sums that were opened: the coordinator says that their results are kept."""
        with self._book.changing() as database:
            forgotten = [self._forget(database, "state IS NOT NULL AND setup = ?", setup) for setup in setups]
        if any(forgotten):
            self._book.erase()

    def _begin(self, run_id: str, parameters: pb.SumParameters, member: Membership) -> HeldSum:
        """The round whose sum begins, with what it is begun under, which is kept."""
        if parameters.consortium != member.consortium:
            raise ProtocolViolation(f"a sum of the consortium {parameters.consortium[:64]!r} is not ours")
        if names := member.unnamed():
            raise UnnamedParties(UnnamedParties.text + ", ".join(names))
        # All that collude may sit in this party's group.
        colluding = member.collusion_fraction * max(len(member.roster), member.vouched)
        roster = group_of(member.roster, parameters.groups, self._name, parameters.left_out)
        demanded = colluding / max(1, len(roster))
        setup = accept_parameters(parameters, roster, collusion_fraction=demanded)
        held = self.of(run_id, setup.round_id)
        question, vector, left = held.ask.question, held.vector, None
        assert vector is not None  # it is kept until it is masked
        if setup.length != vector.size:
            raise ProtocolViolation(f"a sum of {setup.length} entries does not fit the round's {vector.size} counts")
        if (setup.low, setup.high) != (question.low, question.high):
            # Another range would tell, by a value that does not fit, how large this party's own are.
            raise ProtocolViolation(f"a sum of values up to {setup.high} is not what this round's answers need")
        _check_noise(question, setup)
        if (asked := self._asked(run_id, question, roster)) is not None:
            vector, left = self._book.kept(asked, vector)
        begun = setup.digest, json.dumps(setup.about()), None if left is None else left.tobytes()
        packed = _packed(vector)
        with self._book.changing() as database:
            database.execute(
                "UPDATE sums SET setup = ?, terms = ?, left_before = ? WHERE run = ? AND round = ?", (*begun, *held.key)
            )
            database.execute(
                "UPDATE numbers SET vector = ? WHERE run = ? AND round = ? AND vector != ?", (packed, *held.key, packed)
            )
        self._setups.of(setup.digest, lambda: setup)
        return replace(held, setup=setup, vector=vector, left_before=left)

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

    def _find(self, which: str, *values: object, numbers: bool = True) -> HeldSum | None:
        """The round that this is true of, with its ``numbers`` or not; None without one, and where it is over."""
        read = "numbers.vector, numbers.noise" if numbers else "NULL, NULL"  # a million take longer than all else
        with self._book.changing() as database:
            row = database.execute(
                f"SELECT run, round, question, setup, terms, left_before, state, {read} "
                f"FROM sums LEFT JOIN numbers USING (run, round) WHERE {which}",
                values,
            ).fetchone()
        if row is None or row[2] is None:
            return None
        run_id, round_id, question, digest, terms, left, state, vector, noise = row
        key = run_id, round_id
        ask = self._asks.of(key, lambda: _asked(question))
        shape = ask.question.shape
        return HeldSum(
            key,
            ask,
            None if terms is None else self._setups.of(digest, lambda: SumSetup.of(json.loads(terms))),
            None if left is None else np.frombuffer(left, dtype=np.bool_),
            None if state is None else PartyState.from_bytes(state),
            None if vector is None else _unpacked(vector, shape),
            None if noise is None else _unpacked(noise, shape).reshape(-1),
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


def _check_noise(question: Question, setup: SumSetup) -> None:
    """Refuse a sum that has no room for the noise which the terms of the round promise, or less than they say of it.

    The terms state how many honest parties' shares make up the noise; the graph of the sum decides it.
    """
    described(question)  # refuses what the party does not answer
    share = question.share
    if share is None:
        if setup.groups > 1:
            raise InsufficientPlan(
                "sums of groups need the noise of their parties: exact ones show more than one of all"
            )
        if setup.noise_reach:
            raise ProtocolViolation("room for noise in a round whose terms know of none")
        if not setup.plan.complete and (question.per_stage or question.several_sums):
            # In a sparse graph a listed party can be left out of one of several sums: the difference is its own.
            raise InsufficientPlan("several sums about the same records need the parties' noise or the complete graph")
        return
    if share.honest_survivors > setup.plan.honest_survivors:
        raise ProtocolViolation("the terms count on more honest parties than the graph of the sum gives")
    if setup.noise_reach != share.reach(setup.plan.parties, setup.length):
        raise ProtocolViolation("the room left for noise does not follow from the terms")


def _noise_for(question: Question, name: str, member: Membership | None) -> IntArray | None:
    """The share of the noise that the party called ``name`` adds, ``[length]``; None where the coordinator adds it."""
    described(question)  # refuses what the party does not answer
    share, seed = question.share, None if member is None else member.noise_seed
    rows, entries = question.shape
    if share is None or seed is None:
        return None if share is None else share.draw(rows * entries, source_of(None))
    # Each query has noise of its own, so that it is the same however a run is cut into batches or resumed.
    terms, inputs = question.terms, question.queries
    asked = repr((terms.mechanism, sorted(terms.parameters.items()), terms.stage, question.asked.hex()))
    queries = [""] if inputs is None else [f"{inputs.pool_sha256}:{index}" for index in inputs.indices]
    return np.concatenate([share.draw(entries, source_of(seed, name, asked, query)) for query in queries])
