"""Appendix C: forests on tables, and what the description of Diabetes allows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from collegium_reproduction.experiments import pate_appendix_c, tables
from collegium_reproduction.experiments.base import Setting
from collegium_reproduction.experiments.pate_appendix_c import FLOOR, PateAppendixC, Task
from collegium_reproduction.experiments.tables import Table, agreement, forest_votes, numbered
from support.data import folder_with
from unit.experiments.conftest import silent

from collegium.data import Examples
from collegium.data.task import CategoryColumn, NumberColumn, TableInputs


def made(rows: int, seed: int) -> Table:
    """Two columns; the class is whether the first is above a half, and one in ten is wrong."""
    rng = np.random.default_rng(seed)
    x = rng.random((rows, 2)).astype(np.float32)
    flips = rng.random(rows) < 0.1
    return Table(x, ((x[:, 0] > 0.5) ^ flips).astype(np.int64))


def at(folder: Path, data_root: Path | None = None) -> Setting:
    return silent(folder, data_root, ensembles=folder / "ensembles")


def test_the_row_runs_and_says_what_diabetes_does_not_determine(tmp_path: Path, without_games: None) -> None:
    def task(variant: str, seed: int, setting: Setting) -> Task:
        return Task(made(150, 1), made(500, 2), made(200, 3))

    row = PateAppendixC(parties=5, variants=("adult", "diabetes-balanced"), plans=("lnmax",), tasks=task)
    measured = row.run(at(tmp_path))
    text = row.render(json.loads(json.dumps(measured)))
    assert "83.00 %" in text and "93.94 %" in text and "does not determine" in text
    adult = measured["rows"][0]
    assert adult["plurality"] > 0.8
    assert adult["plans"]["lnmax"]["exact"] < adult["plans"]["lnmax"]["theorem_wide"]


def test_the_accounts_floor_is_the_papers_figure_for_diabetes() -> None:
    assert round(FLOOR, 2) == 1.44


def test_a_category_becomes_its_place_in_the_public_list() -> None:
    inputs = TableInputs(
        columns=(NumberColumn(name="a", low=0, high=1), CategoryColumn(name="b", categories=("x", "y", "z")))
    )
    x = np.array([[0.25, 0, 0, 0, 1, 0], [0.5, 0, 1, 0, 0, 0], [0.5, 0, 0, 0, 0, 1]], dtype=np.float32)
    table = numbered(Examples(x, np.array([0, 1, 1])), inputs)
    assert table.x.tolist() == [[0.25, 2.0], [0.5, 0.0], [0.5, 3.0]]  # 3: a category that is not in the list
    assert numbered(Examples(x, np.array([0, 1, 1])), inputs, ["b"]).x.tolist() == [[2.0], [0.0], [3.0]]


def test_every_forest_votes_once_and_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    votes = forest_votes(made(60, 1), made(20, 2), 4, 0, at(tmp_path))
    assert (votes.sum(axis=1) == 4).all() and 0.0 <= agreement(votes) <= 1.0
    monkeypatch.delattr(tables, "forest")
    assert (forest_votes(made(60, 1), made(20, 2), 4, 0, at(tmp_path)) == votes).all()
    with pytest.raises(NameError):
        forest_votes(made(60, 1), made(20, 3), 4, 0, at(tmp_path))


def test_no_patient_stands_on_both_sides_and_balanced_classes_are_as_large_as_the_data_allow(tmp_path: Path) -> None:
    setting = at(tmp_path, folder_with("diabetic_data.csv.xz"))
    task = pate_appendix_c._diabetes("diabetes-balanced", 0, setting)
    sides = [task.train, Table(*(np.concatenate(pair) for pair in _pairs(task)))]
    assert all(side.groups is not None for side in sides)
    assert not set(sides[0].groups) & set(sides[1].groups)  # type: ignore[arg-type]
    assert np.bincount(np.concatenate([side.y for side in sides])).tolist() == [11_357, 11_357]
    assert task.train.x.shape[1] == 18
    assert 0.25 < len(sides[1]) / (2 * 11_357) < 0.29


def _pairs(task: Task) -> list[tuple[np.ndarray, np.ndarray]]:
    pool, measured = task.pool, task.measured
    assert pool.groups is not None and measured.groups is not None
    return [(pool.x, measured.x), (pool.y, measured.y), (pool.groups, measured.groups)]
