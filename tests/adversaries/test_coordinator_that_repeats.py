"""A coordinator that wants two sums over one input: by other pools, other terms, other survivors or another round."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collegium_reproduction.nearest.question import CountNearest
from support.liar import AtHand, Liar, keys_of, liar_over, roster_of
from support.nearest import AGREED
from support.party_requests import KEY, LINEAR, cast

from collegium.data import Examples, PoolStore, array_spec
from collegium.data.pools import contents_of
from collegium.data.task import ImageInputs, Task
from collegium.data.values import ArraySpec, PoolChunk
from collegium.errors import QueriesRefused, QuorumNotReached
from collegium.models.features import Features
from collegium.parties.answer_book import AnswerBook
from collegium.parties.answers import Answer
from collegium.parties.party import Party
from collegium.parties.policy import Policy, PolicyConfig
from collegium.parties.summing import Membership
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium.protocol.question import PoolRange, Question, QuestionTerms
from collegium.protocol.replies import Failure, Prepared
from collegium.protocol.requests import Ask, HoldPool, SecureSumStep
from collegium.protocol.secure_sum import CoordinatorSum, Phase, SumSetup

ONCE = PolicyConfig(**AGREED, minimum_noise_votes=1.0, queries=100)
RNG = np.random.default_rng(5)
X = RNG.integers(0, 16, (20, 4, 4, 1)).astype(np.uint8)
KEYS = keys_of(("alpha", "beta", "gamma", "delta", "epsilon"))
ROSTER = roster_of(KEYS)
TASK = Task(classes=("a", "b"), inputs=ImageInputs(height=4, width=4))


def votes(pool: ArraySpec, *positions: int) -> CastVotes:
    return cast(pool, positions, classes=2, sum_mode="masked")


@dataclass
class Consortium:
    """Five real parties with the default number of answers to an input, and the coordinator that lies to them."""

    folder: Path
    policy: PolicyConfig = ONCE
    pools: PoolStore = field(default_factory=lambda: PoolStore(None))
    records: dict[str, Examples] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, name in enumerate(KEYS):
            rng = np.random.default_rng(number)
            x = rng.integers(0, 16, (40, 4, 4, 1)).astype(np.uint8)
            self.records[name] = Examples(x, rng.integers(0, 2, 40))
        self.pool = self.pools.put(X)
        self.restart()

    def restart(self) -> None:
        """The parties as a restart leaves them: their folders remember, they themselves do not."""
        self.accounts = {name: AnswerBook(self.folder / name, name, self.policy, None) for name in KEYS}
        self.parties = {name: self.party(name) for name in KEYS}
        self.liar: Liar = liar_over(AtHand(self.parties), ROSTER)

    def party(self, name: str, **changes: Any) -> Party:
        options: dict[str, Any] = {
            "folder": self.folder / name,
            "policy": Policy(self.policy),
            "account": self.accounts[name],
            "membership": Membership("ours", ROSTER, KEYS[name].sign),
        }
        return Party(name, self.records[name], TASK, pools=self.pools, split_key=KEY, **options | changes)

    def ask(self, *positions: int, pool: ArraySpec | None = None, **options: Any) -> np.ndarray:
        return self.liar.total(votes(pool or self.pool, *positions), **options).counts

    def send(self, x: np.ndarray) -> tuple[ArraySpec, dict[str, str]]:
        """Send a pool to every party; its name and who refuses it."""
        spec = array_spec(x)
        self.liar.forget()
        self.liar.ask(dict.fromkeys(KEYS, HoldPool(spec)))
        self.liar.ask(dict.fromkeys(KEYS, PoolChunk(spec, 0, x.tobytes())))
        return spec, self.liar.refusals()

    def refused(self, question: Question | None = None, among: Any = None) -> dict[str, str]:
        """The parties that refuse this sum, and by which code; fails where the sum is opened."""
        self.liar.forget()
        with pytest.raises(QuorumNotReached):
            self.liar.total(question or votes(self.pool, 0, 1, 2, 3, 4), among)
        return self.liar.refusals()

    def answered(self) -> set[int]:
        return {account.queries_answered() for account in self.accounts.values()}


@pytest.fixture
def consortium(tmp_path: Path) -> Consortium:
    (tmp_path / "state").mkdir()
    for name in KEYS:
        (tmp_path / "state" / name).mkdir()
    return Consortium(tmp_path / "state")


@pytest.fixture
def asked(consortium: Consortium) -> Consortium:
    """The consortium once the inputs 0 to 4 have been summed."""
    consortium.ask(0, 1, 2, 3, 4)
    return consortium


def touched(x: np.ndarray) -> np.ndarray:
    other = x.copy()
    other[-1, 0, 0] ^= 1
    return other


EVERYBODY = dict.fromkeys(KEYS, "refused-queries")
FEWER = [name for name in KEYS if name != "gamma"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pool", "position"),
    [(X, 3), (X[::-1], 16), (touched(X), 3), (X[3:4], 0), (np.concatenate([X, X]), 23)],
    ids=["the same", "reversed", "another last row", "alone", "doubled"],
)
def test_an_input_is_known_again_in_every_pool(asked: Consortium, pool: np.ndarray, position: int) -> None:
    """Round by five, round by four, subtract: the fifth party's votes. The four do not sign a second list."""
    spec = asked.pools.put(np.ascontiguousarray(pool))
    refused = asked.refused(votes(spec, position), FEWER)
    assert refused == dict.fromkeys(FEWER, "refused-queries")


@pytest.mark.slow
@pytest.mark.parametrize("change", ["sigma", "teachers", "mechanism"])
def test_other_terms_are_another_answer(asked: Consortium, change: str) -> None:
    asks = votes(asked.pool, 3)
    other = {
        "sigma": replace(asks, terms=QuestionTerms("lnmax", {"gamma": 0.04}, sum_mode="masked")),
        "teachers": replace(asks, teacher=LINEAR.model_copy(update={"seed": 9})),
        "mechanism": replace(asks, terms=QuestionTerms("gnmax", {"sigma": 40.0}, sum_mode="masked")),
    }
    assert asked.refused(other[change]) == EVERYBODY


def test_another_roster_is_another_answer(asked: Consortium) -> None:
    """A ghost joins, or a party leaves: the quorums of two rosters need not meet in an honest party."""
    gone = {name: key for name, key in ROSTER.items() if name != "gamma"}
    asked.policy = ONCE.model_copy(update={"few_parties": True})
    asked.restart()
    for name in gone:
        asked.parties[name] = asked.party(name, membership=Membership("ours", gone, KEYS[name].sign))
    asked.liar = liar_over(AtHand(asked.parties), gone)
    assert asked.refused() == dict.fromkeys(gone, "refused-queries")


@pytest.mark.slow
def test_a_pool_of_near_copies_is_refused_before_it_is_stored_where_the_institution_named_its_pools(
    tmp_path: Path, consortium: Consortium
) -> None:
    agreed = consortium.pools.put(X)
    near, refused = consortium.send(touched(X))  # without names the pool is taken, and its last input is a new one
    assert not refused and consortium.pools.holds(near)
    strict = Consortium(tmp_path / "state", ONCE.model_copy(update={"pools": (agreed.sha256,)}))
    strict.ask(0, 1, 2, 3, 4)
    near, refused = strict.send(touched(X))
    assert refused == dict.fromkeys(KEYS, "refused-pool") and not strict.pools.holds(near)
    strict.pools.put(touched(X))  # it was here before the institution named its pools
    assert strict.refused(votes(near, 19)) == dict.fromkeys(KEYS, "refused-pool")
    assert strict.answered() == {5} and strict.ask(5).sum() == 5 * LINEAR.per_party


def test_an_exact_sum_of_four_parties_needs_a_word_in_the_policy(tmp_path: Path, consortium: Consortium) -> None:
    """The roster may also shrink between the votes and their sum: the sum is refused then."""
    four = {name: key for name, key in ROSTER.items() if name != "gamma"}
    shrinking = dict(ROSTER)
    for name in KEYS:
        member = Membership("ours", shrinking, KEYS[name].sign)
        consortium.parties[name] = consortium.party(name, membership=member)
    liar = consortium.liar = liar_over(AtHand(consortium.parties), four)
    request = votes(consortium.pool, 0, 1)
    assert not isinstance(liar.ask({"alpha": Ask("round-1", request)})["alpha"], Failure)
    del shrinking["gamma"]
    setup = SumSetup("ours", "round-1", four, 4, 0, request.high, liar.plan)
    step = CoordinatorSum(setup).requests()["alpha"]
    assert getattr(liar.ask({"alpha": SecureSumStep(step)})["alpha"], "code", "") == "refused-few-parties"
    assert consortium.refused(request) == dict.fromkeys(four, "refused-few-parties")
    agreed = Consortium(tmp_path / "state", ONCE.model_copy(update={"few_parties": True}))
    for name in four:
        agreed.parties[name] = agreed.party(name, membership=Membership("ours", four, KEYS[name].sign))
    agreed.liar = liar_over(AtHand(agreed.parties), four)
    assert agreed.liar.total(request).counts.sum() == 2 * 4 * LINEAR.per_party


def test_an_input_named_twice_in_one_request_is_refused(consortium: Consortium) -> None:
    spec = consortium.pools.put(np.concatenate([X, X]))
    assert consortium.refused(votes(spec, 7, 27)) == EVERYBODY


@pytest.mark.slow
def test_another_input_is_answered(asked: Consortium) -> None:
    assert asked.ask(7, pool=asked.pools.put(touched(X))).sum() == 5 * LINEAR.per_party


@pytest.mark.slow
def test_a_round_that_fails_before_a_vector_left_costs_nothing(consortium: Consortium) -> None:
    for phase in ("advertise_keys", "share_keys", "mask_input"):
        consortium.liar.withheld = {phase: tuple(KEYS)}
        consortium.refused()
        assert consortium.answered() == {0}
    consortium.liar.withheld = {}
    consortium.ask(0, 1, 2, 3, 4)
    assert consortium.answered() == {5}


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["sign_survivors", "unmask"])
@pytest.mark.parametrize("restart", [False, True])
def test_a_round_that_fails_after_that_is_resumed_at_no_cost_with_the_same_parties_alone(
    consortium: Consortium, phase: str, restart: bool
) -> None:
    consortium.liar.withheld = {phase: tuple(KEYS)}
    consortium.refused()
    spent = {account.spent() for account in consortium.accounts.values()}
    if restart:
        consortium.restart()
    consortium.liar.withheld = {}
    bound = phase == "unmask"  # all five have signed that they open the sum of all five
    if bound:
        assert set(consortium.refused(among=FEWER)) == set(FEWER)
    total = consortium.ask(0, 1, 2, 3, 4)
    assert total.sum(axis=1).tolist() == [5 * LINEAR.per_party] * 5
    assert consortium.answered() == {5}
    assert {account.spent() for account in consortium.accounts.values()} == spent
    np.testing.assert_array_equal(total, consortium.ask(0, 1, 2, 3, 4))


def nearest(pool: ArraySpec, stage: str) -> CountNearest:
    """What a coordinator asks of all records near input 3, those within and beyond one distance."""
    numbers = {"k": 200.0, "classes": 2.0, "threshold": 20.0, "sigma1": 60.0, "sigma2": 60.0, "sampling_rate": 1.0}
    terms = QuestionTerms("knn", numbers, "add-remove", "masked", stage)
    edges = np.array([[500, 2**31]], dtype=np.int64)
    return CountNearest(terms, "ledger", Features("raw"), PoolRange(pool.sha256, (3,)), 2, edges)


STAGES = ("threshold", "release")


@pytest.mark.parametrize("first", STAGES)
def test_all_sums_of_records_about_an_input_are_opened_with_the_same_parties(
    consortium: Consortium, first: str
) -> None:
    """Of whichever stage: two over other parties would differ by one party's counts."""
    consortium.liar.total(nearest(consortium.pool, first))
    for stage in STAGES:
        refused = consortium.refused(nearest(consortium.pool, stage), FEWER)
        assert refused == dict.fromkeys(FEWER, "refused-queries"), stage
    for stage in STAGES:
        assert consortium.liar.total(nearest(consortium.pool, stage))


def test_the_second_stage_about_an_input_is_not_summed_over_another_roster(tmp_path: Path) -> None:
    """No row is asked for again; but the quorums of two rosters need not meet in an honest party."""
    pools = PoolStore(None)
    pool, book = pools.put(X), AnswerBook(tmp_path, "alpha", ONCE, None)
    with_ghost = ROSTER | {"ghost": bytes(32)}
    book.leave(book.asked("run-1", nearest(pool, "threshold"), ROSTER, pools), np.zeros((1, 6), dtype=np.int64))
    with pytest.raises(QueriesRefused, match="parties on the roster"):
        book.check(book.asked("run-1", nearest(pool, "release"), with_ghost, pools))
    book.check(book.asked("run-1", nearest(pool, "release"), ROSTER, pools))
    assert book.queries_answered() == 1


def test_an_input_is_asked_for_its_nearest_records_once_a_stage(consortium: Consortium) -> None:
    """A second question between other distances would show more exact counts of the same sample."""
    asked = nearest(consortium.pool, "release")
    consortium.liar.total(asked)
    assert consortium.refused(replace(asked, edges_squared=np.array([[400, 600]]))) == EVERYBODY
    assert consortium.refused(replace(asked, features=Features("raw", np.eye(16, dtype=np.float32)))) == EVERYBODY


def test_lists_that_bind_one_part_of_an_answer_show_a_party(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: the difference of two parts over other parties is the fifth party's own counts."""
    made = Answer.to

    def unbound(*asked: Any) -> Answer:
        answer = made(*asked)
        return replace(answer, keys=replace(answer.keys, samples=()))

    monkeypatch.setattr(Answer, "to", unbound)
    everybody = consortium.liar.total(nearest(consortium.pool, "threshold")).counts[0]
    others = consortium.liar.total(nearest(consortium.pool, "release"), FEWER).counts[0]
    labels = consortium.records["gamma"].labels()
    assert (everybody - others).reshape(3, 2).sum(axis=0).tolist() == np.bincount(labels).tolist()


def begun(consortium: Consortium, questions: list[CountNearest]) -> list[CoordinatorSum]:
    """One sum for each question, all of them begun by all parties before one of them goes on."""
    sums = []
    for number, asked in enumerate(questions):
        consortium.liar.ask(dict.fromkeys(KEYS, Ask(f"round-{number}", asked)))
        plan, (_, entries) = consortium.liar.plan, asked.shape
        setup = SumSetup("ours", f"round-{number}", ROSTER, entries, 0, asked.high, plan)
        sums.append(CoordinatorSum(setup))
    for running in sums:
        go_on(consortium, running)
    return sums


def go_on(consortium: Consortium, running: CoordinatorSum) -> dict[str, Any]:
    """Pass one phase on; what the parties replied."""
    steps = {name: SecureSumStep(message) for name, message in running.requests().items()}
    replies = consortium.liar.ask(steps)
    for name, reply in replies.items():
        if not isinstance(reply, Failure):
            running.accept(name, reply.message)
    if not any(isinstance(reply, Failure) for reply in replies.values()):
        running.close_phase()
    return replies


def test_a_party_that_could_not_note_a_list_opens_nothing_for_it(consortium: Consortium) -> None:
    """Somebody else's hands were in its file meanwhile: four others signed, and it held its shares."""
    asked = nearest(consortium.pool, "release")
    (running,) = begun(consortium, [asked])
    while running.phase is not Phase.SIGN:
        go_on(consortium, running)
    with closing(sqlite3.connect(consortium.accounts["alpha"].path)) as other:
        other.execute("ALTER TABLE bound RENAME TO elsewhere")
        assert isinstance(go_on(consortium, running)["alpha"], Failure)
        other.execute("ALTER TABLE elsewhere RENAME TO bound")
    running.close_phase()
    step, alpha = running.requests()["beta"], running.setup.index["alpha"]
    step.unmask.view_signatures = b"".join(running._views[sender] for sender in running._senders[alpha])
    replies = consortium.liar.ask({"alpha": SecureSumStep(step)})
    assert isinstance(replies["alpha"], Failure)


def sides(consortium: Consortium, copies: int) -> list[CountNearest]:
    """Questions about one input that stands in a pool several times."""
    pool = consortium.pools.put(np.concatenate([X[3:4]] * copies))
    asked = nearest(pool, "release")
    terms = replace(asked.terms, parameters={**asked.terms.parameters, "sampling_rate": 0.3})
    return [replace(asked, terms=terms, inputs=PoolRange(pool.sha256, (at,))) for at in range(copies)]


def test_of_rounds_about_an_input_that_begin_side_by_side_one_is_answered(consortium: Consortium) -> None:
    """The counts of the second were read before the first left: nobody paid for them."""
    first, second = begun(consortium, sides(consortium, 2))
    while first.phase is not Phase.DONE:
        go_on(consortium, first)
    go_on(consortium, second)
    refused = {name: getattr(reply, "code", "") for name, reply in go_on(consortium, second).items()}
    assert refused == dict.fromkeys(KEYS, "refused-queries") and consortium.answered() == {1}


def test_an_input_has_one_sample_wherever_it_stands(consortium: Consortium) -> None:
    """60 coins of 0.3 for each of five parties: other samples would agree with a probability below 1e-6."""

    def counts(question: CountNearest) -> list[int]:
        consortium.folder = consortium.folder / "again"  # an account that knows of no answer
        for name in KEYS:
            (consortium.folder / name).mkdir(parents=True)
        consortium.restart()
        return consortium.liar.total(question).counts[0].tolist()

    one, other = sides(consortium, 2)
    finer = replace(other, edges_squared=np.array([[300, 500, 2**31]]))
    whole, parts = counts(one), counts(finer)
    assert whole == [parts[0] + parts[2], parts[1] + parts[3], *parts[4:]] == counts(other)
    content, another = contents_of(X[3:5])
    elsewhere = replace(one, inputs=PoolRange("ab" * 32, (7,)))
    assert one.sample("run", content) == other.sample("run", content) == finer.sample("run", content)
    assert elsewhere.sample("run", content) == one.sample("run", content) != one.sample("run", another)


def opened_by_trying(consortium: Consortium) -> set[tuple[tuple[str, ...], bytes]]:
    """Every sum about three inputs that the coordinator opens in 40 rounds, with whatever it withholds when."""
    opened: set[tuple[tuple[str, ...], bytes]] = set()
    rng = np.random.default_rng(3)
    phases = ("advertise_keys", "share_keys", "mask_input", "sign_survivors", "unmask")
    for number in range(40):
        names = list(KEYS) if number % 2 else [name for name in KEYS if rng.random() > 0.15]
        consortium.liar.withheld = {phase: [n for n in KEYS if rng.random() < 0.08] for phase in phases}
        if number % 7 == 0:
            consortium.restart()
        try:
            result = consortium.liar.total(votes(consortium.pool, 0, 1, 2), names)
        except QuorumNotReached:
            continue
        opened.add((result.answered, result.counts.tobytes()))
    return opened


@pytest.mark.slow
def test_no_two_sums_over_other_parties_are_ever_opened(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The planted bug, parties that sign every list, opens sums whose differences are single parties' votes."""
    assert len(opened_by_trying(consortium)) == 1
    monkeypatch.setattr(AnswerBook, "sign", lambda self, answer, survivors: None)
    for name in KEYS:
        (tmp_path / "planted" / name).mkdir(parents=True)
    assert len(opened_by_trying(Consortium(tmp_path / "planted"))) > 1


@pytest.mark.slow
def test_an_answer_that_is_asked_for_again_does_not_follow_changed_records(asked: Consortium) -> None:
    before = asked.ask(0, 1, 2, 3, 4)
    records = asked.records["alpha"]
    asked.records["alpha"] = Examples(records.x, 1 - records.labels())
    asked.restart()
    np.testing.assert_array_equal(asked.ask(0, 1, 2, 3, 4), before)
    for name in KEYS:
        asked.records[name] = Examples(records.x, 1 - records.labels())
    asked.restart()
    np.testing.assert_array_equal(asked.ask(0, 1, 2, 3, 4), before)


@pytest.mark.slow
def test_without_a_policy_the_limits_last_as_long_as_the_folder(consortium: Consortium) -> None:
    for number in range(2):
        parties = {name: consortium.party(name, policy=None, account=None) for name in KEYS}
        consortium.liar = liar_over(AtHand(parties), ROSTER)
        request = votes(consortium.pool, 0, 1)
        assert consortium.liar.total(request).counts.sum() == 2 * 5 * LINEAR.per_party
        if number:
            other = QuestionTerms("lnmax", {"gamma": 0.04}, sum_mode="masked")
            assert consortium.refused(replace(request, terms=other)) == EVERYBODY


def test_preparing_an_answer_is_refused_at_once_where_it_could_not_leave(asked: Consortium) -> None:
    again = replace(votes(asked.pool, 3), terms=QuestionTerms("gnmax", {"sigma": 40.0}, sum_mode="masked"))
    replies = asked.liar.ask(dict.fromkeys(KEYS, Ask("round-1", again)))
    assert not any(isinstance(reply, Prepared) for reply in replies.values())
