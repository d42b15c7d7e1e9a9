"""Runs go on after a round failed late, although a party has joined or left since or another folder asks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_wine
from sklearn.utils import shuffle
from support.liar import phase_of
from support.misbehaving import Misbehaving
from support.nearest import AGREED

import collegium as cg
from collegium.coordinator.journal import Journal
from collegium.coordinator.kinds.labels import Labels
from collegium.coordinator.run import coordinator as run
from collegium.coordinator.run.checks import studies_about
from collegium.coordinator.run.run_folder import read_labels
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples
from collegium.errors import QuorumNotReached
from collegium.settings import validate_config

pytestmark = pytest.mark.slow

X, Y = shuffle(*load_wine(return_X_y=True), random_state=0)
NAMES = [f"c-{n}" for n in range(6)]
TASK = cg.Task.from_array(X[:40], classes=["a", "b", "c"])
POLICY = cg.PolicyConfig(
    **AGREED,
    minimum_noise_votes=1,
    minimum_noise_sums=0.05,
    record_epsilon=90.0,
    record_rho=0.5,
    queries=1000,
)

VOTES: dict[str, Any] = {
    "mechanism": {"name": "gnmax", "parameters": {"sigma": 3.0}},
    "teachers": {"kind": "random-forest", "options": {"trees": 5}},
}
SUMS: dict[str, Any] = {"mechanism": {"name": "class-sums", "parameters": {"sigma": 3.0}}}
SAMPLED: dict[str, Any] = {
    "mechanism": {
        "name": "knn",
        "parameters": {"sigma1": 8.0, "sigma2": 5.0, "threshold": 1.0, "sampling_rate": 0.5},
    },
    "neighbours": {"share": 0.2, "features": "standard", "dimensions": 8, "k": 9},
    "budget": {"epsilon": 60.0, "bound": "classic"},  # the game of a sampled winner takes longer than all runs here
}


class Clinics(Misbehaving):
    """Six of them; `gone` says at which phase of a sum each goes away, ``votes`` before the first."""

    def __init__(self, folder: Path) -> None:
        records = {name: (X[40 + n :: 6], Y[40 + n :: 6]) for n, name in enumerate(NAMES)}
        self.gone: dict[str, str] = {}
        super().__init__(records, TASK, policy=POLICY, folder=folder)

    def names(self) -> list[str]:
        return [name for name in super().names() if name in self.signing_keys and self.gone.get(name) != "votes"]

    def ask(self, requests: Mapping[str, Any], **options: Any) -> Any:
        with self.cut_off(lambda name, body: self.gone.get(name) in ("votes", phase_of(body))):
            return super().ask(requests, **options)

    def opened(self) -> list[list[str]]:
        """Of each sum that the coordinator opened under masks, whose vectors are in it."""
        return [sorted(sent) for sent in self.asked if "unmask" in map(phase_of, sent.values())]


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
        positions: list[int] | None = None,
        study: str | None = None,
        pool: int = 40,
    ) -> RunRecord:
        values = {
            "name": "local",
            "task": TASK,
            "pool": {"source": "wine"},
            "budget": {"epsilon": 60.0},
            "queries": {"count": 12 if positions is None else len(positions), "batch": 4},
            "student": {"method": "random-forest", "options": {"trees": 5}},
            "votes": {"mode": mode, "quorum": 0.6},
        }
        keys = dict(clinics.signing_keys)
        return run.CoordinatorRun(
            validate_config(values | asked, RunConfig, "test"),
            run.Reach(clinics, roster=sorted(keys), signing_keys=keys),
            run.Storage(tmp_path / folder, ledger=tmp_path / "ledger.sqlite", study=study),
            public=PublicData(Examples(cg.encode(X[:pool] if positions is None else X[positions], TASK))),
        ).label()

    return driven


@pytest.mark.parametrize(
    ("asked", "mode", "change", "answered"),
    [
        (VOTES, "masked", "joins", 12),
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
    """The sum that waits is opened by those who are left; sampled records are asked anew, and their batch is lost.

    Without the parties' noise, nobody opens a second sum of these inputs over another roster.
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
    assert ("4 inputs cannot be asked again: their one exact sum was begun" in caplog.text) == (answered is None)


@pytest.mark.parametrize("lost", [False, True])
def test_every_run_under_a_ledger_asks_the_parties_of_a_begun_sum(
    drive: Drive, clinics: Clinics, tmp_path: Path, lost: bool
) -> None:
    """As another run does, or this one once its folder was deleted; where what opens the sum is lost, all of them.

    Each folder had its own notes: parties refused the other's inputs for good, as they had signed another list.
    """
    clinics.gone = {"c-5": "mask_input"} | dict.fromkeys(NAMES[1:3], "unmask")
    with pytest.raises(QuorumNotReached):
        drive(VOTES, "masked", positions=[3, 4, 5, 6])
    clinics.gone = {"c-1": "votes"}
    (begun,) = tmp_path.glob("open-sum-*")
    if lost:
        begun.unlink()
        with pytest.raises(QuorumNotReached, match="c-1 must be there"):
            drive(VOTES, "masked", "other", positions=[5, 9])
        clinics.gone = {}
    for folder, positions in (("other", [5, 9]), ("run", [3, 4, 5, 6])):
        labels = drive(VOTES, "masked", folder, positions=positions).labels
        assert labels is not None and (labels.answered, labels.stopped) == (len(positions), None)


def test_a_second_study_takes_the_labels_of_the_first_and_the_parties_give_no_second_sum(
    drive: Drive, clinics: Clinics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The difference of two sums would be what a party said; studies that know nothing of each other are refused.

    The second pool has grown, and its inputs are known again.
    """
    drive(VOTES, "masked", "one", [3, 4, 5, 6], "one")
    assert studies_about(tmp_path / "ledger.sqlite", cg.encode(X[:48], TASK)) == {"one"}, "a check warns of it"
    assert not studies_about(tmp_path / "ledger.sqlite", cg.encode(X[48:], TASK))
    clinics.gone = {"c-5": "votes"}
    labels = drive(VOTES, "masked", "two", [3, 4, 5, 6], "two", 48).labels
    assert labels is not None and labels.answered == 4 and len(clinics.opened()) == 1
    given = [read_labels(tmp_path / study / "labels.csv") for study in ("one", "two")]
    assert given[0] == given[1]
    with monkeypatch.context() as changed, pytest.raises(QuorumNotReached, match="refused-queries"):
        changed.setattr(Journal, "begun", lambda _, queries: [None] * len(queries))
        changed.setattr(Labels, "all", lambda self: self._ledger.labels())
        drive(VOTES, "masked", "three", [3, 4, 5, 6], "three", 48)
    assert len(clinics.opened()) == 1
    labels = drive(VOTES, "masked+noised", "four", [3, 4, 5, 6], "four", 48).labels
    assert labels is not None and labels.answered == 4


def test_a_party_that_joins_is_in_no_sum_about_what_was_opened_without_it(drive: Drive, clinics: Clinics) -> None:
    """The difference of two such sums would be the newcomer's votes."""
    sixth = clinics.signing_keys.pop("c-5")
    drive(VOTES, "masked", "one", [3, 4], "one")
    clinics.signing_keys["c-5"] = sixth
    labels = drive(VOTES, "masked", "two", [3, 4, 5, 6], "two").labels
    assert labels is not None and labels.answered == 4
    before, fresh = clinics.opened()
    assert "c-5" in fresh and "c-5" not in before
    assert {question.inputs.indices for _, question in clinics.questions()} == {(0, 1), (2, 3)}, "no input again"


def test_an_input_whose_sum_another_study_began_is_asked_with_the_parties_noise_alone(
    drive: Drive, clinics: Clinics, caplog: pytest.LogCaptureFixture
) -> None:
    clinics.gone = dict.fromkeys(NAMES[2:5], "sign_survivors")
    with pytest.raises(QuorumNotReached):
        drive(VOTES, "masked", "one", [3, 4], "one")
    clinics.gone = {}
    with caplog.at_level(logging.WARNING, "collegium.coordinator"):
        labels = drive(VOTES, "masked", "two", [3, 4, 5, 6], "two").labels
    assert labels is not None and (labels.answered, labels.left_out) == (2, 2)
    assert "2 inputs cannot be asked again" in caplog.text and "another study's" in caplog.text


def test_a_study_of_other_classes_takes_no_label_that_means_another_class(drive: Drive) -> None:
    drive(VOTES, "masked", "one", [3, 4], "one")
    other = TASK.model_copy(update={"classes": ("b", "a", "c")})
    labels = drive(VOTES | {"task": other}, "masked", "two", [3, 4], "two").labels
    assert labels is not None and (labels.answered, labels.left_out) == (0, 2)
