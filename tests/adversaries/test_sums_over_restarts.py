"""Parties whose processes die between any two phases of a secure sum: the sum is opened, once, with what it was."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.liar import AtHand, keys_of, roster_of
from support.party_requests import KEY, LINEAR

from collegium.clock import utc_now
from collegium.data import Examples, PoolStore
from collegium.data.task import ImageInputs, Task
from collegium.parties import summing
from collegium.parties.answer_book import FILE, AnswerBook
from collegium.parties.known_ledger import KnownLedger
from collegium.parties.party import Party
from collegium.parties.policy import Policy, PolicyConfig
from collegium.parties.summing import Membership, SecureSums
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium.protocol.messages import Request
from collegium.protocol.question import PoolRange, QuestionTerms
from collegium.protocol.replies import Failure, Prepared
from collegium.protocol.requests import Ask, SecureSumStep, ShowLedger
from collegium.protocol.secure_sum import CoordinatorSum, Phase, SumSetup, plan_graph
from collegium.protocol.secure_sum.messages import pack_set
from collegium.protocol.secure_sum.state import PartyState

pytestmark = pytest.mark.slow

NAMES = ("alpha", "beta", "gamma", "delta", "epsilon")
KEYS = keys_of(NAMES)
ROSTER = roster_of(KEYS)
PLAN = plan_graph(len(NAMES), 0.2, 0.1)
TASK = Task(classes=("a", "b"), inputs=ImageInputs(height=4, width=4))
POLICY = PolicyConfig(minimum_noise_votes=1.0, queries=100)
X = np.random.default_rng(5).integers(0, 16, (10, 4, 4, 1)).astype(np.uint8)
QUERIES = len(X)


def records(number: int) -> Examples:
    rng = np.random.default_rng(number)
    return Examples(rng.integers(0, 16, (40, 4, 4, 1)).astype(np.uint8), rng.integers(0, 2, 40))


class Consortium:
    """Five parties as their folders leave them, and one sum of their votes."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.folder, self.pools = folder, PoolStore(None)
        self.inputs = PoolRange(self.pools.put(X).sha256, tuple(range(QUERIES)))
        self.books: dict[str, AnswerBook] = {}
        self.request = self.votes(mode)
        self.restart()
        self.running = self.sum_of(self.request)

    def votes(self, mode: str, round_id: str = "round-1") -> Ask:
        stage, honest = ("release", PLAN.honest_survivors) if mode == "masked+noised" else ("", 0)
        terms = QuestionTerms("gnmax", {"sigma": 40.0}, "replace", mode, stage, honest)
        return Ask(round_id, CastVotes(terms, "ledger", LINEAR, self.inputs, 2))

    def sum_of(self, request: Ask) -> CoordinatorSum:
        share = request.question.share
        reach = 0 if share is None else share.reach(len(NAMES), 2 * QUERIES)
        setup = SumSetup("ours", request.round_id, ROSTER, 2 * QUERIES, 0, request.question.high, PLAN, reach)
        return CoordinatorSum(setup)

    def restart(self) -> None:
        """Every process dies, and another one goes on from its folder."""
        for book in self.books.values():
            book.close()
        self.books = {name: AnswerBook(self.folder / name, name, POLICY, None) for name in NAMES}
        self.hub = AtHand({name: self._party(number, name) for number, name in enumerate(NAMES)})

    def _party(self, number: int, name: str) -> Party:
        return Party(
            name,
            records(number),
            TASK,
            folder=self.folder / name,
            pools=self.pools,
            split_key=KEY,
            policy=Policy(POLICY),
            account=self.books[name],
            membership=Membership("ours", ROSTER, KEYS[name].sign),
            ledger=KnownLedger(self.books[name]),
        )

    def prepare(self, request: Ask | None = None) -> None:
        replies = self.hub.ask(dict.fromkeys(NAMES, request or self.request))
        assert all(isinstance(reply, Prepared) for reply in replies.values()), replies

    def step(self) -> dict[str, Any]:
        """What the parties say to the phase's requests; nothing is passed on."""
        return self.hub.ask({name: SecureSumStep(message) for name, message in self.running.requests().items()})

    def go_on(self) -> dict[str, bytes]:
        """Pass one phase on; the replies' bytes."""
        replies = self.step()
        assert not any(isinstance(reply, Failure) for reply in replies.values()), replies
        for name, reply in replies.items():
            self.running.accept(name, reply.message)
        self.running.close_phase()
        return {name: reply.message.SerializeToString(deterministic=True) for name, reply in replies.items()}

    def advance(self, until: Phase) -> None:
        while self.running.phase is not until:
            self.go_on()


@pytest.fixture
def consortium(tmp_path: Path) -> Callable[[str], Consortium]:
    return lambda mode: Consortium(tmp_path, mode)


@pytest.mark.parametrize("mode", ["masked", "masked+noised"])
def test_a_sum_is_opened_whose_parties_die_before_every_phase_and_whose_replies_are_all_lost_once(
    consortium: Callable[[str], Consortium], mode: str
) -> None:
    """The request that comes again finds what was computed: the same bytes, nothing counted or charged anew."""
    parties = consortium(mode)
    parties.prepare()
    for _ in range(5):
        parties.restart()
        lost = {name: reply.message.SerializeToString(deterministic=True) for name, reply in parties.step().items()}
        parties.restart()
        assert parties.go_on() == lost
    total = parties.running.result.total.reshape(QUERIES, 2)
    if mode == "masked":
        assert (total.sum(axis=1) == len(NAMES) * LINEAR.per_party).all()
    assert {book.queries_answered() for book in parties.books.values()} == {QUERIES}
    assert len({book.spent() for book in parties.books.values()}) == 1


@pytest.mark.parametrize("mode", ["masked", "masked+noised"])
def test_a_second_list_is_refused_after_a_restart_too_and_the_first_is_opened(
    consortium: Callable[[str], Consortium], mode: str
) -> None:
    parties = consortium(mode)
    parties.prepare()
    parties.advance(Phase.SIGN)
    parties.step()
    parties.restart()
    other = next(iter(parties.running.requests().values()))
    bitmap = other.sign_survivors.survivors
    other.sign_survivors.survivors = pack_set(np.arange(PLAN.quorum), len(NAMES))
    assert other.sign_survivors.survivors != bitmap
    refused = parties.hub.ask(dict.fromkeys(NAMES[:2], SecureSumStep(other)))
    assert {reply.code for reply in refused.values()} == {"secure-sum-asked-twice"}
    other.sign_survivors.survivors = bitmap
    parties.advance(Phase.DONE)
    assert parties.running.result.survivors == tuple(sorted(NAMES))


def test_a_list_of_fewer_than_the_noise_counts_on_is_signed_by_nobody_and_a_quorum_opens_the_whole_one(
    consortium: Callable[[str], Consortium], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "PLAN", PLAN.of_all)
    assert PLAN.quorum == 4 and PLAN.honest_survivors == len(NAMES) - PLAN.colluding
    parties = consortium("masked+noised")
    parties.prepare()
    parties.advance(Phase.SIGN)
    other = next(iter(parties.running.requests().values()))
    whole = other.sign_survivors.survivors
    for away in range(len(NAMES)):
        left = [number for number in range(len(NAMES)) if number != away]
        other.sign_survivors.survivors = pack_set(np.array(left), len(NAMES))
        refused = parties.hub.ask(dict.fromkeys(NAMES, SecureSumStep(other)))
        assert {reply.code for reply in refused.values()} == {"secure-sum-too-few-survivors"}
    other.sign_survivors.survivors = whole
    for _ in range(2):  # one party stays away for good
        replies = parties.step()
        for name in NAMES[1:]:
            if name in replies:
                parties.running.accept(name, replies[name].message)
        parties.running.close_phase()
    assert parties.running.phase is Phase.DONE and len(parties.running.result.survivors) == len(NAMES)


def test_a_round_has_one_vector_and_one_draw_of_noise_however_often_it_is_prepared_and_begun(
    consortium: Callable[[str], Consortium],
) -> None:
    """Two sums of one round, or one vector under two draws of noise, would show their difference."""
    parties = consortium("masked+noised")
    parties.prepare()
    before = [kept(book) for book in parties.books.values()]
    parties.restart()
    parties.prepare()
    assert [kept(book) for book in parties.books.values()] == before
    parties.advance(Phase.SHARE)
    parties.restart()
    other, plan = parties.sum_of(parties.request).requests(), plan_graph(len(NAMES), 0.0, 0.1)
    for message in other.values():
        message.setup = bytes(32)
        message.advertise_keys.parameters.quorum = plan.quorum
        message.advertise_keys.parameters.threshold = plan.threshold
    refused = parties.hub.ask({name: SecureSumStep(message) for name, message in other.items()})
    assert all("a round id serves once" in getattr(reply, "message", "") for reply in refused.values())
    parties.advance(Phase.DONE)
    parties.prepare()  # the same round, once more: it is over
    late = parties.sum_of(parties.request)
    replies = parties.hub.ask({name: SecureSumStep(one) for name, one in late.requests().items()})
    assert {getattr(reply, "code", "") for reply in replies.values()} == {"secure-sum-asked-twice"}


def kept(book: AnswerBook) -> tuple[bytes, bytes]:
    """The vector of the one round that is not masked yet, and its noise."""
    with closing(sqlite3.connect(book.path)) as database:
        ((vector, noise),) = database.execute("SELECT vector, noise FROM numbers").fetchall()
    return vector, noise


def test_the_numbers_of_a_round_are_read_where_it_begins_and_where_they_are_masked_alone(
    consortium: Callable[[str], Consortium], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, unpacked = list[Phase](), summing._unpacked

    def counted(*packed: Any) -> Any:
        read.append(parties.running.phase)
        return unpacked(*packed)

    parties = consortium("masked+noised")
    parties.prepare()
    monkeypatch.setattr(summing, "_unpacked", counted)
    parties.advance(Phase.DONE)
    assert sorted(read) == sorted([Phase.ADVERTISE, Phase.MASK] * 2 * len(NAMES)), "a vector and its noise"


def test_the_vector_of_a_sum_that_an_older_version_began_is_summed(consortium: Callable[[str], Consortium]) -> None:
    parties = consortium("masked+noised")
    parties.prepare()
    path = parties.books[NAMES[0]].path
    with closing(sqlite3.connect(path)) as database, database:  # as it kept them
        numbers = database.execute("SELECT vector, noise, run, round FROM numbers").fetchall()
        database.executemany("UPDATE sums SET vector = ?, noise = ? WHERE run = ? AND round = ?", numbers)
        database.execute("DELETE FROM numbers")
    parties.restart()
    assert kept(parties.books[NAMES[0]]) == numbers[0][:2]
    parties.advance(Phase.MASK)
    with closing(sqlite3.connect(path)) as database:
        assert not database.execute("SELECT round FROM sums WHERE vector IS NOT NULL").fetchall()
    parties.advance(Phase.DONE)


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_a_folder_holds_no_vector_and_no_noise_once_they_were_masked_and_no_own_secret(
    consortium: Callable[[str], Consortium],
) -> None:
    parties = consortium("masked+noised")
    parties.prepare()
    secrets = {name: kept(book) for name, book in parties.books.items()}
    parties.advance(Phase.MASK)
    folder = parties.folder / NAMES[0]
    with closing(sqlite3.connect(folder / FILE)) as database:
        (state,) = database.execute("SELECT state FROM sums").fetchone()
    seed = PartyState.from_bytes(state).self_seed
    assert len(seed) == 32
    searched = (*secrets[NAMES[0]], seed)
    assert all(secret in files(folder) for secret in searched), "else the search would find nothing anyway"
    parties.go_on()
    assert not any(secret in files(folder) for secret in searched)
    parties.advance(Phase.DONE)


def test_no_list_is_signed_while_the_ledger_that_was_shown_is_refused(consortium: Callable[[str], Consortium]) -> None:
    parties = consortium("masked")
    parties.prepare()
    parties.advance(Phase.SIGN)
    entries = tuple(bytes([number]) * 32 for number in range(4))
    assert parties.hub.ask({NAMES[0]: ShowLedger("", entries[:2])})[NAMES[0]].head.startswith("1:")
    assert isinstance(parties.hub.ask({NAMES[0]: ShowLedger("", entries[2:])})[NAMES[0]], Failure)
    assert parties.step()[NAMES[0]].code == "refused-ledger"
    head = str(parties.books[NAMES[0]].head()[0])
    assert not isinstance(parties.hub.ask({NAMES[0]: ShowLedger(head, entries[2:])})[NAMES[0]], Failure)
    parties.advance(Phase.DONE)


@pytest.mark.parametrize("ended", ["settled", "kept for long enough"])
def test_of_a_sum_that_is_over_the_name_alone_stays(consortium: Callable[[str], Consortium], ended: str) -> None:
    parties = consortium("masked")
    parties.prepare()
    parties.advance(Phase.UNMASK)
    book = parties.books[NAMES[0]]
    of_book = partial(SecureSums, NAMES[0], None, book, lambda *_: None, lambda *_: None)
    if ended == "settled":
        of_book().settle([parties.running.setup.digest])
    else:
        later, other = utc_now() + timedelta(days=POLICY.sums_kept_days + 1), parties.votes("masked", "round-2")
        counts = np.zeros((QUERIES, 2), dtype=np.int64)
        of_book(lambda: later).prepare(Request("r", "run-1", other), lambda: counts)
    reply = parties.step()[NAMES[0]]
    assert isinstance(reply, Failure) and "no part in that sum" in reply.message
    with closing(sqlite3.connect(book.path)) as database:
        left = database.execute("SELECT question, terms, state FROM sums WHERE round = 'round-1'").fetchall()
        assert left == [(None, None, None)]
        assert not database.execute("SELECT round FROM numbers WHERE round = 'round-1'").fetchall()
    assert not isinstance(parties.step()[NAMES[1]], Failure)


def test_rounds_that_never_left_make_room_and_those_that_left_stay(consortium: Callable[[str], Consortium]) -> None:
    parties = consortium("masked")
    parties.prepare()
    parties.advance(Phase.SIGN)
    for number in range(2, 14):
        parties.prepare(parties.votes("masked", f"round-{number}"))
    with closing(sqlite3.connect(parties.books[NAMES[0]].path)) as database:
        (waiting,) = database.execute("SELECT COUNT(*) FROM numbers").fetchone()
    assert waiting == 8
    parties.advance(Phase.DONE)
