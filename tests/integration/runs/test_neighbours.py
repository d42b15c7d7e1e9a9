"""Records that vote on their neighbours, over Flower's engine and over real processes: the same runs as in one process.

Both mechanisms ask the same parties, one after the other.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs import InProcess, but_for_time, failures, labels_csv, paid, tiny

from collegium.coordinator.rounds.rounds import Parties
from collegium.coordinator.run import open_run
from collegium.coordinator.run.announced import announced_terms
from collegium.coordinator.run.coordinator import CoordinatorRun
from collegium.coordinator.run.run_record import RunRecord
from collegium.parties.answer_book import FILE
from collegium.protocol.roster import AnnouncedTerms
from collegium.simulations import launcher
from collegium.simulations.cohort import ROSTER, CohortMember, PreparedRun, prepare_run
from collegium.simulations.launcher import launch, write_party_config
from collegium.simulations.simulate import coordinator_of, on_engine

pytest.importorskip("flwr")

RADIUS: dict[str, Any] = {
    # Within the ρ that a party's policy allows a record unless it says otherwise.
    "mechanism": {"name": "individual-knn", "parameters": {"sigma": 8.0, "participations": 1}},
    "neighbours": {"share": 0.1, "dimensions": 16},
    "partition": {"parties": 4},
    "engine": {"workers": 1},
}
SAMPLED: dict[str, Any] = {
    "mechanism": {
        "name": "knn",
        "parameters": {"threshold": 6.0, "sigma1": 1.0, "sigma2": 1.0, "sampling_rate": 0.5},
    },
    "neighbours": {"features": "hog", "dimensions": 8, "share": 0.03, "k": 8},
    "queries": {"count": 12, "batch": 5},
    "partition": {"parties": 4},
    "votes": {"quorum": 0.7},
    "student": {"method": "supervised", "options": {"steps": 2, "network": "mlp"}},
}
KINDS = {"even": (0, 2, 4, 6, 8), "loop": (0, 6, 8, 9), "large": (5, 6, 7, 8, 9)}
SEVERAL: dict[str, Any] = {
    "task": {"classes": list(KINDS), "multilabel": True},
    "mechanism": {"name": "multilabel-knn", "parameters": {"tau": 2.0, "sigma": 1.0, "sampling_rate": 0.5}},
    "neighbours": {"features": "hog", "dimensions": 8, "share": 0.03, "k": 8},
    "queries": {"count": 12, "batch": 12},
    "student": {"method": "supervised", "options": {"steps": 2, "network": "linear"}},
}
"""Digits by kinds of which each is several."""
RUNS = {"radius": RADIUS, "sampled": SAMPLED}
Done = tuple[Path, RunRecord]


class InTurn:
    """Coordinators of several runs, one after the other in the place of one."""

    def __init__(self, folder: Path, coordinators: list[CoordinatorRun]) -> None:
        self.folder, self._coordinators = folder, coordinators

    def check(self) -> None:
        for one in self._coordinators:
            one.check()

    def run(self) -> list[RunRecord]:
        said = []
        for one in self._coordinators:
            said.append(one.run())
            for kept in self.folder.rglob(FILE):  # the institutions agree to the ledger of the next run
                with closing(sqlite3.connect(kept, isolation_level=None)) as book:
                    book.execute("DELETE FROM head")
        return said


@pytest.fixture(scope="module")
def one_ledger() -> Iterator[None]:
    """Ledgers of other names draw other samples; here runs are compared label by label."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_run, "ledger_id", lambda ledger: "ledger")
        yield


def prepared(folder: Path) -> list[PreparedRun]:
    """Two runs by the parties of the first."""
    runs = [prepare_run(tiny(**changes), folder / name, data_root=None) for name, changes in RUNS.items()]
    shutil.copy(runs[0].folder / ROSTER, runs[1].folder / ROSTER)
    return runs


def finished(runs: list[PreparedRun], said: list[RunRecord]) -> dict[str, Done]:
    return {name: (run.folder, record) for name, run, record in zip(RUNS, runs, said, strict=True)}


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory, one_ledger: None) -> dict[str, Done]:
    runs, said = prepared(tmp_path_factory.mktemp("flower")), []

    def drive(parties: Parties) -> None:
        said.extend(coordinator_of(run, parties, None).run() for run in runs)

    on_engine(runs[0], drive)
    return finished(runs, said)


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory, one_ledger: None) -> dict[str, Done]:
    runs = prepared(tmp_path_factory.mktemp("processes"))

    def both(_: PreparedRun, parties: Parties, on_progress: Any, **options: Any) -> InTurn:
        return InTurn(runs[0].folder, [coordinator_of(run, parties, on_progress, **options) for run in runs])

    def agreed_to_both(*_: Any) -> AnnouncedTerms:
        """The policies of the first run's parties agree to the smaller noise and to the answers of both runs."""
        terms = [announced_terms(run.config, run.config.queries.count, run.public.spec) for run in runs]
        smallest = min(one.noise_votes for one in terms)
        kinds = tuple(kind for one in terms for kind in one.questions)
        answers = 2 * sum(one.answers for one in terms)
        return terms[0].model_copy(update={"noise_votes": smallest, "answers": answers, "questions": kinds})

    def of_both(run: PreparedRun, member: CohortMember, port: int) -> Path:
        path = write_party_config(run, member, port)
        policy = member.folder / launcher.POLICY
        agreed = policy.read_text(encoding="utf-8").replace('"individual-knn"]', '"individual-knn", "knn"]')
        policy.write_text(agreed, encoding="utf-8")
        return path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launcher, "coordinator_of", both)
        patch.setattr(launcher, "announced_terms", agreed_to_both)
        patch.setattr(launcher, "write_party_config", of_both)
        said: Any = launch(runs[0])
    return finished(runs, said)


@pytest.fixture(scope="module")
def in_process(tmp_path_factory: pytest.TempPathFactory, one_ledger: None) -> Callable[..., Done]:
    def run(name: str) -> Done:
        chosen = prepare_run(tiny(**RUNS[name]), tmp_path_factory.mktemp(name), data_root=None)
        return chosen.folder, coordinator_of(chosen, InProcess(chosen), None).run()

    return run


def same(one: Done, other: Done) -> None:
    (folder, of_one), (beside, of_other) = one, other
    assert labels_csv(folder) == labels_csv(beside) and len(labels_csv(folder).splitlines()) == 13
    assert paid(folder).epsilon == paid(beside).epsilon
    for key in ("asked", "labels", "privacy", "pool", "state"):
        assert getattr(but_for_time(of_one), key) == getattr(but_for_time(of_other), key), key
    # Networks are trained in floating point: the order of scores may differ between processes, their classes may not.
    one_student, other_student = of_one.student, of_other.student
    assert one_student.fitted_from == other_student.fitted_from
    assert one_student.quality.confusion == other_student.quality.confusion
    assert of_one.state == "finished" and of_one.sum_mode == "masked"


def test_records_within_a_radius_answer_alike_over_every_transport(
    flower: dict[str, Done], processes: dict[str, Done], in_process: Callable[..., Done]
) -> None:
    here = in_process("radius")
    for done in (flower["radius"], processes["radius"]):
        same(done, here)
        assert failures(done[1]) == {} and done[1].labels.answered == 12


def test_every_party_keeps_the_budgets_of_its_records(flower: dict[str, Done], processes: dict[str, Done]) -> None:
    for folder in (flower["radius"][0], processes["radius"][0]):
        assert len(list((folder / "parties").glob(f"*/{FILE}"))) == 4
        assert not (folder / FILE).exists()


def test_the_nearest_of_a_sample_answer_alike_over_every_transport(
    flower: dict[str, Done], processes: dict[str, Done], in_process: Callable[..., Done]
) -> None:
    here = in_process("sampled")
    for folder, run in (flower["sampled"], processes["sampled"]):
        same((folder, run), here)
        assert failures(run) == {} and 2 < run.labels.answered < run.labels.asked == 12


def test_records_of_several_labels_answer_alike_as_real_processes(tmp_path: Path, one_ledger: None) -> None:
    from sklearn.datasets import load_digits

    bunch, file = load_digits(), tmp_path / "kinds.npz"
    held = np.stack([np.isin(bunch.target, kind) for kind in KINDS.values()], axis=1)
    np.savez(file, x=(bunch.images * 15.9).astype(np.uint8)[..., None], y=held.astype(np.int64))
    parts = {"private": (0, 600), "pool": (1200, 1300), "holdout": (1500, 1700)}
    sources = {
        part: {"source": str(file), "shuffle_seed": None, "start": start, "stop": stop}
        for part, (start, stop) in parts.items()
    }
    here, processes = (prepare_run(tiny(**SEVERAL, **sources), tmp_path / name, data_root=None) for name in "ab")
    run = launch(processes)
    same((processes.folder, run), (here.folder, coordinator_of(here, InProcess(here), None).run()))
    assert failures(run) == {} and labels_csv(processes.folder).startswith("index,even,loop,large\n")
    assert run.labels.quality.accuracy > 0.8
