"""The default configuration by `simulate`, on Flower's engine, and by `launch`, with a process for each party.

{image, table, vector} × {with the parties' noise, clear} × {first start, killed with -9, started again at its end}.
What adds nothing, and is left out:

- A run asks the same questions over all transports, one after the other: `test_in_memory` kills it before each of them.
  Here it is killed where the user sees that something has begun: on the engine once, as parties and coordinator die
  together there as they do in memory; with processes at every line that `launch` prints, in one story.
- The clear mode takes one phase instead of five, over each of the two once, for one kind of inputs each.
- With a seed, vectors go over the engine alone: with processes they are killed, and images and tables compared. Images
  have the notebook's own steps in `test_in_memory`.
- A simulation knows no second study: another run has another folder, and parties of its own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.usage import tree_pids
from support.paths import (
    EPSILON,
    MODES,
    POOL,
    SEED,
    SUMS,
    brief,
    config_of,
    dealt,
    pool_of,
    settings,
    write_config,
    write_files,
)
from support.processes import command, have_ended, read_until, start_collegium
from support.runs import labels_csv, paid, run_in_process

import collegium as cg
from collegium.coordinator.run.run_folder import read_run
from collegium.coordinator.run.run_record import RunRecord
from collegium.simulations.cohort import PreparedRun, prepare_run
from collegium.simulations.config import SimulationConfig
from collegium.simulations.launcher import launch
from collegium.simulations.simulate import simulate

pytest.importorskip("flwr")

NOISED, CLEAR = MODES
ONE = {"workers": 1}
"""Of the engine: a second worker loads the libraries once more. test_transports_agree.py has two."""
TRANSPORTS: dict[str, Callable[[PreparedRun], RunRecord]] = {"simulate": simulate, "launch": launch}


def drive(transport: str, config: SimulationConfig, folder: Path) -> RunRecord:
    return TRANSPORTS[transport](prepare_run(config, folder, data_root=None))


def compare(kind: str, config: SimulationConfig, folder: Path) -> None:
    """Both transports give the labels that a run in this process left in ``folder / "here"``."""
    here = folder / "here"
    for transport in TRANSPORTS if kind != "vector" else ["simulate"]:
        record = drive(transport, config, folder / transport)
        assert record.state == "finished" and record.labels.stopped is None and record.sum_mode == NOISED
        assert record.private is False and len(record.rounds) == SUMS[kind]
        assert labels_csv(folder / transport) == labels_csv(here), transport
        assert paid(folder / transport).epsilon == paid(here).epsilon <= EPSILON


@pytest.mark.parametrize("kind", ["table", "vector"])
def test_with_a_seed_a_notebook_an_engine_and_processes_give_the_same_labels(kind: str, tmp_path: Path) -> None:
    """Under the default the parties draw the noise, each in a process of its own."""
    config = config_of(kind, write_files(kind, tmp_path), seed=SEED, engine=ONE)
    coordinator = cg.Coordinator(
        cg.LocalParties(dealt(config, tmp_path / "dealt"), config.task, seed=SEED),
        pool_of(config),
        epsilon=EPSILON,
        folder=tmp_path / "here",
    )
    assert len(coordinator.label()) == POOL
    compare(kind, config, tmp_path)


def test_with_a_seed_images_have_the_same_labels_under_networks_that_learn_in_a_few_steps(tmp_path: Path) -> None:
    """Which a notebook cannot ask for; its parties are those of the engine, in this process."""
    config = config_of("image", write_files("image", tmp_path), seed=SEED, engine=ONE, **brief("image"))
    run_in_process(config, tmp_path / "here")
    assert len(labels_csv(tmp_path / "here").splitlines()) == POOL + 1
    compare("image", config, tmp_path)


def test_without_a_pool_processes_publish_the_student_of_a_notebook(tmp_path: Path) -> None:
    config = config_of("table", write_files("table", tmp_path), seed=SEED, pool=None)
    parties = cg.LocalParties(dealt(config, tmp_path / "dealt"), config.task, seed=SEED)
    coordinator = cg.Coordinator(parties, epsilon=EPSILON, folder=tmp_path / "notebook")
    coordinator.label()
    coordinator.fit()
    record = drive("launch", config, tmp_path / "launch")
    assert record.state == "finished" and record.config.drawn
    students = [(tmp_path / one / "student.safetensors").read_bytes() for one in ("notebook", "launch")]
    assert students[0] == students[1]


def test_without_a_seed_two_hundred_and_fifty_parties_are_private_and_label_the_pool(tmp_path: Path) -> None:
    files = write_files("vector", tmp_path, records=500)
    # One round: each costs two thousand messages of the engine, and the tests above take eight.
    partition = {"kind": "iid", "parties": 250}
    config = config_of("vector", files, partition=partition, sums={"rounds": 1}, engine=ONE)
    record = drive("simulate", config, tmp_path / "run")
    assert record.state == "finished" and record.labels.answered == POOL and record.private
    assert len(record.parties) == 250 and not any(party.failures for party in record.parties.values())
    assert paid(tmp_path / "run").epsilon <= EPSILON


@pytest.mark.parametrize(("transport", "kind"), [("simulate", "vector"), ("launch", "table")])
def test_in_the_clear_it_labels_the_pool(transport: str, kind: str, tmp_path: Path) -> None:
    record = drive(transport, config_of(kind, write_files(kind, tmp_path), CLEAR, engine=ONE), tmp_path / "run")
    assert record.state == "finished" and record.labels.answered == POOL and record.sum_mode == CLEAR


@pytest.mark.parametrize(
    ("transport", "kind", "lines"),
    [
        ("simulate", "table", ["votes in: 1 of 3"]),
        ("launch", "vector", ["parties present: 3 of 3", "votes in: 1 of 3", f"labels issued: {POOL} of {POOL}"]),
    ],
)
def test_killed_wherever_it_says_how_far_it_is_it_goes_on_and_pays_once(
    transport: str, kind: str, lines: list[str], tmp_path: Path
) -> None:
    asked = settings(kind, write_files(kind, tmp_path), engine=ONE)
    config, run = write_config(tmp_path / "config.toml", asked), tmp_path / "run"
    for line in lines:
        process = start_collegium(transport, config, "--run", run, folder=tmp_path)
        try:
            read_until(process.stdout, line)
            others = tree_pids(process.pid)[1:]
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
        assert have_ended(others)
    done = command(transport, config, "--run", run, folder=tmp_path)
    assert done.status == 0, done.err
    record, spent = read_run(run), paid(run)
    assert record.state == "finished" and record.labels.answered == POOL and record.labels.stopped is None
    assert spent.epsilon <= EPSILON and spent.queries == POOL + SUMS[kind], "each sum once, and the labels that follow"
    if transport == "simulate":
        return  # it would start an engine to find that there is nothing to do
    labels = labels_csv(run)
    assert command(transport, config, "--run", run, folder=tmp_path).status == 0
    assert paid(run) == spent and labels_csv(run) == labels, "at its end it asks and pays for nothing"
