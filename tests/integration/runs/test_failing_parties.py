"""Eight real processes on slices of MNIST: one is killed in the middle of a round, one answers garbage."""

from __future__ import annotations

import html
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.data import folder_with
from support.processes import COMMAND_S, start_script
from support.runs import FORESTS, failures, paid, tiny

from collegium.coordinator.run.coordinator import Progress
from collegium.coordinator.run.run_record import PartyFailure, RunRecord
from collegium.errors import QuorumNotReached
from collegium.simulations.cohort import prepare_run
from collegium.simulations.config import SimulationConfig
from collegium.simulations.launcher import launch
from collegium.simulations.party_processes import PartyProcess


def mnist(parties: int) -> SimulationConfig:
    return tiny(
        name="mnist-8",
        task={"inputs": {"kind": "image", "height": 28, "width": 28}},
        private={"source": "mnist", "split": "train", "stop": 800},
        pool={"source": "mnist", "split": "test", "start": 0, "stop": 200},
        holdout={"source": "mnist", "split": "test", "start": 9000, "stop": 9500},
        partition={"parties": parties},
        teachers=FORESTS | {"per_party": 1},
        queries={"count": 12, "batch": 4},
        votes={"mode": "clear", "quorum": 0.7},
    )


class Saboteur:
    """Kills one party while a round is under way and lets garbage answer for another."""

    def __init__(self, killed: str, garbage: str) -> None:
        self.killed, self.garbage = killed, garbage
        self.running: dict[str, PartyProcess] = {}
        self.impostor: subprocess.Popen[str] | None = None
        self.struck = False

    def on_started(self, processes: list[PartyProcess]) -> None:
        self.running = {process.name: process for process in processes}
        self.running[self.garbage].kill()
        config = self.running[self.garbage].log.with_name("party.toml")
        self.impostor = start_script("garbage_party", config)
        assert self.impostor.stdout is not None
        assert self.impostor.stdout.readline() == "connected\n"
        # Stopped, it takes the round's request and cannot answer it: the kill comes in the middle of a round.
        self.stopped = self.running[self.killed]

    def on_progress(self, step: Progress) -> None:
        if step.step == "fit" and step.done == step.total:
            self.stopped.send(signal.SIGSTOP)
        elif step.step == "votes" and not self.struck:
            self.struck = True
            self.stopped.kill()

    def close(self) -> None:
        if self.impostor is not None:
            self.impostor.kill()
            self.impostor.communicate()


@pytest.fixture(scope="module")
def sabotaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, RunRecord, Saboteur]]:
    root = folder_with("mnist.npz")
    folder = tmp_path_factory.mktemp("mnist-8")
    saboteur = Saboteur("party-2", "party-5")
    try:
        prepared = prepare_run(mnist(8), folder, data_root=root)
        yield folder, launch(prepared, saboteur.on_progress, saboteur.on_started), saboteur
    finally:
        saboteur.close()


def test_the_run_ends_well(sabotaged: tuple[Path, RunRecord, Saboteur]) -> None:
    folder, run, saboteur = sabotaged
    assert run.state == "finished" and saboteur.struck
    assert run.labels.answered == 12 and run.labels.stopped is None
    assert paid(folder).queries == 12
    assert (folder / "student.safetensors").is_file()


def test_run_json_names_both_and_how_they_failed(sabotaged: tuple[Path, RunRecord, Saboteur]) -> None:
    _, run, _ = sabotaged
    failed = failures(run)
    assert set(failed) == {"party-2", "party-5"}
    assert failed["party-2"][0] == PartyFailure(when="round 1", outcome="unreachable")
    assert failed["party-5"][0].when == "round 1"
    assert failed["party-5"][0].outcome == "protocol: counts outside 0 to 1"
    assert set(run.rounds[0].failed) == {"party-2", "party-5"}


def test_neither_is_waited_for_again(sabotaged: tuple[Path, RunRecord, Saboteur]) -> None:
    _, run, _ = sabotaged
    assert [done.asked for done in run.rounds] == [8, 6, 6]
    assert [done.answered for done in run.rounds] == [6, 6, 6]
    assert all(len(party.failures) <= 1 for party in run.parties.values())


def test_the_votes_of_neither_are_in_any_sum(sabotaged: tuple[Path, RunRecord, Saboteur]) -> None:
    _, run, _ = sabotaged
    assert [done.teachers for done in run.rounds] == [6, 6, 6]


def test_the_report_names_both_and_how_they_failed(sabotaged: tuple[Path, RunRecord, Saboteur]) -> None:
    folder, run, _ = sabotaged
    page = (folder / "report.html").read_text()
    assert "party-2" in page and "party-5" in page
    assert "unreachable" in page
    outcome = failures(run)["party-5"][0].outcome
    assert outcome in html.unescape(page)


def test_no_process_is_left(sabotaged: tuple[Path, RunRecord, Saboteur]) -> None:
    _, _, saboteur = sabotaged
    assert all(party.status is not None for party in saboteur.running.values())
    assert saboteur.impostor is not None
    assert saboteur.impostor.wait(timeout=COMMAND_S) == 0  # it was told that the run is finished


def test_too_many_failures_stop_the_run_and_name_them(tmp_path: Path) -> None:
    prepared = prepare_run(
        tiny(votes={"mode": "clear", "quorum": 1.0}, partition={"parties": 2}, teachers=FORESTS),
        tmp_path,
        data_root=None,
    )
    died = threading.Event()

    def kill_one(processes: list[PartyProcess]) -> None:
        processes[1].kill()
        died.set()

    with pytest.raises(QuorumNotReached, match=r"party-1 \(unreachable\)"):
        launch(prepared, None, kill_one)
    assert died.is_set()
