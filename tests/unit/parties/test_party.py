"""What a party answers, and what never leaves it."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.party_requests import LINEAR, Asker, cast
from support.pools import chunks
from support.teachers import QUOTING, WATCHED, WatchedTeacher

from collegium.data import Examples, PoolStore
from collegium.data.task import Task, TeacherSettings
from collegium.data.values import ArraySpec, PoolChunk, PoolState
from collegium.errors import ConfigurationError, DataError, ProtocolViolation, Refused
from collegium.parties.answer_book import AnswerBook
from collegium.parties.party import SAFE_POLICY, Party
from collegium.parties.policy import Policy, PolicyConfig
from collegium.protocol.messages import Request
from collegium.protocol.question import QuestionTerms
from collegium.protocol.replies import Counts, Description, Failure, Fitted, Prepared
from collegium.protocol.requests import Ask, Describe, Fit, HoldPool, SecureSumStep
from collegium.protocol.v1 import secure_sum_pb2

MakeParty = Callable[..., Party]


def test_every_row_of_votes_sums_to_the_number_of_teachers(make_party: MakeParty, pool: ArraySpec) -> None:
    votes = Asker(make_party()).votes(pool, tuple(range(100)))
    assert votes.counts.shape == (100, 10)
    cast(pool, (0,)).check(votes.counts, teachers=3)


def test_votes_are_mostly_right(make_party: MakeParty, pool: ArraySpec, digits: Examples) -> None:
    assert digits.y is not None
    taught = LINEAR.model_copy(update={"options": {"steps": 150}})
    votes = Asker(make_party()).votes(pool, tuple(range(100)), taught)
    assert (votes.counts.argmax(axis=1) == digits.y[1500:1600]).mean() > 0.75


def test_votes_follow_the_order_of_the_queries_and_allow_repeats(make_party: MakeParty, pool: ArraySpec) -> None:
    ask = Asker(make_party())
    whole = ask.votes(pool, tuple(range(100))).counts
    assert np.array_equal(ask.votes(pool, (40, 3, 40)).counts, whole[[40, 3, 40]])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "small-cnn", "random-forest"])
def test_the_same_records_and_seed_give_the_same_votes(make_party: MakeParty, pool: ArraySpec, kind: str) -> None:
    options: dict[str, Any] = {"trees": 10} if kind == "random-forest" else {"steps": 20}
    settings = TeacherSettings(kind=kind, per_party=2, options=options)
    first = Asker(make_party()).votes(pool, tuple(range(100)), settings).counts
    second = Asker(make_party()).votes(pool, tuple(range(100)), settings).counts
    assert np.array_equal(first, second)


def test_the_order_of_the_records_does_not_matter(make_party: MakeParty, pool: ArraySpec, private: Examples) -> None:
    shuffled = private.take(np.random.default_rng(1).permutation(len(private)))
    first = Asker(make_party()).votes(pool, tuple(range(100))).counts
    assert np.array_equal(first, Asker(make_party(shuffled)).votes(pool, tuple(range(100))).counts)


def test_another_seed_gives_other_teachers(make_party: MakeParty, pool: ArraySpec) -> None:
    other = LINEAR.model_copy(update={"seed": 1})
    ask = Asker(make_party())
    assert not np.array_equal(
        ask.votes(pool, tuple(range(100))).counts, ask.votes(pool, tuple(range(100)), other).counts
    )


def test_an_input_is_predicted_once(make_party: MakeParty, pool: ArraySpec) -> None:
    ask, watched = Asker(make_party(allowed_imports=(WATCHED,))), LINEAR.model_copy(update={"kind": WATCHED})
    with WatchedTeacher.watching() as teachers:
        for positions in ((1, 2, 3), (3, 2), (3, 4)):
            ask.votes(pool, positions, watched)
        assert teachers.asked == [3, 3, 3, 1, 1, 1], "by each of three teachers"


def test_a_description_says_nothing_of_the_records(make_party: MakeParty, private: Examples) -> None:
    ask = Asker(make_party())
    before = ask(Describe())
    assert before == Asker(make_party(private.take(np.arange(20))))(Describe())
    ask.fit()
    assert ask(Describe()) == Description("alpha", before.software, 3, "linear")


def test_the_pool_arrives_in_chunks(task: Task, make_party: MakeParty, digits: Examples) -> None:
    store = PoolStore(None)
    spec = PoolStore(None).put(digits.x[:50])
    ask = Asker(make_party(pools=store))
    assert ask(HoldPool(spec)) == PoolState(spec.sha256, 0, complete=False)
    for chunk in chunks(digits.x[:50], spec):
        state = ask(chunk)
    assert state.complete
    assert ask(HoldPool(spec)).complete


def test_masked_votes_stay_at_the_party(make_party: MakeParty, pool: ArraySpec) -> None:
    ask = Asker(make_party())
    assert ask(cast(pool, (0, 5), sum_mode="masked")) == Prepared("round-1")
    expected = ask.votes(pool, (0, 5)).counts
    assert np.array_equal(ask.party.sums.of("run-1", "round-1").vector, expected)
    with pytest.raises(ProtocolViolation, match="no answer is prepared"):
        ask.party.sums.of("run-1", "round-2")


def test_a_masked_round_cannot_be_prepared_for_other_queries(make_party: MakeParty, pool: ArraySpec) -> None:
    ask = Asker(make_party())
    ask(cast(pool, (0, 5), sum_mode="masked"))
    assert ask(cast(pool, (0, 5), sum_mode="masked")) == Prepared("round-1")
    assert ask(cast(pool, (0, 6), sum_mode="masked")).code == "protocol"


def test_rounds_of_two_runs_do_not_meet(make_party: MakeParty, pool: ArraySpec) -> None:
    party = make_party()
    for run, position in (("run-1", 3), ("run-2", 4)):
        party.handle(Request("r", run, Ask("round-1", cast(pool, (position,), sum_mode="masked"))))
    whole = Asker(party).votes(pool, (3, 4)).counts
    assert np.array_equal(party.sums.of("run-1", "round-1").vector, whole[:1])
    assert np.array_equal(party.sums.of("run-2", "round-1").vector, whole[1:])


def test_a_repeated_request_gets_the_same_bytes_and_counts_once(
    make_party: MakeParty, pool: ArraySpec, tmp_path: Path
) -> None:
    """After a restart too."""
    request = Request("again", "run-1", Ask("round-1", cast(pool, (1, 2, 3))))
    agreed = PolicyConfig(sum_modes=("clear",))
    replies = set()
    for _ in range(2):
        book = AnswerBook(tmp_path, "alpha", agreed, None)
        party = make_party(policy=Policy(agreed), account=book)
        replies |= {party.handle(one).to_bytes() for one in (request, Request.from_bytes(request.to_bytes()))}
        assert book.queries_answered() == 3
        book.close()
    assert len(replies) == 1


def test_requests_from_several_threads_are_answered_one_at_a_time(make_party: MakeParty, pool: ArraySpec) -> None:
    progress: list[tuple[int, int]] = []
    party = make_party(progress=lambda ready, wanted: progress.append((ready, wanted)))
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda i=i: answers.append(party.handle(Request(f"r{i}", "run", Fit(LINEAR))).body))
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert progress == [(1, 3), (2, 3), (3, 3)]
    assert answers == [Fitted(teachers=3)] * 4


def test_the_policy_is_asked_before_anything_is_done(make_party: MakeParty, pool: ArraySpec) -> None:
    def never(request: Request) -> None:
        raise Refused("this institution answers on weekdays only")

    started: list[int] = []
    ask = Asker(make_party(policy=never, progress=lambda ready, wanted: started.append(ready)))
    assert ask.votes(pool, (1,)) == Failure("refused", "this institution answers on weekdays only")
    assert started == []


def test_a_party_without_a_policy_refuses_what_an_institution_would_refuse(
    make_party: MakeParty, pool: ArraySpec, tmp_path: Path
) -> None:
    def asked(mode: str, gamma: float, positions: tuple[int, ...], round_id: str) -> Any:
        terms = QuestionTerms("lnmax", {"gamma": gamma}, sum_mode=mode)
        return ask(replace(cast(pool, positions), terms=terms), round_id=round_id)

    ask = Asker(make_party(policy=None))
    assert asked("clear", 0.05, (0,), "a").code == "refused-mode", "the coordinator would see its votes"
    assert asked("masked", 0.051, (0,), "b").code == "refused-noise", "noise of less than 20 votes"
    assert asked("masked", 0.05, (0, 1), "c").code == "refused-few-parties", "a sum of itself alone shows its votes"
    agreed = SAFE_POLICY.model_copy(update={"few_parties": True})
    ask = Asker(make_party(policy=Policy(agreed), account=AnswerBook(tmp_path, "alpha", agreed, None)))
    assert asked("masked", 0.05, (0, 1), "c") == Prepared("c")
    assert asked("masked", 0.05, (0, 0), "d").code == "refused-queries"
    assert asked("masked", 0.05, tuple(range(100)), "e") == Prepared("e")


def test_a_query_outside_the_pool_is_refused(make_party: MakeParty, pool: ArraySpec) -> None:
    answer = Asker(make_party()).votes(pool, (0, 100))
    assert answer.code == "protocol"
    assert "outside the pool" in answer.message


def test_a_pool_that_was_never_sent_is_named(make_party: MakeParty) -> None:
    absent = ArraySpec("ab" * 32, "uint8", (10, 8, 8, 1))
    assert Asker(make_party()).votes(absent, (0,)).code == "pool-mismatch"


@pytest.mark.parametrize(
    "inputs", [np.zeros((2, 8, 9, 1), np.uint8), np.zeros((2, 64), np.uint8), np.zeros((2, 8, 8, 1), np.float32)]
)
def test_inputs_of_another_form_are_refused(make_party: MakeParty, pools: PoolStore, inputs: Any) -> None:
    ask = Asker(make_party())
    spec = pools.put(inputs)
    for body in (cast(spec, (0,)), HoldPool(spec)):
        answer = ask(body)
        assert answer.code == "data"
        assert "[n, 8, 8, 1]" in answer.message


def test_more_counts_than_a_message_holds_are_refused(
    make_party: MakeParty, pool: ArraySpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collegium.limits.MAX_COUNTS_PER_ANSWER", 19)
    ask = Asker(make_party())
    assert isinstance(ask.votes(pool, (0,)), Counts)
    assert ask.votes(pool, (0, 1)).code == "protocol"


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (TeacherSettings(kind="no-such-teacher"), "configuration"),
        (TeacherSettings(kind="os:system"), "refused"),
        (TeacherSettings(kind="linear", options={"epochs": 3}), "configuration"),
        (TeacherSettings(kind="linear", options={"steps": 10**9}), "configuration"),
        (TeacherSettings(kind="random-forest", options={"trees": 0}), "configuration"),
        (TeacherSettings(kind="random-forest", options={"leaves": 3}), "configuration"),
        (TeacherSettings(kind="small-cnn", options={"width": 10**6}), "configuration"),
    ],
)
def test_teachers_that_cannot_be_are_refused_before_any_fitting(
    make_party: MakeParty, settings: TeacherSettings, code: str
) -> None:
    answer = Asker(make_party()).fit(settings)
    assert isinstance(answer, Failure)
    assert answer.code == code


def test_a_secure_sum_step_is_refused_clearly(make_party: MakeParty) -> None:
    answer = Asker(make_party())(SecureSumStep(secure_sum_pb2.SecureSumRequest()))
    assert answer.code == "protocol"


def test_a_party_without_records_is_refused_by_name(task: Task, pools: PoolStore, private: Examples) -> None:
    with pytest.raises(DataError, match="party alpha has no records"):
        Party("alpha", private.take(np.arange(0)), task, folder=None, pools=pools)


def test_records_without_labels_are_refused(make_party: MakeParty, private: Examples) -> None:
    with pytest.raises(DataError, match="name the label column"):
        make_party(Examples(private.x))


def test_records_that_do_not_fit_the_task_are_refused_without_their_number(
    make_party: MakeParty, private: Examples
) -> None:
    with pytest.raises(DataError, match=r"\[8, 8, 1\]") as caught:
        make_party(Examples(private.x.reshape(300, 64), private.y))
    assert "300" not in str(caught.value)
    assert private.y is not None
    with pytest.raises(DataError, match="outside the task's 10 classes"):
        make_party(Examples(private.x, private.y + 5))


def test_a_party_needs_a_key_from_somewhere(make_party: MakeParty) -> None:
    with pytest.raises(ConfigurationError, match="split key"):
        make_party(split_key=None)
    with pytest.raises(ConfigurationError, match="32 bytes"):
        make_party(split_key=b"short")


def test_a_class_never_seen_gets_no_vote(make_party: MakeParty, pool: ArraySpec, private: Examples) -> None:
    assert private.y is not None
    few = private.take(np.flatnonzero(private.y < 4))
    for kind in ("linear", "random-forest"):
        options: dict[str, Any] = {"trees": 5} if kind == "random-forest" else {"steps": 3}
        settings = TeacherSettings(kind=kind, per_party=2, options=options)
        votes = Asker(make_party(few)).votes(pool, tuple(range(100)), settings)
        cast(pool, (0,)).check(votes.counts, teachers=2)
        assert votes.counts[:, 4:].sum() == 0


def test_more_teachers_than_records_still_vote(make_party: MakeParty, pool: ArraySpec, private: Examples) -> None:
    settings = TeacherSettings(kind="linear", per_party=20, options={"steps": 2})
    ask = Asker(make_party(private.take(np.arange(5))))
    assert ask.fit(settings) == Fitted(20)
    cast(pool, (0,)).check(ask.votes(pool, (0, 1), settings).counts, teachers=20)


def test_nothing_private_leaves_the_party(
    make_party: MakeParty, pool: ArraySpec, private: Examples, caplog: pytest.LogCaptureFixture
) -> None:
    """A canary in the records, their number, and an error whose text quotes a record."""
    canary = bytes(range(101, 165))
    x = private.x.copy()
    x[0] = np.frombuffer(canary, np.uint8).reshape(8, 8, 1)
    records = Examples(np.concatenate([x, x[:57]]), np.concatenate([private.y, private.y[:57]]))  # 357 records
    caplog.set_level(logging.DEBUG)
    party = make_party(records, allowed_imports=(QUOTING,))
    said = []
    good = Fit(LINEAR), Describe(), Ask("round-1", cast(pool, tuple(range(9))))
    for number, body in enumerate([*good, Ask("round-1", cast(pool, (999,))), Fit(TeacherSettings(kind="nothing"))]):
        said.append(party.handle(Request(f"r{number}", "run-1", body)).to_bytes())
    quoting = TeacherSettings(kind=QUOTING, per_party=1)
    reply = party.handle(Request("broken", "run-1", Fit(quoting)))
    assert isinstance(reply.body, Failure)
    assert reply.body.code == "internal"
    said.append(reply.to_bytes())
    logged = "\n".join(record.getMessage() + str(record.exc_info or "") for record in caplog.records)
    assert "RuntimeError at teachers.py" in logged
    shown = re.sub("0x[0-9a-f]+", "", repr(party) + repr(records))  # without addresses in memory, whose digits are any
    for out in (*said, logged.encode(), shown.encode()):
        assert canary[:8] not in out
        assert b"101, 102, 103" not in out
        assert b"357" not in out
        assert b"ghijkl" not in out


def test_a_teacher_by_import_path_needs_the_institutions_consent(
    make_party: MakeParty, pool: ArraySpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_teachers.py").write_text(
        "import numpy as np\n"
        "class Sixes:\n"
        "    version = '1'\n"
        "    def __init__(self, task, *, label=6): self.label = label\n"
        "    def fit(self, examples, *, seed, device): pass\n"
        "    def predict(self, x): return np.full(len(x), self.label)\n"
        "    def save(self, path): path.write_text(str(self.label))\n"
        "    def load(self, path, *, device): self.label = int(path.read_text())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    settings = TeacherSettings(kind="their_teachers:Sixes")
    allowed = {"their_teachers:Sixes"}
    assert Asker(make_party()).fit(settings).code == "refused"
    ask = Asker(make_party(folder=tmp_path / "alpha", allowed_imports=allowed))
    assert ask.fit(settings) == Fitted(1)
    assert Asker(make_party(folder=tmp_path / "alpha", allowed_imports=allowed)).reused(settings) == 1
    assert (ask.votes(pool, (0, 1), settings).counts[:, 6] == 1).all()
    wrong = settings.model_copy(update={"options": {"label": 10}})
    assert "correct its predict" in ask.votes(pool, (0,), wrong).message
    assert ask.fit(TeacherSettings(kind="their_teachers:Sevens")).code == "refused"
    absent = Asker(make_party(allowed_imports={"their_teachers:Sevens"}))
    assert absent.fit(TeacherSettings(kind="their_teachers:Sevens")).code == "configuration"
    no_teacher = Asker(make_party(allowed_imports={"their_teachers:np"}))
    assert "has no fit" in no_teacher.fit(TeacherSettings(kind="their_teachers:np")).message
    assert isinstance(absent(PoolChunk(pool, 0, b"\0")), PoolState)
