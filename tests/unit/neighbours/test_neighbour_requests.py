"""A party that answers about neighbours: who votes, once a question, within each record's budget."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.record_votes import NEAR, RECORDS, Clinic, plane, records

from collegium.coordinator.rounds.rounds import ClearSum, VoteRound
from collegium.data import Examples
from collegium.errors import ProtocolViolation, QuorumNotReached
from collegium.limits import MAX_NEIGHBOUR_COUNT
from collegium.models.features import Features
from collegium.parties.answer_book import FILE, AnswerBook
from collegium.parties.policy import Policy, PolicyConfig
from collegium.protocol.messages import Reply, Request
from collegium.protocol.replies import Counts, Failure, Prepared
from collegium.protocol.requests import Ask

POOL = plane(60, 2)


def near(position: int, x: np.ndarray) -> np.ndarray:
    """By the definition: the distances of floats, rounded as the features are."""
    whole = np.floor(x.astype(float) * 1024 + 0.5)
    asked = np.floor(POOL[position].astype(float) * 1024 + 0.5)
    return ((whole - asked) ** 2).sum(axis=1) <= NEAR


@pytest.fixture
def clinic(tmp_path: Path) -> Clinic:
    return Clinic(tmp_path)


def test_an_answer_counts_the_records_within_the_radius(clinic: Clinic) -> None:
    answer = clinic.ask(clinic.question((4, 9, 17)))
    assert isinstance(answer, Counts)
    for row, position in enumerate((4, 9, 17)):
        assert (answer.counts[row] == near(position, records().x)).all()
    assert answer.counts.sum() > 3


def test_a_record_votes_as_often_as_it_may_and_then_never_again(clinic: Clinic) -> None:
    positions = tuple(range(60))
    voted = clinic.ask(clinic.question(positions, participations=2)).counts
    wanted = np.array([near(position, records().x) for position in positions])
    for record in range(RECORDS):
        first_two = np.flatnonzero(wanted[:, record])[:2]
        assert (np.flatnonzero(voted[:, record]) == first_two).all()
    assert (wanted.sum(axis=0) > 2).sum() > 10, "or nobody was ever out"


def test_weights_are_charged_by_their_squares(clinic: Clinic) -> None:
    counts = clinic.ask(clinic.question(tuple(range(60)), kernel="quadratic", levels=16, sigma=160.0)).counts
    assert counts.max() <= 16 and len(np.unique(counts)) > 5
    spent = (counts**2).sum(axis=0)
    assert spent.max() <= 2 * 16**2 and (spent > 16**2).any()


def test_the_same_question_again_has_the_same_answer_and_costs_nothing(clinic: Clinic) -> None:
    question = clinic.question((4, 9, 17), participations=1)
    first = clinic.ask(question, request_id="one").counts
    assert (clinic.ask(question, request_id="one").counts == first).all(), "the same request"
    assert (clinic.ask(question).counts == first).all(), "the same round"
    clinic.restart()
    assert (clinic.ask(question, request_id="one").counts == first).all(), "the same request after a restart"
    other_cut = clinic.question((17, 4), participations=1)
    assert (clinic.ask(other_cut, round_id="another").counts == first[[2, 0]]).all(), (
        "the same queries in another round"
    )


def test_under_another_ledger_the_same_question_is_paid_again(clinic: Clinic) -> None:
    """Another ledger releases another noisy label."""
    tight = {"record_rho": 1 / (2 * 10.0**2)}
    clinic.options = tight
    clinic.restart()
    first = clinic.ask(clinic.question((4,), participations=1)).counts
    again = clinic.ask(clinic.question((4,), participations=1, ledger_id="fresh")).counts
    assert first.any() and not again.any()


def test_where_parties_add_the_noise_every_round_that_leaves_is_paid_and_no_other(clinic: Clinic) -> None:
    """Rounds that failed before a vector left had used up the participations of those near, and labels were noise."""

    asked = clinic.question((4, 9), participations=1, mode="masked+noised")

    def counts(round_id: str) -> np.ndarray:
        assert clinic.ask(asked, round_id=round_id) == Prepared(round_id)
        return clinic.party.sums.of("run", round_id).vector

    def leave(round_id: str) -> None:
        clinic.party._leave("run", Ask(round_id, asked))

    first = counts("a")
    assert first.any() and (counts("b") == first).all() and (counts("c") == first).all()
    clinic.restart()
    assert (counts("d") == first).all(), "what an earlier process prepared is taken up as well"
    assert (counts("e") == first).all()
    for superseded in "ad":
        with pytest.raises(ProtocolViolation, match="another round was asked the same since"):
            leave(superseded)
    leave("e")
    with pytest.raises(ProtocolViolation, match="this one twice"):
        leave("e")
    assert not counts("f").any(), "the records have voted"
    with pytest.raises(ProtocolViolation):
        leave("d")


def test_a_masked_round_is_kept_for_its_sum_and_for_no_other_question(clinic: Clinic) -> None:
    asked = clinic.question((4, 9), mode="masked")
    assert clinic.ask(asked) == Prepared("round") == clinic.ask(asked)
    assert clinic.party.sums.of("run", "round").ask.question.name == asked.name
    other = clinic.ask(clinic.question((5, 9), mode="masked"))
    assert isinstance(other, Failure) and "fresh id" in other.message


def test_a_record_that_leaves_and_comes_back_finds_what_it_spent(clinic: Clinic) -> None:
    everything = records()
    voted = clinic.ask(clinic.question((4,), participations=1)).counts[0].astype(bool)
    clinic.restart(everything.take(np.flatnonzero(~voted)))
    clinic.ask(clinic.question((17,), participations=1))
    clinic.restart(everything)
    beside = int(np.argsort(((POOL - POOL[4]) ** 2).sum(axis=1))[1])
    assert not (clinic.ask(clinic.question((beside,), participations=1)).counts[0].astype(bool) & voted).any()


@pytest.mark.slow
def test_whether_a_record_votes_depends_on_no_other_record() -> None:
    """Every record removed in turn: nobody else's votes change, over a whole run with budgets."""
    positions = tuple(range(60))
    everything = records()
    whole = Clinic(None).ask(Clinic(None).question(positions)).counts
    for record in range(RECORDS):
        kept = np.arange(RECORDS) != record
        clinic = Clinic(None)
        clinic.restart(everything.take(np.flatnonzero(kept)))
        assert (clinic.ask(clinic.question(positions)).counts[:, kept] == whole[:, kept]).all()


def test_a_group_votes_once_by_its_nearest_record_and_has_one_budget() -> None:
    x = np.repeat(POOL[[4]], 3, axis=0)
    x[1, 0] += 0.01
    x[2] = POOL[9]
    patient = Examples(x, np.array([5, 6, 7]), np.array(["p", "p", "p"]))
    clinic = Clinic(None)
    clinic.restart(patient)
    counts = clinic.ask(clinic.question((4, 9), participations=1, radius_squared=20**2)).counts
    assert counts[0, 5] == 1 and counts.sum() == 1


def test_a_count_never_leaves_the_public_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collegium.limits.MAX_NEIGHBOUR_COUNT", 3)
    crowd = Examples(np.random.default_rng(0).random((9, 4)).astype(np.float32), np.zeros(9, dtype=np.int64))
    clinic = Clinic(None)
    clinic.restart(crowd)
    assert clinic.ask(clinic.question((4,), radius_squared=2**40)).counts[0, 0] == 3


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sigma": 0.5}, "would cost more"),
        ({"levels": 2.5}, "does not agree to this mechanism"),
        ({"participations": 0}, "does not agree to this mechanism"),
        ({"sigma": -1.0}, "does not agree to this mechanism"),
        ({"mechanism": "gnmax"}, "does not agree to this mechanism"),
        ({"mechanism": "class-sums"}, "does not agree to this mechanism"),
        ({"adjacency": "replace"}, "does not agree to this mechanism"),
        ({"features": Features("hog")}, "'standard' for a table"),
        ({"features": Features("raw", np.ones((3, 1), dtype=np.float32))}, "projection is for 3"),
        ({"positions": (4, 99)}, "outside the pool"),
    ],
)
def test_what_cannot_be_answered_is_refused_and_costs_nothing(
    clinic: Clinic, changes: dict[str, Any], says: str
) -> None:
    positions = changes.pop("positions", (4, 9))
    refused = clinic.ask(clinic.question(positions, **changes))
    assert isinstance(refused, Failure) and says in refused.message
    assert (clinic.ask(clinic.question((4,), participations=1)).counts[0] == near(4, records().x)).all()


def test_a_run_keeps_the_terms_it_began_with(clinic: Clinic) -> None:
    clinic.ask(clinic.question((4,)))
    for changes in ({"sigma": 11.0}, {"participations": 3}, {"levels": 2}):
        refused = clinic.ask(clinic.question((5,), **changes))
        assert isinstance(refused, Failure) and refused.code == "refused-mechanism"


def test_questions_that_would_pay_once_for_two_answers_are_no_requests(clinic: Clinic) -> None:
    with pytest.raises(ProtocolViolation, match="once"):
        clinic.question((4, 4))
    with pytest.raises(ProtocolViolation, match="radius lies"):
        clinic.question((4,), radius_squared=2**60)
    with pytest.raises(ProtocolViolation, match="kernel"):
        clinic.question((4,), kernel="wide")


def test_requests_and_answers_survive_the_wire(clinic: Clinic) -> None:
    features = Features("raw", np.array([[3.0], [-4.0], [0.0], [1024.0]], dtype=np.float32))
    asked = clinic.question((4, 9), features=features, kernel="quadratic", levels=4)
    request = Request("id", "run", Ask("round", asked))
    read = Request.from_bytes(request.to_bytes())
    assert read.to_bytes() == request.to_bytes() and read.body.question.radii_squared == (NEAR, NEAR)
    assert (read.body.question.features.projection == features.projection).all()
    answer = Reply("id", clinic.ask(asked))
    assert (Reply.from_bytes(answer.to_bytes()).body.counts == answer.body.counts).all()


def test_an_answer_outside_the_public_range_does_not_count(clinic: Clinic) -> None:
    """It survives the wire, and the coordinator holds it to what was asked."""

    @dataclass
    class Loud:
        entry: int

        def names(self) -> list[str]:
            return ["clinic"]

        def ask(self, requests: Any, **_: Any) -> dict[str, Any]:
            answer = Reply("id", Counts(np.full((1, RECORDS), self.entry)))
            return dict.fromkeys(requests, Reply.from_bytes(answer.to_bytes()).body)

    asked = VoteRound(clinic.question((4,)), {"clinic": 0}, 1.0, 1)
    assert (ClearSum(Loud(MAX_NEIGHBOUR_COUNT)).sum_votes(asked).counts == MAX_NEIGHBOUR_COUNT).all()
    for entry in (MAX_NEIGHBOUR_COUNT + 1, -1):
        with pytest.raises(QuorumNotReached, match=f"counts outside 0 to {MAX_NEIGHBOUR_COUNT}"):
            ClearSum(Loud(entry)).sum_votes(asked)


def test_the_policy_speaks_of_neighbours_too(clinic: Clinic, tmp_path: Path) -> None:
    config = PolicyConfig(sum_modes=("clear",), minimum_noise_votes=8, queries=3)
    account = AnswerBook(tmp_path / "account", "clinic", config, None)
    clinic.options = {"policy": Policy(config), "account": account}
    clinic.restart()
    said = clinic.ask(clinic.question((4,), sigma=20.0, levels=4, kernel="quadratic"))
    assert isinstance(said, Failure) and said.code == "refused-noise"
    assert isinstance(clinic.ask(clinic.question((4, 9, 17))), Counts)
    over = clinic.ask(clinic.question((5,)))
    assert isinstance(over, Failure) and over.code == "refused-queries"
    assert account.spent() == 0.0, "records pay, at record level"
    assert clinic.ask(clinic.question((5,), mode="masked")).code == "refused-mode"
    account.close()


def test_the_file_of_budgets_shows_no_record_and_is_for_its_owner_alone(clinic: Clinic, tmp_path: Path) -> None:
    clinic.ask(clinic.question(tuple(range(60))))
    path = tmp_path / FILE
    assert path.stat().st_mode & 0o077 == 0
    stored = b"".join(part.read_bytes() for part in tmp_path.glob(f"{FILE}*"))
    everything = records()
    assert not any(row.tobytes() in stored for row in everything.x)
    assert not any(identity in stored for identity in everything.identities())
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT COUNT(*) FROM spent").fetchone()[0] > 10


def test_a_damaged_file_is_an_error_of_the_party_that_names_no_place(clinic: Clinic, tmp_path: Path) -> None:
    clinic.ask(clinic.question((4,)))
    for path in tmp_path.glob(f"{FILE}*"):
        path.write_bytes(b"no database" * 999)
    clinic.restart()
    answer = clinic.ask(clinic.question((5,)))
    assert isinstance(answer, Failure) and answer.code == "storage" and str(tmp_path) not in answer.message
