"""A coordinator that takes all that the policy allows which enrolment wrote: what was announced, and one release more.

What it gets is counted here anew: Gaussian noise on everything, by its closed form.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm
from support.party_requests import cast
from support.sums_scene import POOL, SPEC, TASK

from collegium.coordinator.run.announced import announced_terms
from collegium.coordinator.settings.run_config import RunConfig
from collegium.data import array_spec
from collegium.errors import CollegiumError
from collegium.parties.answer_book import AnswerBook
from collegium.parties.answers import Answer
from collegium.parties.enrolment import not_agreed_to, policy_text
from collegium.parties.policy import Policy, PolicyConfig
from collegium.privacy.evaluation_cells import Layout
from collegium.protocol.kinds.class_sums import SumClasses
from collegium.protocol.kinds.evaluation import Evaluate
from collegium.protocol.messages import Request
from collegium.protocol.question import Question, QuestionTerms
from collegium.protocol.requests import Ask
from collegium.protocol.roster import AnnouncedTerms
from collegium.settings import validate_config
from collegium_accounting.mechanisms import Mechanism, create
from collegium_accounting.mechanisms.class_sums import MOST_ROUNDS

DELTA, EPSILON = 1e-5, 1.0
SPEC_OF_POOL = array_spec(POOL)


def epsilon_of(mu: float) -> float:
    """ε at δ of Gaussian noise of σ on what moves by ``mu`` σ (Balle and Wang 2018, Theorem 8)."""

    def excess(epsilon: float) -> float:
        tail = math.exp(epsilon + float(norm.logcdf(-epsilon / mu - mu / 2)))
        return float(norm.cdf(-epsilon / mu + mu / 2)) - tail - DELTA

    return float(brentq(excess, 0.0, 200.0))


def announced(**changes: Any) -> AnnouncedTerms:
    values: dict[str, Any] = {
        "name": "ours",
        "task": TASK.model_dump(),
        "pool": {"source": "pool.npz"},
        "budget": {"epsilon": EPSILON, "delta": DELTA},
        "evaluation": {},
    }
    config = validate_config(values | changes, RunConfig, "test")
    return announced_terms(config, config.queries.count, SPEC_OF_POOL)


def agreed(terms: AnnouncedTerms) -> PolicyConfig:
    """The policy that enrolment writes, as it is read from its file."""
    return PolicyConfig.model_validate(tomllib.loads(policy_text(terms)))


def class_sums(noise: float, ledger: str) -> SumClasses:
    terms = QuestionTerms.of(create("class-sums", sigma=noise, classes=3), "masked+noised", "sums", 4)
    return SumClasses(terms, ledger, per_party=False, kernel=SPEC, pool_sha256=SPEC_OF_POOL.sha256)


def evaluation(noise: float, ledger: str) -> Evaluate:
    layout = Layout(3)

    def counts(sigma: float) -> Mechanism:
        return create("record-counts", sigma=sigma, parts=layout.parts, cells=layout.length)

    mechanism = counts(noise / counts(1.0).noise_votes)
    terms = QuestionTerms.of(mechanism, "masked+noised", mechanism.stages[0].name, 4)
    return Evaluate(terms, ledger, per_party=False, student=b"student", classes=3)


def taken(policy: PolicyConfig, questions: Iterator[Question]) -> list[Question]:
    """The questions that a party with this policy answers, up to the first that it refuses."""
    book, allows, given = AnswerBook(None, "ash", policy, None), Policy(policy), []
    for number, question in enumerate(questions):
        rows = 0 if question.queries is None else len(question.queries.indices)
        contents = [b"%d of %d" % (row, number) for row in range(rows)]
        try:
            allows(Request(f"request-{number}", "run-1", Ask(f"round-{number}", question)))
            asked = Answer.to("run-1", question, contents, b"")
            book.check(asked)
            book.leave(asked, np.zeros(question.shape, dtype=np.int64))
        except CollegiumError:
            break
        given.append(question)
    book.close()
    return given


@pytest.mark.parametrize("kind", [class_sums, evaluation])
def test_sums_cost_what_was_announced_and_one_release_more(kind: Any) -> None:
    terms = announced()
    policy, floor = agreed(terms), terms.policy()["minimum_noise_sums"]
    sums, counts = terms.noise_votes, terms.counts[0].noise
    planned = math.hypot(math.sqrt(MOST_ROUNDS) / sums, 1 / counts)
    assert 0.9 * EPSILON < epsilon_of(planned) <= EPSILON and policy.record_epsilon is not None
    costliest = epsilon_of(math.hypot(planned, max(1 / sums, 1 / counts)))
    assert policy.record_epsilon == pytest.approx(costliest, rel=0.01), "the spare release that is stated"
    got = taken(policy, (kind(1.0000001 * floor, f"ledger-{number}") for number in count()))
    cost = epsilon_of(math.sqrt(len(got)) / floor)
    assert 0 < cost <= policy.record_epsilon * 1.0001, "whatever it asks for, at the floor of all sums"
    rounds = [class_sums(sums, f"round-{number}") for number in range(MOST_ROUNDS)]
    honest = [*rounds, evaluation(counts, "ledger")]
    assert taken(policy, iter(honest)) == honest, "and what was announced is answered"


@pytest.mark.parametrize("stage", ["threshold", "votes"])
def test_votes_cost_what_was_announced_and_one_batch_more_whatever_stage_is_asked(stage: str) -> None:
    sigma = {"threshold": 150.0, "votes": 40.0}
    parameters = {"sigma1": sigma["threshold"], "sigma2": sigma["votes"], "threshold": 100.0}
    mechanism = {"name": "confident-gnmax", "parameters": parameters}
    terms = announced(
        mechanism=mechanism,
        teachers={"per_party": 2},
        queries={"count": 50, "batch": 10},
        votes={"mode": "masked+noised"},
        budget={"epsilon": 3.0, "delta": DELTA},
    )
    policy = agreed(terms)
    first, second = create("confident-gnmax", **parameters).stages
    name = first.name if stage == "threshold" else second.name

    def asked() -> Iterator[Question]:
        for number in count():
            one = QuestionTerms("confident-gnmax", parameters, "replace", "masked+noised", name, 4)
            yield cast_under(one, number)

    got = taken(policy, asked())
    moved = math.sqrt(1.0 if stage == "threshold" else 2.0) / sigma[stage]
    assert policy.record_epsilon is not None and policy.epsilon is not None and got
    assert epsilon_of(moved * math.sqrt(10 * len(got))) <= policy.record_epsilon * 1.001
    assert 10 * len(got) <= terms.answers


def cast_under(terms: QuestionTerms, number: int) -> Question:
    """Ten votes that nobody asked for before, under these terms."""
    like = cast(SPEC_OF_POOL, tuple(range(10)), classes=3, sum_mode="masked")
    return type(like)(terms, f"ledger-{number}", like.teacher, like.inputs, 3)


def test_the_policy_says_what_was_announced_and_what_it_allows() -> None:
    terms = announced()
    text = policy_text(terms)
    told = f"announced was epsilon 1 for one record at delta 1e-05; allowed is {terms.limits.record_epsilon:g}"
    assert told in " ".join(text.replace("\n#", "").split())
    assert "\nrecord_epsilon = " in text and "\ndelta = 1e-05" in text


def test_another_study_needs_a_word_of_the_institution() -> None:
    terms = announced()
    lines = not_agreed_to(agreed(terms), terms.policy(), 2, {"record_epsilon": 1.0})
    assert lines["record_epsilon"] == pytest.approx(terms.limits.record_epsilon + 1.0, abs=1e-3)
