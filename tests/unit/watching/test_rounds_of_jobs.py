"""Rounds that students' jobs ask are shown like the consortium's own: number, drop-outs, seconds, what goes on."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from support.run_records import a_party, a_round, run_record

from collegium.coordinator.cli.provision_cli import provision
from collegium.coordinator.label_jobs.queue import JobQueue, QueuedJob
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.surroundings import Progress
from collegium.coordinator.settings.consortium import ConsortiumConfig, ConsortiumFolder, read_consortium
from collegium.coordinator.watching.consortium_status import consortium_status
from collegium.coordinator.watching.live_state import LiveState, Snapshots
from collegium.coordinator.watching.metrics import exposition
from collegium.coordinator.watching.page import render
from collegium.protocol.label_jobs import LabelJob

CONFIG = """\
name = "trial"
task = { classes = ["no", "yes"], inputs = { kind = "image", height = 2, width = 2 } }
pool = { source = "pool.npz" }
budget = { epsilon = 1.0 }
mechanism = { name = "gnmax", parameters = { sigma = 40.0 } }
teachers = { kind = "random-forest" }
student = { method = "random-forest" }
queries = { count = 2 }

[consortium]
address = "localhost:1"
enrolment = "localhost:2"
parties = ["ash", "birch", "cedar"]
folder = "c"
students = [{ name = "lab" }]
"""
NOW = datetime(2026, 3, 3, tzinfo=UTC)


@pytest.fixture
def config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> ConsortiumConfig:
    path = tmp_path / "consortium.toml"
    path.write_text(CONFIG)
    np.savez(tmp_path / "pool.npz", x=np.zeros((9, 2, 2), dtype=np.uint8))
    provision(path, data_root=tmp_path)
    return read_consortium(path)


def write_runs(folder: ConsortiumFolder) -> list[QueuedJob]:
    """The own run is finished after one round; a job had two; another waits."""
    own = run_record(
        state="finished", rounds=[a_round(1, 2.0, ash="deadline")], parties={"ash": a_party(asked=1, answered=0)}
    )
    RunFolder(folder.run).path.mkdir(parents=True)
    RunFolder(folder.run).write(own)
    queue = JobQueue(folder.jobs)
    queue.prepare()
    jobs = [queue.add(LabelJob(digit * 32, "0" * 64, (0, 1, 2)), "lab", None) for digit in "ab"]
    rounds = [a_round(1, 4.0), a_round(2, 70.0, ash="deadline", birch="refused: policy: no")]
    RunFolder(folder.jobs / jobs[0].id).path.mkdir()
    parties = {"ash": a_party(asked=2, answered=1), "birch": a_party(asked=2, answered=1)}
    RunFolder(folder.jobs / jobs[0].id).write(run_record(state="labelled", rounds=rounds, parties=parties))
    return jobs


def test_rounds_and_dropouts_of_jobs_count_like_the_own(config: ConsortiumConfig) -> None:
    folder = ConsortiumFolder(config.consortium.folder)
    write_runs(folder)
    found = consortium_status(folder, NOW)
    assert (found["rounds"], found["own_rounds"]) == (3, 1)
    assert found["dropouts"] == {"deadline": 2, "refused": 1}
    assert found["round_seconds"]["sum"] == 76.0 and found["round_seconds"]["last"] == 70.0
    assert [entry["when"] for entry in found["last_failures"]] == ["round 1", *["job aaaaaaaa, round 2"] * 2]
    asked = {name: (party["rounds_asked"], party["rounds_answered"]) for name, party in found["parties"].items()}
    assert asked == {"ash": (3, 1), "birch": (2, 1), "cedar": (0, 0)}
    assert [(job["rounds"], job["labelled"]) for job in found["jobs"]] == [(2, 4), (0, 0)]


def test_a_round_that_a_job_has_had_since_is_seen_at_the_next_look(config: ConsortiumConfig) -> None:
    folder = ConsortiumFolder(config.consortium.folder)
    job, _ = write_runs(folder)
    assert consortium_status(folder, NOW)["rounds"] == 3
    run = RunFolder(folder.jobs / job.id)
    run.write(run_record(state="labelled", rounds=[a_round(number, 1.0) for number in (1, 2, 3)]))
    assert consortium_status(folder, NOW)["rounds"] == 4


def test_page_and_metrics_show_them_and_what_goes_on(config: ConsortiumConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collegium.coordinator.watching.live_state.quorum_of", lambda *_: 0)  # nobody is enrolled here
    folder, board = ConsortiumFolder(config.consortium.folder), LiveState()
    jobs, queue = write_runs(folder), JobQueue(folder.jobs)
    assert queue.next() is not None
    board.take_step(Progress("votes", 1, 3))
    snapshots = Snapshots(config, board, now=lambda: NOW, clock=itertools.count(0, 10).__next__)
    text, page = exposition(snapshots()), render(snapshots())
    assert 'collegium_dropouts_total{code="deadline"} 2' in text and "collegium_round_seconds_count 3" in text
    assert 'collegium_phase{phase="votes"} 1' in text
    assert "<b>3</b><span>rounds done" in page
    assert "Job aaaaaaaa of lab. Round 3 is under way: 1 of 3 parties have answered." in page
    board.take_step(Progress("labels", 6, 6))
    assert 'collegium_phase{phase="labels"} 1' in exposition(snapshots()), "another job waits"
    for job in jobs:
        queue.end(job, ())
    assert 'collegium_phase{phase="idle"} 1' in exposition(snapshots())
    assert "All jobs are done" in render(snapshots())


def test_a_finished_run_of_which_more_labels_are_wanted_is_not_shown_as_finished(
    config: ConsortiumConfig, tmp_path: Path
) -> None:
    place = ConsortiumFolder(config.consortium.folder)
    RunFolder(place.run).path.mkdir(parents=True)
    RunFolder(place.run).write(record := run_record(state="finished"))
    had = record.config.queries.count if record.labels is None else record.labels.asked
    for more, phase in ((0, "finished"), (5, "waiting")):
        path = tmp_path / "consortium.toml"
        path.write_text(CONFIG.replace("count = 2", f"count = {had + more}"))
        shown = Snapshots(read_consortium(path), LiveState(), now=lambda: NOW)()
        assert (shown["phase"]["step"], shown["queries"]) == (phase, had + more)
