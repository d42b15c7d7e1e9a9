"""Runs go on after a round failed late, although a party has joined or left since or another folder asks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from sklearn.datasets import load_wine
from sklearn.utils import shuffle

import collegium as cg
from collegium.coordinator.rounds.masked_sum import BegunSums, MaskedSum
from collegium.coordinator.rounds.rounds import InputsLost, RoundResult, VoteRound
from collegium.coordinator.run import coordinator as run
from collegium.coordinator.run.checks import studies_about
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples
from collegium.data.task import TeacherSettings
from collegium.errors import QuorumNotReached
from collegium.protocol.replies import Failure, Prepared
from collegium.protocol.requests import CastVotes, PoolRange, SecureSumStep, Terms
from collegium.protocol.secure_sum import plan_graph
from collegium.settings import validate_config

pytestmark = pytest.mark.slow

X, Y = shuffle(*load_wine(return_X_y=True), random_state=0)
NAMES = [f"c-{n}" for n in range(6)]
TASK = cg.task_of(X[:40], classes=["a", "b", "c"])
POLICY = cg.PolicyConfig(
    minimum_noise_votes=1, minimum_noise_sums=0.05, record_epsilon=90.0, record_rho=0.5, queries=1000
)

VOTES: dict[str, Any] = {
    "mechanism": {"name": "gnmax", "parameters": {"sigma": 3.0}},
    "teachers": {"kind": "random-forest"},
}
SUMS: dict[str, Any] = {"mechanism": {"name": "class-sums", "parameters": {"sigma": 3.0}}}
SAMPLED: dict[str, Any] = {
    "mechanism": {
        "name": "knn",
        "parameters": {"sigma1": 8.0, "sigma2": 5.0, "threshold": 1.0, "sampling_rate": 0.5},
    },
    "neighbours": {"share": 0.2, "features": "standard", "dimensions": 8, "k": 9},
}


class Clinics(cg.LocalParties):
    """Six of them; `gone` says at which phase of a sum each goes away, ``votes`` before the first."""

    def __init__(self, folder: Path) -> None:
        records = {name: (X[40 + n :: 6], Y[40 + n :: 6]) for n, name in enumerate(NAMES)}
        self.gone: dict[str, str] = {}
        super().__init__(records, TASK, policy=POLICY, folder=folder)

    def names(self) -> list[str]:
        return [name for name in super().names() if name in self.signing_keys and self.gone.get(name) != "votes"]

    def ask(self, requests: Mapping[str, Any], **options: Any) -> Any:
        def heard(name: str, body: Any) -> bool:
            phase = body.message.WhichOneof("phase") if isinstance(body, SecureSumStep) else "votes"
            return self.gone.get(name) not in ("votes", phase)

        replies = super().ask({name: body for name, body in requests.items() if heard(name, body)}, **options)
        return replies | dict.fromkeys(requests.keys() - replies.keys(), Failure("unreachable", "gone"))


Drive = Callable[..., RunRecord]


@pytest.fixture
def clinics(tmp_path: Path) -> Clinics:
    return Clinics(tmp_path / "parties")


@pytest.fixture
def drive(clinics: Clinics, tmp_path: Path) -> Drive:
    def driven(
        asked: dict[str, Any],
        mode: str,
        folder: str = "run",
        positions: Any = None,
        study: str | None = None,
        pool: int = 40,
    ) -> RunRecord:
        values = {
            "name": "local",
            "task": TASK,
            "pool": {"source": "wine"},
            "budget": {"epsilon": 60.0},
            "queries": {"count": 12 if positions is None else len(positions), "batch": 4},
            "student": {"method": "random-forest"},
            "votes": {"mode": mode, "quorum": 0.6},
        }
        keys = dict(clinics.signing_keys)
        return run.Coordinator(
            validate_config(values | asked, RunConfig, "test"),
            run.Reach(clinics, roster=sorted(keys), signing_keys=keys),
            run.Storage(tmp_path / folder, ledger=tmp_path / "ledger.sqlite", study=study),
            public=PublicData(Examples(cg.encode(X[:pool], TASK))),
            positions=positions,
        ).label()

    return driven


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[RoundResult]:
    """The sums that the coordinator opened under masks, in order."""
    opened: list[RoundResult] = []
    added = MaskedSum.sum_votes

    def watched(self: MaskedSum, round_: VoteRound) -> RoundResult:
        opened.append(added(self, round_))
        return opened[-1]

    monkeypatch.setattr(MaskedSum, "sum_votes", watched)
    return opened


@pytest.mark.parametrize(
    ("asked", "mode", "change", "answered"),
    [
        (VOTES, "masked", "joins", 8),
        (SAMPLED, "masked", "leaves", None),
        (VOTES, "masked+noised", "joins", 12),
        (SUMS, "masked+noised", "leaves", 40),
    ],
)
def test_a_run_whose_round_failed_goes_on_when_a_party_joins_or_leaves(
    drive: Drive,
    clinics: Clinics,
    caplog: pytest.LogCaptureFixture,
    asked: dict[str, Any],
    mode: str,
    change: str,
    answered: int | None,
) -> None:
    """Without the parties' noise, those who remain open no sum of these inputs over another roster: the batch is lost.

    They refused every further start of the run.
    """
    sixth = clinics.signing_keys.pop("c-5") if change == "joins" else b""
    clinics.gone = dict.fromkeys(NAMES[2:5], "sign_survivors")
    with pytest.raises(QuorumNotReached):
        drive(asked, mode)
    clinics.gone = {}
    if change == "joins":
        clinics.signing_keys["c-5"] = sixth
    else:
        del clinics.signing_keys["c-4"]
    with caplog.at_level(logging.WARNING, "collegium.coordinator"):
        labels = drive(asked, mode).labels
    assert labels is not None and labels.stopped is None
    assert labels.answered == answered or (answered is None and labels.answered + labels.abstained == 8)
    assert ("4 inputs cannot be asked again: parties have joined or left" in caplog.text) == (mode == "masked")


def test_every_run_under_a_ledger_asks_the_parties_of_a_begun_sum(drive: Drive, clinics: Clinics) -> None:
    """As a student's job does, or the run once its folder was deleted.

    Each folder had its own notes: parties refused the other's inputs for good, as they had signed another list.
    """
    clinics.gone = {"c-5": "mask_input"} | dict.fromkeys(NAMES[1:3], "unmask")
    with pytest.raises(QuorumNotReached):
        drive(VOTES, "masked", positions=[3, 4, 5, 6])
    clinics.gone = {"c-1": "votes"}
    with pytest.raises(QuorumNotReached, match="c-1 must be there"):
        drive(VOTES, "masked", "job", positions=[5, 9])
    clinics.gone = {}
    for folder, positions in (("job", [5, 9]), ("run", [3, 4, 5, 6])):
        labels = drive(VOTES, "masked", folder, positions=positions).labels
        assert labels is not None and (labels.answered, labels.stopped) == (len(positions), None)


def test_a_second_study_has_no_exact_sum_of_the_same_inputs(drive: Drive, clinics: Clinics, tmp_path: Path) -> None:
    """Its difference from the first would show a party that is in one of them; with the parties' noise it is asked."""
    drive(VOTES, "masked", "one", [3, 4, 5, 6], "one")
    assert studies_about(tmp_path / "ledger.sqlite", cg.encode(X[:48], TASK)) == {"one"}, "a check warns of it"
    assert not studies_about(tmp_path / "ledger.sqlite", cg.encode(X[48:], TASK))
    for gone in ({}, {"c-5": "votes"}):
        clinics.gone = gone
        with pytest.raises(QuorumNotReached):
            drive(VOTES, "masked", "two", [3, 4, 5, 6], "two", 48)
    labels = drive(VOTES, "masked+noised", "three", [3, 4, 5, 6], "three", 48).labels
    assert labels is not None and labels.answered == 4


def test_where_so_many_have_joined_that_those_of_the_sum_before_are_no_quorum_its_inputs_are_lost() -> None:
    begun, roster, parties = BegunSums(), {name: name.encode() for name in NAMES}, Mock()
    parties.ask = lambda requests, **_: {name: Prepared(one.round_id) for name, one in requests.items()}
    begun.note(["0" * 16], "the roster before", NAMES[:3])
    adding = MaskedSum(parties, "trial", roster, plan_graph(6, 0.0, 0.1), begun=begun)
    terms = Terms("gnmax", {"sigma": 2.0}, sum_mode="masked")
    asked = CastVotes(terms, TeacherSettings(kind="linear"), PoolRange("0" * 64, (0,)), "round-1", "ledger")
    with pytest.raises(InputsLost, match="an input has one exact sum"):
        adding.sum_votes(VoteRound(asked, dict.fromkeys(roster, 1), 2, 1.0, 3, contents=[bytes(8)]))
