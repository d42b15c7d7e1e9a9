"""No record ever spends more than its budget, by the transcript alone; and the bugs that would let it are caught.

Every record of the test clinic has a class of its own, so the answers show who voted on what with which weight.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.processes import start_script
from support.record_votes import NEAR, RECORDS, Clinic

from collegium.errors import ProtocolViolation
from collegium.parties.answer_book import AnswerBook
from collegium.parties.kinds import near_records as kind_module
from collegium.parties.kinds.near_records import NearRecords
from collegium.parties.neighbours.budgets import BudgetTransaction, RecordBudgets
from collegium.parties.policy import Policy, PolicyConfig
from collegium.protocol.kinds.near_records import CastNeighbours, weight_units
from collegium.protocol.replies import Counts, Failure
from collegium.protocol.requests import Ask


@dataclass
class Transcript:
    """What left the party, and the judgement over it."""

    answers: dict[tuple[Any, ...], np.ndarray] = field(default_factory=dict)
    terms: dict[tuple[Any, ...], CastNeighbours] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def note(self, run: str, round_id: str, body: CastNeighbours, counts: np.ndarray) -> None:
        noised = round_id if body.terms.noised else ""
        for index, radius, row in zip(body.inputs.indices, body.radii_squared, counts, strict=True):
            key = (run, body.ledger_id, noised, index, radius, body.kernel)
            if (row > body.terms.parameters["levels"]).any():
                self.faults.append("a weight above one")
            if key in self.answers and (self.answers[key] != row).any():
                self.faults.append("a question answered twice, differently")
            self.answers.setdefault(key, row)
            self.terms[key] = body

    def judge(self, record_rho: float) -> set[str]:
        """Faults seen; every record's spending is added up again, per run and over all runs."""
        in_run: dict[tuple[Any, ...], np.ndarray] = {}
        lifetime = np.zeros(RECORDS)
        for key, row in self.answers.items():
            parameters = self.terms[key].terms.parameters
            cost = (row / parameters["levels"]) ** 2 / (2 * parameters["sigma"] ** 2)
            in_run[key[:2]] = in_run.get(key[:2], np.zeros(RECORDS)) + cost
            lifetime += cost
            rho = parameters["participations"] / (2 * parameters["sigma"] ** 2)
            if (in_run[key[:2]] > rho * (1 + 1e-9)).any():
                self.faults.append("a run's budget passed")
        if (lifetime > record_rho * (1 + 1e-9)).any():
            self.faults.append("a lifetime's budget passed")
        return set(self.faults)


RECORD_RHO = 0.03


def live(folder: Path, seed: int, transcript: Transcript, steps: int = 60) -> None:
    """Random runs, rounds and modes; repetitions under the same and other request ids; restarts in between."""
    generator = np.random.default_rng(seed)
    clinic = Clinic(folder, record_rho=RECORD_RHO)
    earlier: list[tuple[str, str, str, CastNeighbours]] = []
    left = set[tuple[str, str]]()
    for step in range(steps):
        if generator.random() < 0.2:
            clinic.restart()
        if earlier and generator.random() < 0.35:
            run, request_id, round_id, body = earlier[generator.integers(len(earlier))]
            request_id = request_id if generator.random() < 0.5 else f"again-{step}"
            if body.terms.noised and generator.random() < 0.7:  # after the round before failed
                request_id, round_id = f"again-{step}", f"round-{step}"
                earlier.append((run, request_id, round_id, body))
        else:
            number, noised = int(generator.integers(3)), generator.random() < 0.3
            request_id, round_id = f"step-{step}", f"round-{step}"
            run = f"{'noised' if noised else 'run'}-{number}"
            quadratic = number == 2
            body = clinic.question(
                tuple(generator.choice(60, generator.integers(1, 8), replace=False).tolist()),
                sigma=[8.0, 12.0, 80.0][number],
                participations=[1, 4, 1][number],
                levels=8 if quadratic else 1,
                kernel="quadratic" if quadratic else "flat",
                radius_squared=int(generator.integers(100, 350)) ** 2,
                mode="masked+noised" if noised else "clear",
                ledger_id=f"ledger-{generator.integers(2)}",
            )
            earlier.append((run, request_id, round_id, body))
        answer = clinic.ask(body, run=run, request_id=request_id, round_id=round_id)
        if isinstance(answer, Counts):
            transcript.note(run, round_id, body, answer.counts)
        elif (run, round_id) not in left and generator.random() < 0.7:  # a round id serves once; some rounds fail
            counts = clinic.party.sums.of(run, round_id).vector
            with contextlib.suppress(ProtocolViolation):  # another round has the same question since
                clinic.party._leave(run, Ask(round_id, body))
                left.add((run, round_id))
                transcript.note(run, round_id, body, counts)


def judged(folder: Path, seeds: Iterable[int] = range(3), **options: Any) -> set[str]:
    faults: set[str] = set()
    for seed in seeds:
        transcript = Transcript()
        live(folder / str(seed), seed, transcript, **options)
        assert sum(row.sum() for row in transcript.answers.values()) > 50, "or nothing was put to the test"
        faults |= transcript.judge(RECORD_RHO)
    return faults


@pytest.mark.slow
def test_no_record_passes_its_budget_whatever_is_asked_repeated_and_restarted(tmp_path: Path) -> None:
    assert judged(tmp_path) == set()


def test_budgets_are_used_up_and_not_merely_kept(tmp_path: Path) -> None:
    """The filter stops records at their budgets: a bound ten per cent lower is passed by some."""
    transcript = Transcript()
    live(tmp_path, 0, transcript)
    assert transcript.judge(RECORD_RHO * 0.9) == {"a lifetime's budget passed"}


@pytest.mark.slow
def test_a_record_used_once_too_often_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    admit = BudgetTransaction.admit

    def planted(book: BudgetTransaction, people: np.ndarray, units: np.ndarray) -> np.ndarray:
        spent = book._units_squared[people]
        admitted = admit(book, people, units)
        admitted[spent == book._terms.units_squared] = True
        return admitted

    monkeypatch.setattr(BudgetTransaction, "admit", planted)
    assert "a run's budget passed" in judged(tmp_path)


@pytest.mark.slow
def test_weights_above_one_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(distances: np.ndarray, radius: int, kernel: str, levels: int) -> np.ndarray:
        return weight_units(distances, radius, kernel, levels) * 2

    monkeypatch.setattr(kind_module, "weight_units", planted)
    assert "a weight above one" in judged(tmp_path)


@pytest.mark.slow
def test_spending_lost_in_a_restart_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BudgetTransaction, "write", lambda book: None)
    assert {"a run's budget passed", "a lifetime's budget passed"} <= judged(tmp_path)


def test_a_round_that_leaves_after_another_took_its_answer_up_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the parties add the noise, an answer is paid for one round alone."""
    monkeypatch.setattr(RecordBudgets, "leave", lambda budgets, round_id, questions: None)
    assert "a run's budget passed" in judged(tmp_path, seeds=range(1))


@pytest.mark.slow
def test_an_answer_that_is_not_kept_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BudgetTransaction, "answer", lambda *_: None)
    monkeypatch.setattr(BudgetTransaction, "keep", lambda *_: None)
    assert "a question answered twice, differently" in judged(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_process_loses_no_spending_and_answers_the_same(when: str, tmp_path: Path) -> None:
    """Killed around the commit: what was not on the disk was never said, what was is said again at no cost."""
    whole = Clinic(tmp_path / "whole")
    first, second = tuple(range(20)), tuple(range(40))
    expected = [whole.ask(whole.question(positions)).counts for positions in (first, second)]

    killed = tmp_path / "killed"
    listed = ",".join(map(str, first))
    died = start_script("neighbour_crash_worker", killed, when, listed, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _, err = died.communicate(timeout=120)
    assert died.returncode == 9, err
    clinic = Clinic(killed)
    transcript = Transcript()
    for positions, counts in zip((first, second), expected, strict=True):
        body = clinic.question(positions)
        answer = clinic.ask(body).counts
        assert (answer == counts).all()
        transcript.note("run", "round", body, answer)
    assert transcript.judge(1.0) == set()
    if when == "after":  # what was paid before the end is there: another question of the run pays anew
        fresh = Clinic(killed)
        others = fresh.ask(fresh.question(first, radius_squared=NEAR + 1), round_id="other").counts
        assert (others.sum(axis=0) + expected[1].sum(axis=0)).max() <= 2


def votes_as_one(folder: Path, **asked: Any) -> np.ndarray:
    """The party's votes as one voter on all inputs of the pool, over restarts; ``[queries, classes]``."""
    clinic, rows = Clinic(folder, record_rho=0.03), []
    for start in range(0, 60, 6):
        body = clinic.question(tuple(range(start, start + 6)), per_party=True, **asked)
        answer = clinic.ask(body, round_id=f"round-{start}")
        assert isinstance(answer, Counts)
        again = clinic.ask(body, round_id=f"round-{start}", request_id=f"again-{start}")
        assert (again.counts == answer.counts).all()
        rows.append(answer.counts)
        clinic.restart()
    return np.concatenate(rows)


def test_a_party_as_one_voter_casts_one_vote_a_query_and_no_more_than_its_participations(tmp_path: Path) -> None:
    votes = votes_as_one(tmp_path / "a", participations=5, sigma=20.0, radius_squared=2**24)  # all records are near all
    assert votes.sum(axis=1).tolist() == [1] * 5 + [0] * 55
    votes = votes_as_one(tmp_path / "b", participations=10**4, sigma=20.0, radius_squared=2**24)
    assert votes.sum() == int(0.03 / 2 * 2 * 20.0**2)  # half of what the institution allows a record over all runs


def test_a_party_as_one_voter_abstains_where_no_record_is_near_and_votes_by_its_nearest(tmp_path: Path) -> None:
    votes = votes_as_one(tmp_path, participations=60, sigma=60.0)
    near = Clinic(None).ask(Clinic(None).question(tuple(range(60)), participations=60, sigma=60.0)).counts
    assert 0 < (votes.sum(axis=1) == 0).sum() < 60
    assert (votes.sum(axis=1) == (near.sum(axis=1) > 0)).all() and (votes <= near).all()


def test_a_party_whose_records_vote_each_for_itself_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the records are voters of their own although the party is to be one."""
    original = NearRecords.compute
    alone = lambda self, body, asked: original(self, replace(body, per_party=False), asked)  # noqa: E731
    monkeypatch.setattr(NearRecords, "compute", alone)
    assert votes_as_one(tmp_path, participations=5, radius_squared=2**24).sum(axis=1).max() > 1


def test_a_partys_own_limit_holds_for_its_votes_as_one_and_is_not_shared(tmp_path: Path) -> None:
    """ρ = 5/200 costs ε = 0.9 at δ = 1e-5; a record pays as one that changes votes of both signs, with 2ρ."""
    for limit, refused in ((1.2, False), (0.8, True)):
        folder = tmp_path / str(limit)
        policy = PolicyConfig(sum_modes=("clear",), minimum_noise_votes=1.0, record_rho=1.0, epsilon=limit)
        account = AnswerBook(folder, "clinic", policy, None)
        clinic = Clinic(folder, policy=Policy(policy), account=account)
        answer = clinic.ask(clinic.question((1, 2), participations=5, per_party=True))
        assert isinstance(answer, Failure) == refused and 0.85 < account.spent() < 0.95
        assert 1.25 < account.record_spent_altogether()[0] < 1.6
        account.close()


def test_voters_of_both_kinds_would_spend_more_than_a_record_may_and_are_refused(tmp_path: Path) -> None:
    for first in (True, False):
        clinic = Clinic(tmp_path / str(first))
        assert isinstance(clinic.ask(clinic.question((1, 2), per_party=first)), Counts)
        clinic.restart()
        refused = clinic.ask(clinic.question((3, 4), per_party=not first), round_id="other")
        assert isinstance(refused, Failure) and refused.code == "refused-cost"
        assert isinstance(clinic.ask(clinic.question((3, 4), per_party=first), round_id="next"), Counts)
