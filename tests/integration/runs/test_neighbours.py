"""Records that vote on their neighbours, over Flower's engine and over real processes: the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_parts import but_for_time, failures, labels_csv, paid, tiny

from collegium.parties.neighbours.budgets import FILE
from collegium.simulations.launcher import launch
from collegium.simulations.simulate import prepare_run, simulate

pytest.importorskip("flwr")

CHANGES: dict[str, Any] = {
    # Within the ρ that a party's policy allows a record unless it says otherwise.
    "mechanism": {"name": "individual-knn", "parameters": {"sigma": 8.0, "participations": 1}},
    "neighbours": {"share": 0.1, "dimensions": 16},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, Any]]]:
    base = tmp_path_factory.mktemp("runs")
    done = {}
    for name, drive in (("flower", simulate), ("processes", launch)):
        prepared = prepare_run(tiny(**CHANGES), base / name, data_root=None)
        done[name] = (base / name, drive(prepared))
    return done


def test_labels_and_costs_are_the_same_over_both_transports(runs: dict[str, tuple[Path, dict[str, Any]]]) -> None:
    (flower, of_flower), (processes, of_processes) = runs["flower"], runs["processes"]
    assert failures(of_flower) == {} == failures(of_processes)
    assert labels_csv(flower) == labels_csv(processes) and len(labels_csv(flower).splitlines()) == 13
    assert paid(flower).epsilon == paid(processes).epsilon
    for key in ("asked", "labels", "privacy", "pool", "student", "state"):
        assert but_for_time(of_flower[key]) == but_for_time(of_processes[key]), key
    assert of_flower["state"] == "finished" and of_flower["labels"]["answered"] == 12
    assert (processes / "report.html").is_file()


def test_every_party_keeps_the_budgets_of_its_records(runs: dict[str, tuple[Path, dict[str, Any]]]) -> None:
    for folder, _ in runs.values():
        assert len(list((folder / "parties").glob(f"*/{FILE}"))) == 3
        assert not (folder / FILE).exists()
