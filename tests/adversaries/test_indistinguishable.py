"""Whatever leaves a party beside its masked vector is the same for data sets that differ in one record, or in all."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adversaries.test_coordinator_that_repeats import KEYS, ROSTER, TASK, X
from collegium_reproduction.nearest.question import CountNearest
from support.liar import AtHand, liar_over
from support.nearest import AGREED
from support.party_requests import KEY, LINEAR

from collegium.coordinator.students import fit_student
from collegium.data import Examples, PoolStore
from collegium.data.values import ArraySpec
from collegium.errors import ProtocolViolation, QueriesRefused, QuorumNotReached
from collegium.models.features import Features
from collegium.models.kernels import KernelSpec
from collegium.parties.answer_book import AnswerBook
from collegium.parties.answers import Answer
from collegium.parties.party import Party
from collegium.parties.policy import Policy, PolicyConfig
from collegium.parties.summing import Membership
from collegium.protocol.kinds.class_sums import SumClasses
from collegium.protocol.kinds.evaluation import Evaluate
from collegium.protocol.kinds.near_records import CastNeighbours
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium.protocol.messages import Reply, Request
from collegium.protocol.question import PoolRange, Question, QuestionTerms, question_for
from collegium.protocol.replies import Prepared, SecureSumAnswer
from collegium.protocol.requests import Ask, Describe, Fit, RequestBody, SecureSumStep
from collegium.protocol.secure_sum import PartySum, accept_parameters, plan_graph
from collegium_accounting.mechanisms import Mechanism, mechanism_named

PLAN = plan_graph(len(ROSTER), 0.2, 0.1)
RECORDS = Examples(np.random.default_rng(1).integers(0, 16, (60, 4, 4, 1)).astype(np.uint8), np.arange(60) % 2)
DATA = {
    "one record less": RECORDS.take(np.arange(59)),
    "another label": Examples(RECORDS.x, np.concatenate([[1], RECORDS.labels()[1:]])),
    "one class": Examples(RECORDS.x, np.zeros(60, dtype=np.int64)),
}
POLICIES = {
    "limits of answers": PolicyConfig(**AGREED, queries=5),
    "limits of cost": PolicyConfig(**AGREED, epsilon=0.7, record_epsilon=1.0, record_rho=0.02),
    "much noise": PolicyConfig(**AGREED, minimum_noise_votes=35.0),
}
QUESTIONS = {"limits of answers": 6, "limits of cost": 6, "much noise": 3}
"""More than the limits let pass; a policy about noise refuses one question as it does the next."""
NUMBERS = {"gamma": 0.03, "k": 3.0, "sampling_rate": 0.5, "participations": 2.0, "levels": 1.0, "classes": 2.0}
PARAMETERS = NUMBERS | {
    "labels": 2.0,
    "parts": 1.0,
    "cells": 20.0,
    "tau": 1.0,
    "epsilon": 0.1,
}


def parameters_of(kind: type[Mechanism]) -> dict[str, float]:
    """Of noise that the policies above partly take: 30 votes for anything that is a scale."""
    asked = [field for field in dataclasses.fields(kind) if field.init]
    required = [field.name for field in asked if field.default is dataclasses.MISSING]
    return {name: PARAMETERS.get(name, 1e-6 if name == "delta" else 30.0) for name in required}


@cache
def classifier(number: int) -> bytes:
    """A student's file; each number gives another one."""
    labels, few = [at % 2 for at in range(12)], {"trees": 5}
    student = fit_student("random-forest", X, list(range(12)), labels, TASK, seed=number, options=few)
    with tempfile.TemporaryDirectory() as folder:
        student.save(Path(folder) / "student.safetensors")
        return (Path(folder) / "student.safetensors").read_bytes()


def requests(name: str, mode: str, pool: ArraySpec, number: int) -> list[Question]:
    """What a coordinator asks about two inputs, stage by stage where the mechanism needs a sum for each."""
    kind = mechanism_named(name)
    numbers, inputs = parameters_of(kind), PoolRange(pool.sha256, (2 * number, 2 * number + 1))
    mechanism = QuestionTerms(name, numbers).described()
    honest = PLAN.honest_survivors if mode == "masked+noised" else 0
    question, asked = question_for(kind), list[Question]()
    apart = honest > 0 or (question is not None and question.per_stage)
    for stage in [one.name for one in mechanism.stages] if apart else [""]:
        terms = QuestionTerms(name, numbers, mechanism.adjacencies[0].value, mode, stage, honest)
        if question is CastVotes:
            asked.append(CastVotes(terms, "ledger", LINEAR, inputs, 2))
        elif "cells" in numbers:
            asked.append(Evaluate(terms, "ledger", False, classifier(number), 2))
        elif question is SumClasses:
            kernel = KernelSpec(Features("raw"), tuple(range(number, number + 4)), 900)
            asked.append(SumClasses(terms, "ledger", False, kernel, pool.sha256))
        elif question is CastNeighbours:
            asked.append(CastNeighbours(terms, "ledger", Features("raw"), inputs, 2, (900, 900), "flat"))
        else:
            edges = np.array([[600, 1200]] * 2, dtype=np.int64)
            asked.append(CountNearest(terms, "ledger", Features("raw"), inputs, 2, edges))
    return asked


class Bystander:
    """Another party, which adds zeros to every sum."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sums: dict[bytes, PartySum] = {}

    def handle(self, request: Request) -> Reply:
        body = request.body
        if isinstance(body, SecureSumStep):
            step = body.message
            if step.WhichOneof("phase") == "advertise_keys":
                setup = accept_parameters(step.advertise_keys.parameters, ROSTER, collusion_fraction=0.1)
                zeros = np.zeros(setup.length, dtype=np.int64)
                noise = zeros if setup.noise_reach else None
                self.sums[step.setup] = PartySum(setup, self.name, KEYS[self.name].sign, zeros, noise)
            return Reply(request.request_id, SecureSumAnswer(self.sums[step.setup].handle(step)))
        assert isinstance(body, Ask)
        return Reply(request.request_id, Prepared(body.round_id))


def _public(reply: Any) -> Any:
    """What a reply says; of keys, shares and masked vectors, which are uniform, only which they are and their size."""
    if isinstance(reply, SecureSumAnswer):
        return reply.message.WhichOneof("phase"), len(reply.message.SerializeToString())
    # The round's name ends in a number that the coordinator draws.
    return "prepared" if isinstance(reply, Prepared) else reply


def everything_said(
    records: Examples, policy: PolicyConfig, bodies: Callable[[ArraySpec], list[RequestBody | Question]], folder: Path
) -> list[Any]:
    """Everything that a party says to a coordinator that goes on asking, in its order, and what it charged itself."""
    folder.mkdir()
    pools, account = PoolStore(None), AnswerBook(folder, "alpha", policy, None)
    member = Membership("ours", ROSTER, KEYS["alpha"].sign)
    options: dict[str, Any] = {"policy": Policy(policy), "account": account, "membership": member, "device": "cpu"}
    party = Party("alpha", records, TASK, folder=folder, pools=pools, split_key=KEY, **options)
    liar = liar_over(AtHand({name: Bystander(name) for name in KEYS} | {"alpha": party}), ROSTER)
    for body in bodies(pools.put(X)):
        if isinstance(body, Question):
            with suppress(QuorumNotReached, ProtocolViolation):
                liar.total(body)
        else:
            liar.ask({"alpha": body})
    said: list[Any] = [_public(reply) for reply in liar.said["alpha"]]
    said.append((account.spent(), account.record_spent(), account.queries_answered()))
    account.close()
    return said


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(name, mode.value, marks=[] if name in ("gnmax", "class-sums") else [pytest.mark.slow])
        for name in AGREED["mechanisms"]
        for mode in mechanism_named(name).sum_modes
        if mode != "clear"
    ],
)
def test_nothing_but_the_masked_vector_tells_data_sets_apart(name: str, mode: str, policy: str, tmp_path: Path) -> None:
    agreed = POLICIES[policy].model_copy(update={"sum_modes": ("clear", "masked", "masked+noised")})

    def bodies(pool: ArraySpec) -> list[RequestBody | Question]:
        asked: list[RequestBody | Question] = [Describe(), Fit(LINEAR), Describe()]
        for number in range(QUESTIONS[policy]):
            asked += requests(name, mode, pool, number)
        return [*asked, Fit(LINEAR), Describe()]

    reference = everything_said(RECORDS, agreed, bodies, tmp_path / "reference")
    if policy == "limits of answers" and name != "multilabel-knn":  # which the task, one class a record, refuses
        assert reference[-1][2] > 0, "some answers left"
    for number, (what, records) in enumerate(DATA.items()):
        assert everything_said(records, agreed, bodies, tmp_path / str(number)) == reference, what


@pytest.mark.slow
def test_a_party_that_refuses_by_its_votes_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: what is charged follows from the votes that were cast."""

    leave = AnswerBook.leave

    def by_votes(self: AnswerBook, answer: Answer, counts: np.ndarray, left_before: np.ndarray) -> None:
        if counts[:, 1].sum() == 0:
            raise QueriesRefused("planted")
        leave(self, answer, counts, left_before)

    monkeypatch.setattr(AnswerBook, "leave", by_votes)
    with pytest.raises(AssertionError, match="one class"):
        test_nothing_but_the_masked_vector_tells_data_sets_apart("gnmax", "masked", "limits of answers", tmp_path)
