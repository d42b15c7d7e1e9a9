"""`collegium launch` interrupted in the middle and started again: nothing is fitted or paid for twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from benchmarks.usage import tree_pids
from support.processes import COMMAND_S, Finished, command, have_ended, read_until, start_collegium
from support.runs import FORESTS, Paid, labels_csv, paid, run_in_process, tiny, write_config

from collegium.privacy.ledger.ledger import Ledger

TWO: dict[str, Any] = {
    "partition": {"parties": 2},
    "teachers": FORESTS,
    "votes": {"mode": "clear"},
    "engine": {"workers": 1},
}
"""Two parties, to start few processes; a masked sum would need three."""


@dataclass(frozen=True)
class Story:
    """A run that was killed after its first round, started again, interrupted, and started again with more queries."""

    folder: Path
    first: Paid
    fitted: dict[Path, int]
    orphans_ended: bool
    resumed: Finished
    paid_when_resumed: Paid
    labels_when_resumed: str
    extended: Finished


def teachers(run: Path) -> dict[Path, int]:
    """Every fitted teacher and when it was written."""
    return {path: path.stat().st_mtime_ns for path in run.glob("parties/*/teachers/**/*.safetensors")}


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    base = tmp_path_factory.mktemp("interrupted")
    config = write_config(base / "tiny.toml", **TWO)
    run = base / "run"
    killed = start_collegium("launch", config, "--run", run, folder=base)
    try:
        read_until(killed.stdout, "labels issued: 5 of 12")
        parties = tree_pids(killed.pid)[1:]
        assert len(parties) == 3  # two parties, and the process that they are copies of
    finally:
        os.kill(killed.pid, signal.SIGKILL)
        killed.communicate()
    orphans_ended = have_ended(parties)
    first, fitted = paid(run), teachers(run)
    resumed = command("launch", config, "--run", run, folder=base)
    then, labels = paid(run), labels_csv(run)
    extended = command("launch", config, "--run", run, "--queries", "15", "--json", folder=base)
    yield Story(run, first, fitted, orphans_ended, resumed, then, labels, extended)


def test_what_was_issued_before_the_kill_is_in_the_ledger(story: Story) -> None:
    assert 5 <= story.first.queries < 12
    assert len(story.first.labels) <= story.first.queries
    assert len(story.fitted) == 4


def test_party_processes_do_not_outlive_a_killed_launcher(story: Story) -> None:
    assert story.orphans_ended


def test_started_again_it_finishes_and_pays_for_the_missing_queries_alone(story: Story) -> None:
    assert story.resumed.status == 0, story.resumed.err
    assert story.paid_when_resumed.queries == 12
    assert len(story.paid_when_resumed.labels) == 12


def test_labels_issued_before_the_kill_stay(story: Story) -> None:
    kept = story.paid_when_resumed.labels
    assert {query: kept[query] for query in story.first.labels} == dict(story.first.labels)


def test_the_same_labels_come_out_as_without_an_interruption(story: Story, tmp_path: Path) -> None:
    run_in_process(tiny(**TWO), tmp_path)
    assert labels_csv(tmp_path) == story.labels_when_resumed
    assert paid(tmp_path).epsilon == story.paid_when_resumed.epsilon


def test_fitted_teachers_are_found_again(story: Story) -> None:
    assert teachers(story.folder) == story.fitted


def test_more_queries_pay_for_the_new_ones_alone(story: Story) -> None:
    assert story.extended.status == 0, story.extended.err
    run = json.loads(story.extended.out)
    assert run["labels"]["asked"] == 15 and run["privacy"]["queries_charged"] == 15
    after = paid(story.folder)
    assert after.queries == 15 and len(after.labels) == 15
    assert {query: after.labels[query] for query in story.paid_when_resumed.labels} == dict(
        story.paid_when_resumed.labels
    )
    assert set(story.labels_when_resumed.splitlines()) <= set(labels_csv(story.folder).splitlines())


def test_one_key_signed_it_through_all_interruptions(story: Story) -> None:
    certificate = story.folder / "coordinator" / "certificate.pem"
    verified = command("ledger", "verify", story.folder, "--public-key", certificate, "--json", folder=story.folder)
    assert verified.status == 0, verified.err
    report = json.loads(verified.out)
    assert report["queries_charged"] == 15
    with Ledger.read(story.folder / "ledger.sqlite") as ledger:
        assert ledger.settings.public_key


@pytest.mark.parametrize(
    ("how", "number"), [("launch", signal.SIGINT), ("simulate", signal.SIGINT), ("simulate", signal.SIGTERM)]
)
def test_an_interrupt_ends_everything_and_says_how_to_go_on(how: str, number: signal.Signals, tmp_path: Path) -> None:
    config = write_config(tmp_path / "tiny.toml", **TWO)
    run = tmp_path / "run"
    as_in_a_script: dict[str, Any] = {"ignoring": [signal.SIGINT], "start_new_session": True}
    process = start_collegium(how, config, "--run", run, folder=tmp_path, **as_in_a_script)
    try:
        read_until(process.stdout, "labels issued: 5 of 12")
        parties = tree_pids(process.pid)[1:]  # of the engine: its own processes
        if number is signal.SIGINT:
            os.killpg(process.pid, number)  # as the keyboard does
        else:
            process.send_signal(number)
        _, err = process.communicate(timeout=COMMAND_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 130
    assert err.strip().splitlines() == ["Interrupted. Nothing is lost: run the same command again, and it goes on."]
    assert len(parties) >= 2 and have_ended(parties)
    assert paid(tmp_path / "run").queries >= 5
