"""One scenario, one seed, two transports: Flower's engine and real processes give the same run."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs import but_for_time, failures, histograms, labels_csv, paid, tiny

from collegium.coordinator.run.run_record import RunRecord
from collegium.simulations.cohort import prepare_run
from collegium.simulations.launcher import launch
from collegium.simulations.simulate import simulate

pytest.importorskip("flwr")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, RunRecord]]:
    base = tmp_path_factory.mktemp("runs")
    done = {}
    for name, drive in (("flower", simulate), ("processes", launch)):
        prepared = prepare_run(tiny(), base / name, data_root=None)
        done[name] = (base / name, drive(prepared))
    return done


def test_the_labels_are_the_same(runs: dict[str, tuple[Path, RunRecord]]) -> None:
    (flower, _), (processes, _) = runs["flower"], runs["processes"]
    assert labels_csv(flower) == labels_csv(processes)
    assert len(labels_csv(flower).splitlines()) == 13
    assert paid(flower).labels == paid(processes).labels


def test_the_votes_are_the_same(runs: dict[str, tuple[Path, RunRecord]]) -> None:
    (flower, _), (processes, _) = runs["flower"], runs["processes"]
    kept = histograms(flower)
    assert kept == histograms(processes)
    assert len(kept) == 12
    assert all(sum(counts) == 6 for counts in kept.values())


def test_the_reports_agree_on_everything_but_time_and_place(runs: dict[str, tuple[Path, RunRecord]]) -> None:
    (_, flower), (_, processes) = runs["flower"], runs["processes"]
    for key in ("asked", "labels", "privacy", "parties", "pool", "student", "research_only", "state"):
        assert getattr(but_for_time(flower), key) == getattr(but_for_time(processes), key), key
    assert flower.state == "finished" and failures(flower) == {}
    # A round's name holds the ledger's, which tells when it was made.
    assert len(flower.rounds) == len(processes.rounds) > 0


def test_the_ledgers_agree_and_only_real_processes_sign(runs: dict[str, tuple[Path, RunRecord]]) -> None:
    (flower, of_flower), (processes, of_processes) = runs["flower"], runs["processes"]
    assert paid(flower).epsilon == paid(processes).epsilon
    assert paid(flower).queries == paid(processes).queries == 12
    assert not of_flower.ledger.signed and of_processes.ledger.signed
