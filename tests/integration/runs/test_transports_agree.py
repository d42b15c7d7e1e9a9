"""One scenario, one seed, two transports: Flower's engine and real processes give the same run."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs import but_for_time, failures, histograms, labels_csv, paid, tiny

from collegium.coordinator.run.run_record import RunRecord
from collegium.simulations.cohort import PreparedRun, prepare_run
from collegium.simulations.launcher import launch
from collegium.simulations.simulate import simulate

pytest.importorskip("flwr")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PreparedRun]:
    base = tmp_path_factory.mktemp("runs")
    return {name: prepare_run(tiny(), base / name, data_root=None) for name in ("flower", "processes")}


@pytest.fixture(scope="module")
def runs(prepared: dict[str, PreparedRun]) -> dict[str, tuple[Path, RunRecord]]:
    driven = (("flower", simulate), ("processes", launch))
    return {name: (prepared[name].folder, drive(prepared[name])) for name, drive in driven}


def test_the_labels_are_the_same(runs: dict[str, tuple[Path, RunRecord]]) -> None:
    (flower, _), (processes, _) = runs["flower"], runs["processes"]
    assert labels_csv(flower) == labels_csv(processes)
    assert len(labels_csv(flower).splitlines()) == 13
    assert paid(flower).labels == paid(processes).labels


@pytest.mark.usefixtures("runs")
def test_the_votes_are_the_same(prepared: dict[str, PreparedRun]) -> None:
    """Of the teachers that the parties fitted in either run and left in their folders."""
    votes = histograms(prepared["flower"])
    assert votes == histograms(prepared["processes"])
    assert len(votes) == 12 and all(sum(counts) == 6 for counts in votes)
    for run in prepared.values():
        assert len(list((run.folder / "parties").glob("*/teachers/*"))) == 6, "none was fitted for this test"


def test_the_reports_agree_on_everything_but_time_and_place(runs: dict[str, tuple[Path, RunRecord]]) -> None:
    (_, flower), (_, processes) = runs["flower"], runs["processes"]
    for key in ("asked", "labels", "privacy", "parties", "pool", "student", "state"):
        assert getattr(but_for_time(flower), key) == getattr(but_for_time(processes), key), key
    assert flower.state == "finished" and failures(flower) == {}
    # A round's name holds the ledger's, which tells when it was made.
    assert len(flower.rounds) == len(processes.rounds) > 0


def test_the_ledgers_agree_and_only_real_processes_sign(runs: dict[str, tuple[Path, RunRecord]]) -> None:
    (flower, of_flower), (processes, of_processes) = runs["flower"], runs["processes"]
    assert paid(flower).epsilon == paid(processes).epsilon
    assert paid(flower).queries == paid(processes).queries == 12
    assert not of_flower.ledger.signed and of_processes.ledger.signed
