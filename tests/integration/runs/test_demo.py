"""`collegium demo`: its configuration is sound, and a smaller copy of it goes the whole way through the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.runs import ANSI

from collegium.cli import main
from collegium.data import load
from collegium.simulations import cli
from collegium.simulations.config import SimulationConfig


def test_the_demo_needs_no_file_and_no_network() -> None:
    config = cli.demo_settings()
    assert config.holdout is not None and config.baseline is not None
    parts = [load(source, config.task, data_root=None) for source in (config.private, config.pool, config.holdout)]
    assert [len(part) for part in parts] == [1300, 300, 197]


def test_the_demo_shows_five_parties_and_the_default_mechanism_and_is_private() -> None:
    config = cli.demo_settings()
    assert config.partition.parties == 5 and config.mechanism.name == "class-sums" and config.budget.epsilon <= 1.0
    assert config.seed is None
    assert config.votes.mode == "masked+noised" and config.class_sums == 2


def test_private_public_and_held_out_records_of_the_demo_are_disjoint() -> None:
    config = cli.demo_settings()
    assert config.private.stop == config.pool.start
    assert config.holdout is not None and config.pool.stop == config.holdout.start
    assert config.private.shuffle_seed == config.pool.shuffle_seed == config.holdout.shuffle_seed


def test_the_demo_of_teachers_differs_in_who_answers_alone_and_is_private() -> None:
    config, usual = cli.demo_settings(teachers=True), cli.demo_settings()
    assert config.mechanism.name == "gnmax" and config.teachers is not None and usual.teachers is None
    assert config.votes.mode == "masked" and config.seed is None
    for section in ("task", "private", "pool", "holdout", "partition"):
        assert getattr(config, section) == getattr(usual, section)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo with fewer and smaller parts."""
    whole = cli.run_and_show

    def run_small(settings: SimulationConfig, *rest: Any, as_json: bool) -> None:
        changes: dict[str, Any] = {
            "partition": settings.partition.model_copy(update={"parties": 3}),
            "private": settings.private.model_copy(update={"stop": 300}),
            "mechanism": settings.mechanism.model_copy(update={"parameters": {"sigma": 2.0}}),
            "budget": settings.budget.model_copy(update={"epsilon": 60.0}),
            "sums": settings.sums.model_copy(update={"landmarks": 50}),
            "student": settings.student.model_copy(update={"options": {"steps": 2}}),
            "baseline": settings.baseline.model_copy(update={"options": {"steps": 2}}) if settings.baseline else None,
        }
        if settings.teachers is not None:
            linear = {"kind": "linear", "per_party": 1, "options": {"steps": 10}}
            changes |= {
                "budget": settings.budget.model_copy(update={"epsilon": 60.0, "bound": "classic"}),
                "teachers": settings.teachers.model_copy(update=linear),
                "queries": settings.queries.model_copy(update={"count": 6}),
            }
        whole(settings.model_copy(update=changes), *rest, as_json=as_json)

    monkeypatch.setattr(cli, "run_and_show", run_small)


@pytest.mark.usefixtures("small")
def test_the_command_prints_the_closing_figures(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--run", str(tmp_path / "run"), "--json"])
    out, err = capfd.readouterr()
    assert ended.value.code == 0, err
    run = json.loads(out)
    assert run["state"] == "finished" and run["private"]
    assert run["labels"]["asked"] == 300 and run["labels"]["answered"] == 300
    assert 0 <= run["labels"]["quality"]["accuracy"] <= 1
    assert 0 <= run["student"]["quality"]["accuracy"] <= 1 and 0 <= run["baseline"]["accuracy"] <= 1
    assert set(run["privacy"]["units"]) == {"record"} and len(run["rounds"]) == 2
    assert "votes in: 3 of 3" in err and not ANSI.search(out + err)
    assert (tmp_path / "run" / "report.html").is_file()
    again = shown_again(tmp_path / "run", capfd)
    for row in ("parties", "queries", "answered", "ε, one record", "label accuracy", "student accuracy", "baseline"):
        assert row in again
    assert f"(δ = {run['privacy']['delta']:g})" in again
    assert not ANSI.search(again) and max(map(len, again.splitlines()[:-2])) <= 80  # the last two hold paths


@pytest.mark.usefixtures("small")
def test_the_command_shows_teachers_where_it_is_asked_to(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--teachers", "--run", str(tmp_path / "run")])
    out, err = capfd.readouterr()
    assert ended.value.code == 0, err
    assert "They vote on public images" in out and "teachers fitted: 3 of 3" in out and "labels issued: 6 of 6" in out
    assert "queries              │ 6 " in out


def shown_again(folder: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """The closing table for the same run.json."""
    from rich.console import Console

    from collegium.coordinator.run.run_folder import read_run
    from collegium.simulations.progress import print_summary

    print_summary(read_run(folder), folder, Console())
    return capfd.readouterr().out
