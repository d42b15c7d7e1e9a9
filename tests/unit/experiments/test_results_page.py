"""The page of results is made of the committed JSON files and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from collegium_reproduction.cli import app
from collegium_reproduction.experiments import EXPERIMENTS
from collegium_reproduction.experiments.base import MADE, Drawn, Experiment, save_results
from collegium_reproduction.experiments.results_page import CHAPTERS, render_results
from typer.testing import CliRunner

DOCS = Path(__file__).resolve().parents[3] / "docs" / "research"


def test_the_page_is_what_the_committed_results_make() -> None:
    assert (DOCS / "results.md").read_text(encoding="utf-8") == render_results(DOCS / "results")


def test_every_result_has_its_experiment_and_every_drawn_one_its_picture() -> None:
    names = {path.stem for path in (DOCS / "results").glob("*.json")}
    assert names and names <= set(EXPERIMENTS)
    drawn = {name for name in names if isinstance(EXPERIMENTS[name], Drawn)}
    assert {path.stem for path in (DOCS / "results").glob("*.svg")} == drawn


def test_every_experiment_has_its_chapter_and_links_lead_somewhere() -> None:
    known = tuple(beginning for _, beginnings in CHAPTERS for beginning in beginnings)
    assert all(name.startswith(known) for name in EXPERIMENTS)
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    links = set(re.findall(r"\]\(#([^)]+)\)", page))
    assert links and links == set(re.findall(r'<a id="([^"]+)"></a>', page)) <= set(EXPERIMENTS)


def test_the_list_says_what_each_row_needs() -> None:
    done = CliRunner().invoke(app, ["--list", "--json"])
    assert done.exit_code == 0
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert set(rows) == set(EXPERIMENTS)
    assert all(row["source"] and row["data"] and isinstance(row["slow"], bool) for row in rows.values())
    assert rows["pate-figure-2"]["data"] == "mnist"


class Counted:
    """An experiment that takes no time."""

    name = "counted"
    title = "A count"
    source = "nobody"
    data = "none"
    slow = False

    def run(self, setting: object) -> dict[str, int]:
        return {"count": 3}

    def render(self, results: dict[str, int]) -> str:
        return f"{results['count']} counted"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Experiment:
    experiment: Experiment = Counted()  # type: ignore[assignment]
    monkeypatch.setitem(EXPERIMENTS, "counted", experiment)
    return experiment


def test_a_run_writes_its_results_with_how_they_were_made_and_the_page(counted: Experiment, tmp_path: Path) -> None:
    results = tmp_path / "results"
    done = CliRunner().invoke(
        app, ["counted", "--seeds", "2", "--results", str(results), "--run", str(tmp_path / "run")]
    )
    assert done.exit_code == 0, done.output
    kept = json.loads((results / "counted.json").read_text(encoding="utf-8"))
    assert kept["count"] == 3 and kept[MADE]["seeds"] == [0, 1]
    assert {"wall_s", "cpu_s", "versions"} <= set(kept[MADE]) and "torch" in kept[MADE]["versions"]
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "### A count" in page and "[A count](#counted)" in page and "3 counted" in page and "Seeds 0, 1;" in page


def test_an_unknown_name_is_one_clear_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["no-such-table", "--results", str(tmp_path)])
    assert done.exit_code != 0 and "there is no experiment" in str(done.exception)


def test_numbers_of_the_page_come_from_the_file(counted: Experiment, tmp_path: Path) -> None:
    save_results(tmp_path / "results", "counted", {"count": 41})
    assert "41 counted" in render_results(tmp_path / "results")
