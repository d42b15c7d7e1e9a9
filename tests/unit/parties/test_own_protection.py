"""What a real party makes of terms that a coordinator made up: check, charge and noise follow from one value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collegium_reproduction.nearest.question import CountNearest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from support.party_requests import LINEAR, Asker

from collegium.data.values import ArraySpec
from collegium.errors import ProtocolViolation
from collegium.models.features import Features
from collegium.parties.answer_book import AnswerBook
from collegium.parties.party import Party
from collegium.parties.policy import Policy, PolicyConfig
from collegium.parties.summing import Membership
from collegium.protocol.kinds.near_records import CastNeighbours
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium.protocol.messages import Request
from collegium.protocol.question import PoolRange, Question, QuestionTerms
from collegium.protocol.replies import Counts, Failure, Prepared, SecureSumAnswer
from collegium.protocol.requests import SecureSumStep
from collegium.protocol.secure_sum import CoordinatorSum, SumSetup, plan_graph
from collegium.protocol.secure_sum.groups import group_of

MakeParty = Callable[..., Party]
KEYS = {name: Ed25519PrivateKey.generate() for name in ("alpha", "beta", "gamma", "delta", "epsilon")}
ROSTER = {name: key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw) for name, key in KEYS.items()}
PLAN = plan_graph(len(ROSTER), 0.2, 0.1)
STRICT = PolicyConfig(minimum_noise_votes=40, epsilon=1.0)


def noised(pool: ArraySpec, mechanism: str, stage: str, honest: int = 3, **parameters: float) -> CastVotes:
    terms = QuestionTerms(mechanism, parameters, "replace", "masked+noised", stage, honest)
    return CastVotes(terms, "ledger", LINEAR, PoolRange(pool.sha256, (0, 1)), 10)


@pytest.mark.parametrize("stage", ["", "release", "threshold"])
@pytest.mark.parametrize(
    ("mechanism", "parameters"),
    [
        ("lnmax", {"gamma": 1e-6, "sigma": 0.866}),
        ("lnmax", {"gamma": 1e-6}),
        ("confident-gnmax", {"sigma1": 40.0, "sigma2": 40.0, "threshold": 0.0, "sigma": 0.866}),
        ("gnmax", {"sigma": 0.866}),
        ("gnmax", {"sigma": 40.0, "gamma": 1e-6}),
        ("gnmax", {"sigma": 40.0, "honest_survivors": 3.0}),
    ],
)
def test_terms_whose_noise_is_said_twice_or_otherwise_are_refused(
    make_party: MakeParty, pool: ArraySpec, tmp_path: Path, mechanism: str, parameters: dict[str, float], stage: str
) -> None:
    account = AnswerBook(tmp_path, "alpha", STRICT, None)
    party = make_party(policy=Policy(STRICT), account=account)
    answer = Asker(party)(noised(pool, mechanism, stage, **parameters))
    assert isinstance(answer, Failure) and answer.code.startswith("refused")
    assert account.spent() == 0.0 and account.queries_answered() == 0
    account.close()


@pytest.mark.parametrize(("mode", "honest"), [("masked+noised", 0), ("masked+noised", -3), ("masked", 3), ("clear", 3)])
def test_terms_that_do_not_say_once_who_adds_the_noise_do_not_exist(mode: str, honest: int) -> None:
    with pytest.raises(ProtocolViolation, match="honest survivors"):
        QuestionTerms("gnmax", {"sigma": 40.0}, "replace", mode, "release", honest)


@pytest.mark.parametrize(("said", "answered"), [(PLAN.honest_survivors, True), (500, False)])
def test_noise_is_drawn_only_for_as_many_honest_parties_as_the_graph_of_the_sum_gives(
    make_party: MakeParty, pool: ArraySpec, said: int, answered: bool
) -> None:
    party = make_party(policy=Policy(STRICT), membership=Membership("ours", ROSTER, KEYS["alpha"].sign))
    asked = noised(pool, "gnmax", "release", said, sigma=40.0)
    assert isinstance(Asker(party)(asked), Prepared)
    share = asked.share
    assert share is not None
    reach = share.reach(PLAN.parties, 20)
    coordinator = CoordinatorSum(SumSetup("ours", "round-1", ROSTER, 20, 0, asked.high, PLAN, reach))
    step = SecureSumStep(coordinator.requests()["alpha"])
    answer = party.handle(Request("sum", "run-1", step)).body
    assert isinstance(answer, SecureSumAnswer if answered else Failure)


def exact(pool: ArraySpec) -> CastVotes:
    return CastVotes(
        QuestionTerms("gnmax", {"sigma": 40.0}, "replace", "masked"),
        "ledger",
        LINEAR,
        PoolRange(pool.sha256, (0, 1)),
        10,
    )


def near(pool: ArraySpec) -> CastNeighbours:
    terms = QuestionTerms("individual-knn", {"sigma": 9.5, "participations": 1}, "add-remove", "masked")
    return CastNeighbours(terms, "ledger", Features("raw"), PoolRange(pool.sha256, (0, 1)), 10, (900, 900), "flat")


def began(party: Party, setup: SumSetup) -> SecureSumAnswer | Failure:
    """What the party answers to the first step of a sum."""
    step = SecureSumStep(CoordinatorSum(setup).requests()["alpha"])
    answer = party.handle(Request("sum", "run-1", step)).body
    assert isinstance(answer, SecureSumAnswer | Failure)
    return answer


@pytest.mark.parametrize("question", [exact, near])
@pytest.mark.parametrize(
    ("lie", "told"),
    [
        ({"consortium": "theirs"}, "a sum of the consortium 'theirs' is not ours"),
        ({"length": 10}, "a sum of 10 entries does not fit the round's 20 counts"),
        ({"high": 1}, "a sum of values up to 1 is not what this round's answers need"),
        ({"noise_reach": 5}, "room for noise in a round whose terms know of none"),
    ],
)
def test_a_sum_that_is_not_of_what_the_party_was_asked_is_not_begun_and_the_honest_one_is(
    make_party: MakeParty, pool: ArraySpec, question: Callable[[ArraySpec], Question], lie: dict[str, Any], told: str
) -> None:
    """An answer to a smaller range would tell by an error whether a count exceeds it."""
    party, asked = make_party(membership=Membership("ours", ROSTER, KEYS["alpha"].sign)), question(pool)
    assert isinstance(Asker(party)(asked), Prepared)
    honest: dict[str, Any] = {"length": 20, "low": 0, "high": asked.high, "plan": PLAN}
    honest = {"consortium": "ours", "round_id": "round-1", "roster": ROSTER} | honest
    refused = began(party, SumSetup(**honest | lie))
    assert isinstance(refused, Failure) and (refused.code, told in refused.message) == ("protocol", True)
    assert isinstance(began(party, SumSetup(**honest)), SecureSumAnswer)


def test_exact_sums_of_groups_are_refused(make_party: MakeParty, pool: ArraySpec) -> None:
    """Three of them show what three groups hold, where one sum would show what all hold."""
    keys = {f"party-{n}": Ed25519PrivateKey.generate().public_key() for n in range(4)}
    roster = ROSTER | {name: key.public_bytes(Encoding.Raw, PublicFormat.Raw) for name, key in keys.items()}
    party, asked = make_party(membership=Membership("ours", roster, KEYS["alpha"].sign)), exact(pool)
    assert isinstance(Asker(party)(asked), Prepared)
    group = group_of(roster, 3, "alpha")
    refused = began(party, SumSetup("ours", "round-1", group, 20, 0, asked.high, plan_graph(3), groups=3))
    assert isinstance(refused, Failure) and refused.code == "secure-sum-insufficient-plan"
    assert "exact ones show more than one of all" in refused.message


@pytest.mark.parametrize("wrong", [-1, 1, None])
def test_a_sum_with_other_room_for_noise_than_the_terms_promise_is_refused(
    make_party: MakeParty, pool: ArraySpec, wrong: int | None
) -> None:
    """With less room the noise would not fit beside the votes; None is no room at all."""
    party = make_party(policy=Policy(STRICT), membership=Membership("ours", ROSTER, KEYS["alpha"].sign))
    asked = noised(pool, "gnmax", "release", PLAN.honest_survivors, sigma=40.0)
    assert isinstance(Asker(party)(asked), Prepared) and asked.share is not None
    reach = asked.share.reach(PLAN.parties, 20)
    stated = 0 if wrong is None else reach + wrong
    refused = began(party, SumSetup("ours", "round-1", ROSTER, 20, 0, asked.high, PLAN, stated))
    assert isinstance(refused, Failure) and "room left for noise does not follow from the terms" in refused.message
    assert isinstance(
        began(party, SumSetup("ours", "round-1", ROSTER, 20, 0, asked.high, PLAN, reach)), SecureSumAnswer
    )


@pytest.mark.parametrize(
    ("kind", "complete", "answered"), [("votes", False, True), ("sample", True, True), ("sample", False, False)]
)
def test_several_sums_without_noise_over_a_sparse_graph_are_refused(
    make_party: MakeParty, pool: ArraySpec, kind: str, complete: bool, answered: bool
) -> None:
    """One sum about an input is bound to its round; the sums of two stages are two."""
    keys = {f"party-{n:02d}": Ed25519PrivateKey.generate().public_key() for n in range(49)}
    roster = ROSTER | {name: key.public_bytes(Encoding.Raw, PublicFormat.Raw) for name, key in keys.items()}
    plan = plan_graph(len(roster), 0.2, 0.1, quorum=0.8, complete=complete)
    assert plan.complete == complete
    party = make_party(membership=Membership("ours", roster, KEYS["alpha"].sign))
    asked: Question = exact(pool)
    if kind == "sample":
        parameters = {"k": 3.0, "classes": 10, "threshold": 2.0, "sampling_rate": 0.5, "sigma1": 9.0, "sigma2": 4.0}
        terms = QuestionTerms("knn", parameters, "add-remove", "masked", "release")
        inputs, edges = PoolRange(pool.sha256, (0,)), np.array([[100, 10**6]])
        asked = CountNearest(terms, "ledger", Features("raw"), inputs, 10, edges)
    assert isinstance(Asker(party)(asked), Prepared)
    rows, entries = asked.shape
    coordinator = CoordinatorSum(SumSetup("ours", "round-1", roster, rows * entries, 0, asked.high, plan))
    step = SecureSumStep(coordinator.requests()["alpha"])
    answer = party.handle(Request("sum", "run-1", step)).body
    assert isinstance(answer, SecureSumAnswer if answered else Failure)
    assert answered or answer.code == "secure-sum-insufficient-plan"


def test_an_answer_in_the_clear_is_the_same_whoever_else_takes_part(
    make_party: MakeParty, pool: ArraySpec, tmp_path: Path
) -> None:
    """It is added to nobody's: an institution that joins makes it no other answer, which would be counted again."""
    agreed = PolicyConfig(minimum_noise_votes=1, sum_modes=("clear",))
    terms = QuestionTerms("gnmax", {"sigma": 40.0}, "replace", "clear")
    asked = CastVotes(terms, "ledger", LINEAR, PoolRange(pool.sha256, (0, 1)), 10)
    counted = []
    for names in (list(ROSTER)[:4], ROSTER):
        account = AnswerBook(tmp_path, "alpha", agreed, None)
        membership = Membership("ours", {name: ROSTER[name] for name in names}, KEYS["alpha"].sign)
        answer = Asker(make_party(policy=Policy(agreed), account=account, membership=membership))(asked)
        assert isinstance(answer, Counts)
        counted.append((account.queries_answered(), account.spent()))
        account.close()
    assert counted[0] == counted[1] and counted[0][0] == 2
