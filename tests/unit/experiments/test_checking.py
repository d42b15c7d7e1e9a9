"""Kept results are computed again and compared figure by figure; a changed one is named."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from collegium_reproduction.experiments import EXPERIMENTS
from collegium_reproduction.experiments.checking import Difference, check, read_results
from unit.experiments.conftest import silent

from collegium.cli import main
from collegium.errors import StorageError

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "research" / "results"


# What the exact accountant takes a minute or more for where it has kept nothing is left to
# `collegium reproduce NAME --check`: knn-table-1, the game of knn-table-2, and 1,000 rounds of pate-mnist.
@pytest.mark.parametrize("name", ["knn-figure-4", "individual-knn", "pate-mnist"])
def test_kept_epsilons_are_what_the_present_code_computes(name: str, tmp_path: Path) -> None:
    kept = read_results(RESULTS, name)
    assert kept is not None
    if name == "pate-mnist":
        kept["rows"] = [row for row in kept["rows"] if row["queries"] == 100]
    checked = check(EXPERIMENTS[name], kept, silent(tmp_path))
    assert checked.compared >= 3
    assert checked.differences == ()


@pytest.mark.usefixtures("without_games")
def test_kept_epsilons_of_two_iterations_are_what_the_present_code_computes_but_for_their_game(tmp_path: Path) -> None:
    kept = read_results(RESULTS, "knn-table-2")
    assert kept is not None
    checked = check(EXPERIMENTS["knn-table-2"], kept, silent(tmp_path))
    assert checked.compared == 4
    assert [one.place for one in checked.differences] == ["rows[0].epsilon", "rows[1].epsilon"]
    assert all(one.kept < one.now for one in checked.differences), "whole counts cost more than a winner"


@pytest.mark.parametrize("name", ["knn-figure-4", "individual-knn"])
def test_a_figure_that_was_changed_is_named(name: str, tmp_path: Path) -> None:
    kept = read_results(RESULTS, name)
    assert kept is not None
    if name == "individual-knn":
        was = kept["rows"][3]["epsilon"]
        kept["rows"][3]["epsilon"] = was * (1 + 1e-5)
        place = "rows[3].epsilon"
    else:
        was = kept["series"]["0.03"][2][1][0]
        kept["series"]["0.03"][2][1][0] = was * (1 + 1e-5)
        place = "series.0.03[2][1][0]"
    changed = check(EXPERIMENTS[name], kept, silent(tmp_path)).differences
    assert changed == (Difference(place, pytest.approx(was * (1 + 1e-5), rel=1e-9), pytest.approx(was)),)


def test_a_row_that_is_gone_is_a_difference(tmp_path: Path) -> None:
    kept = read_results(RESULTS, "knn-figure-4")
    assert kept is not None
    del kept["series"]["0.1"]
    checked = check(EXPERIMENTS["knn-figure-4"], kept, silent(tmp_path))
    assert len(checked.differences) == checked.compared // 4
    assert {one.kept for one in checked.differences} == {None}


def test_what_needs_training_or_data_is_skipped_with_the_reason(tmp_path: Path) -> None:
    slow = check(EXPERIMENTS["pate-figure-2"], {}, silent(tmp_path))
    assert (slow.compared, slow.skipped) == (0, "needs training")
    assert "data" in check(EXPERIMENTS["natural-hearts"], {}, silent(tmp_path)).skipped


def test_the_command_ends_with_an_error_where_a_figure_differs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kept = read_results(RESULTS, "individual-knn")
    assert kept is not None
    kept["rows"][0]["epsilon"] += 0.25
    (tmp_path / "individual-knn.json").write_text(json.dumps(kept), encoding="utf-8")
    for folder, status in ((RESULTS, 0), (tmp_path, 1)):
        with pytest.raises(SystemExit) as ended:
            main(["reproduce", "individual-knn", "--check", "--results", str(folder)])
        assert ended.value.code == status
    out = capfd.readouterr().out
    (count,) = {int(found) for found in re.findall(r"individual-knn: (\d+) of \1 figures are the same", out)}
    assert f"individual-knn: {count - 1} of {count} figures are the same\n  rows[0].epsilon: kept" in out


def test_results_that_are_no_json_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{", encoding="utf-8")
    assert read_results(tmp_path, "y") is None
    with pytest.raises(StorageError, match="cannot read"):
        read_results(tmp_path, "x")
