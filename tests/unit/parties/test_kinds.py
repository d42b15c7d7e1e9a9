"""What the template does for every kind of question, whoever wrote it: admit, compute, bound, charge, leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from support.party_requests import Asker

from collegium.data.values import ArraySpec
from collegium.errors import ConfigurationError, DataError
from collegium.parties import kind as kind_module
from collegium.parties.answer_book import AnswerBook
from collegium.parties.kind import Asked, PartyKind, party_kinds
from collegium.parties.party import Party
from collegium.parties.policy import Policy, PolicyConfig
from collegium.protocol import question as question_module
from collegium.protocol.messages import Request
from collegium.protocol.question import TURNED, Cost, PoolRange, Question, QuestionTerms, own_kinds, register
from collegium.protocol.replies import Counts, Failure, Prepared
from collegium.protocol.requests import Ask
from collegium_accounting.mechanisms import VoteMechanism
from collegium_accounting.units import Adjacency, IntArray, Unit

MakeParty = Callable[..., Party]
HIGH = 5


@dataclass(frozen=True)
class CastGuesses(Question):
    """A kind of question from another package."""

    kind: ClassVar[str] = "guesses"
    serves: ClassVar[type] = VoteMechanism

    inputs: PoolRange

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.inputs.indices), 3

    @property
    def low(self) -> int:
        return -1

    @property
    def high(self) -> int:
        return HIGH

    def cost(self) -> Cost:
        return Cost(per_party=True, unit=Unit(HIGH, Adjacency.ADD_REMOVE), record=TURNED)


class Guesses(PartyKind[CastGuesses]):
    """Answers what the test says, and notes in which order its steps were called."""

    question = CastGuesses
    answers: ClassVar[Any] = None
    steps: ClassVar[list[str]] = []
    refuses: ClassVar[bool] = False

    def validate(self, question: CastGuesses) -> None:
        self.steps.append("validate")
        if self.refuses:
            raise DataError("not for this task")

    def compute(self, question: CastGuesses, asked: Asked) -> IntArray:
        self.steps.append("compute")
        answer: IntArray = np.asarray(self.answers)
        return answer


@pytest.fixture(autouse=True)
def guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers the kind on both sides, for one test."""
    own_kinds(), party_kinds()
    monkeypatch.setitem(question_module._by_name, "guesses", CastGuesses)
    monkeypatch.setitem(kind_module._by_name, "guesses", Guesses)
    monkeypatch.setattr(Guesses, "steps", [])
    monkeypatch.setattr(Guesses, "answers", [[0, 1, 2], [3, 4, 5]])


def asked(pool: ArraySpec, mode: str = "clear") -> CastGuesses:
    return CastGuesses(QuestionTerms("gnmax", {"sigma": 40.0}, sum_mode=mode), "ledger", PoolRange(pool.sha256, (0, 1)))


def agreed(**changes: Any) -> PolicyConfig:
    values: dict[str, Any] = {"sum_modes": ("clear", "masked"), "questions": ("guesses",), "few_parties": True}
    return PolicyConfig(**values | changes)


def test_a_kind_of_another_package_is_asked_over_the_wire_and_answered(make_party: MakeParty, pool: ArraySpec) -> None:
    question = asked(pool)
    request = Request.from_bytes(Request("r", "run-1", Ask("round-1", question)).to_bytes())
    assert request.body == Ask("round-1", question)
    answer = make_party().handle(request).body
    assert isinstance(answer, Counts) and answer.counts.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert Guesses.steps == ["validate", "compute"]


@pytest.mark.parametrize("mode", ["clear", "masked"])
def test_entries_out_of_bounds_are_cut_off_there(
    make_party: MakeParty, pool: ArraySpec, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Guesses, "answers", [[-(2**40), -1, 0], [5, 6, 2**62]])
    ask = Asker(make_party())
    answer = ask(asked(pool, mode))
    counts = answer.counts if mode == "clear" else ask.party.sums.of("run-1", "round-1").vector
    assert isinstance(answer, Counts if mode == "clear" else Prepared)
    assert counts.tolist() == [[-1, -1, 0], [5, 5, 5]]


@pytest.mark.parametrize("mode", ["clear", "masked"])
@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (6,), (1, 2, 3), (0, 3), ()])
def test_counts_of_another_shape_are_no_answer_and_cost_nothing(
    make_party: MakeParty, pool: ArraySpec, tmp_path: Path, mode: str, shape: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(Guesses, "answers", np.zeros(shape, dtype=np.int64))
    account = AnswerBook(tmp_path, "alpha", agreed(), None)
    answer = Asker(make_party(policy=Policy(agreed()), account=account))(asked(pool, mode))
    assert isinstance(answer, Failure) and answer.code == "internal"
    assert account.queries_answered() == 0 and account.spent() == 0.0
    account.close()


def test_an_answer_in_the_clear_is_charged_as_the_question_says(
    make_party: MakeParty, pool: ArraySpec, tmp_path: Path
) -> None:
    account = AnswerBook(tmp_path, "alpha", agreed(), None)
    ask = Asker(make_party(policy=Policy(agreed()), account=account))
    assert isinstance(ask(asked(pool)), Counts)
    assert account.queries_answered() == 2 and account.spent() > 0.0
    account.close()


def test_a_kind_that_the_policy_does_not_name_is_refused_before_any_record_is_read(
    make_party: MakeParty, pool: ArraySpec
) -> None:
    assert "guesses" not in own_kinds(), "those of other packages are agreed to by name"
    for policy in (PolicyConfig(sum_modes=("clear",)), agreed(questions=()), agreed(questions=own_kinds())):
        answer = Asker(make_party(policy=Policy(policy)))(asked(pool))
        assert isinstance(answer, Failure) and answer.code == "refused-mechanism"
    assert Guesses.steps == []
    assert isinstance(Asker(make_party(policy=Policy(agreed())))(asked(pool)), Counts)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"sum_modes": ("masked",)}, "refused-mode"),
        ({"mechanisms": ("lnmax",)}, "refused-mechanism"),
        ({"minimum_noise_votes": 41.0}, "refused-noise"),
        ({"pools": ("cd" * 32,)}, "refused-pool"),
        ({"queries": 1}, "refused-queries"),
        ({"epsilon": 0.01}, "refused-cost"),
    ],
)
def test_no_kind_gets_around_a_limit_of_the_policy(
    make_party: MakeParty, pool: ArraySpec, tmp_path: Path, change: dict[str, Any], code: str
) -> None:
    policy = agreed(**change)
    account = AnswerBook(tmp_path, "alpha", policy, None)
    answer = Asker(make_party(policy=Policy(policy), account=account))(asked(pool))
    assert isinstance(answer, Failure) and answer.code == code
    assert "compute" not in Guesses.steps, "no record was read"
    account.close()


def test_what_does_not_suit_the_party_is_refused_before_any_record_is_read(
    make_party: MakeParty, pool: ArraySpec, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    outside = CastGuesses(asked(pool).terms, "ledger", PoolRange(pool.sha256, (0, 100)))
    alone = {"sigma": 9.0, "participations": 1.0}
    for question, code in (
        (CastGuesses(QuestionTerms("individual-knn", alone), "ledger", outside.inputs), "refused-mechanism"),
        (outside, "protocol"),
        (CastGuesses(asked(pool).terms, "ledger", PoolRange("cd" * 32, (0, 1))), "pool-mismatch"),
    ):
        answer = Asker(make_party())(question)
        assert isinstance(answer, Failure) and answer.code == code
    assert Guesses.steps == [] and "individual-knn is not for questions of the kind 'guesses'" in caplog.text
    monkeypatch.setattr(Guesses, "refuses", True)
    assert Asker(make_party())(asked(pool)).code == "data" and Guesses.steps == ["validate"]


def test_a_kind_that_the_party_cannot_answer_is_named(
    make_party: MakeParty, pool: ArraySpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(kind_module._by_name, "guesses")
    answer = Asker(make_party())(asked(pool))
    assert answer.code == "protocol" and "answers no questions of the kind 'guesses'" in answer.message


def test_a_name_belongs_to_one_kind_on_each_side() -> None:
    @dataclass(frozen=True)
    class Other(CastGuesses):
        """Of the same name."""

    class OtherGuesses(Guesses):
        """Answers the same questions."""

    with pytest.raises(ConfigurationError, match="two kinds of questions are called 'guesses'"):
        register(Other)
    with pytest.raises(ConfigurationError, match="two classes answer questions of the kind 'guesses'"):
        kind_module.register(OtherGuesses)
    with pytest.raises(ConfigurationError, match="a frozen dataclass"):
        register(type("Mutable", (Question,), {"kind": "mutable"}))
