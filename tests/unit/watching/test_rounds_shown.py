"""The rounds of a run as the status, the page and the metrics show them: number, drop-outs, seconds, what goes on."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from support.run_records import a_party, a_round, run_record
from support.snapshots import exposition

from collegium.coordinator.cli.provision_cli import provision
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.surroundings import Progress
from collegium.coordinator.settings.consortium import ConsortiumConfig, ConsortiumFolder, read_consortium
from collegium.coordinator.watching.consortium_status import consortium_status
from collegium.coordinator.watching.live_state import LiveState, Snapshots
from collegium.coordinator.watching.page import render
from collegium.coordinator.watching.stages import share_done, stages_of

CONFIG = """\
name = "trial"
task = { classes = ["no", "yes"], inputs = { kind = "image", height = 2, width = 2 } }
pool = { source = "pool.npz" }
budget = { epsilon = 1.0 }
mechanism = { name = "gnmax", parameters = { sigma = 40.0 } }
teachers = { kind = "random-forest", options = { trees = 5 } }
student = { method = "random-forest", options = { trees = 5 } }
queries = { count = 2 }

[consortium]
address = "localhost:1"
enrolment = "localhost:2"
parties = ["ash", "birch", "cedar"]
folder = "c"
"""
NOW = datetime(2026, 3, 3, tzinfo=UTC)


@pytest.fixture
def config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> ConsortiumConfig:
    path = tmp_path / "consortium.toml"
    path.write_text(CONFIG)
    np.savez(tmp_path / "pool.npz", x=np.zeros((9, 2, 2), dtype=np.uint8))
    provision(path, data_root=tmp_path)
    return read_consortium(path)


def write_run(folder: ConsortiumFolder, state: str = "labelled") -> None:
    """Three rounds; two parties were left out of the last."""
    rounds = [a_round(1, 2.0, ash="deadline"), a_round(2, 4.0)]
    rounds.append(a_round(3, 70.0, ash="deadline", birch="refused: policy: no"))
    parties = {"ash": a_party(asked=3, answered=1), "birch": a_party(asked=2, answered=1)}
    RunFolder(folder.run).path.mkdir(parents=True)
    RunFolder(folder.run).write(run_record(state=state, rounds=rounds, parties=parties))


def test_rounds_and_dropouts_are_counted(config: ConsortiumConfig) -> None:
    folder = ConsortiumFolder(config.consortium.folder)
    write_run(folder)
    found = consortium_status(folder, NOW)
    assert found["rounds"] == 3
    assert found["dropouts"] == {"deadline": 2, "refused": 1}
    assert found["round_seconds"]["sum"] == 76.0 and found["round_seconds"]["last"] == 70.0
    assert [entry["when"] for entry in found["last_failures"]] == ["round 1", *["round 3"] * 2]
    asked = {name: (party["rounds_asked"], party["rounds_answered"]) for name, party in found["parties"].items()}
    assert asked == {"ash": (3, 1), "birch": (2, 1), "cedar": (0, 0)}


def test_page_and_metrics_show_them_and_what_goes_on(config: ConsortiumConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collegium.coordinator.watching.live_state.quorum_of", lambda *_: 0)  # nobody is enrolled here
    folder, board = ConsortiumFolder(config.consortium.folder), LiveState()
    write_run(folder, state="labelling")
    board.take_step(Progress("votes", 1, 3))
    snapshots = Snapshots(config, board, now=lambda: NOW, clock=itertools.count(0, 10).__next__)
    text, page = exposition(snapshots()), render(snapshots())
    assert 'collegium_dropouts_total{code="deadline"} 2' in text and "collegium_round_seconds_count 3" in text
    assert 'collegium_phase{phase="votes"} 1' in text
    assert "<b>3</b><span>rounds done" in page
    assert "Round 4 is under way: 1 of 3 parties have answered." in page
    board.take_step(Progress("labels", 6, 6))
    assert 'collegium_phase{phase="labels"} 1' in exposition(snapshots())


def test_a_finished_run_of_which_more_labels_are_wanted_is_not_shown_as_finished(
    config: ConsortiumConfig, tmp_path: Path
) -> None:
    place = ConsortiumFolder(config.consortium.folder)
    RunFolder(place.run).path.mkdir(parents=True)
    RunFolder(place.run).write(run_record(state="finished"))
    had = consortium_status(place, NOW)["queries"]
    for more, phase in ((0, "finished"), (5, "waiting")):
        path = tmp_path / "consortium.toml"
        path.write_text(CONFIG.replace("count = 2", f"count = {had + more}"))
        shown = Snapshots(read_consortium(path), LiveState(), now=lambda: NOW)()
        assert (shown["phase"]["step"], shown["queries"]) == (phase, had + more)


BY_SUMS = re.sub(r"(mechanism|queries|teachers|student) = .*\n", "", CONFIG).replace('"gnmax"', '"class-sums"')


def test_a_study_over_sums_has_no_teachers_and_its_rounds_are_counted(config: ConsortiumConfig, tmp_path: Path) -> None:
    path = tmp_path / "consortium.toml"
    path.write_text(BY_SUMS + "[evaluation]\nshare = 0.1\n")
    summed, live = read_consortium(path), LiveState(lambda: NOW)
    snapshots = Snapshots(summed, live, pool_inputs=9, now=lambda: NOW, clock=iter(range(0, 100, 10)).__next__)
    shown = snapshots()
    assert shown["queries"] == 9 and shown["asks"] == {
        "sums": summed.class_sums,
        "teachers": False,
        "counts": ["evaluation"],
    }
    names = [name for name, _ in stages_of(shown["asks"])]
    assert names == ["Parties connect", "They get the pool", "Sums and labels", "Student", "They measure it", "Report"]
    page = render(shown)
    assert "teachers" not in page and f"0 of {summed.class_sums}" in page and "0 of 9" in page


def test_one_bar_never_goes_back_from_the_first_step_to_the_last() -> None:
    asks = {"sums": 8, "teachers": False, "counts": ["pool_check", "evaluation"]}
    steps = [("waiting", 0, 0, 0), ("hold_pool", 5, 10, 0), ("pool_check", 1, 3, 0)]
    steps += [("votes", done, 3, rounds) for rounds in range(4) for done in range(4)]
    steps += [("networks", done, 9, 4) for done in range(10)]
    steps += [("votes", done, 3, rounds) for rounds in range(4, 8) for done in range(4)]
    steps += [
        ("labels", 9, 9, 8),
        ("student", 1, 2, 8),
        ("evaluation", 2, 3, 8),
        ("report", 1, 1, 8),
        ("finished", 0, 0, 8),
    ]
    shares = [share_done(asks, {"step": step, "done": done, "total": of}, rounds) for step, done, of, rounds in steps]
    assert shares == sorted(shares) and shares[0] == 0.0 and shares[-1] == 1.0


def test_the_page_rounds_what_is_spent_up_as_every_other_page_does(config: ConsortiumConfig) -> None:
    """It said 0.9227 of an ε for which the statement said 0.9228."""
    status = Snapshots(config, LiveState(), now=lambda: NOW)()
    unit = {"spent": 0.922701, "budget": 1.0, "left": 0.077299}
    page = render(status | {"privacy": status["privacy"] | {"units": {"record": unit}}})
    assert page.count("0.9228") == 2 and "0.9227<" not in page
