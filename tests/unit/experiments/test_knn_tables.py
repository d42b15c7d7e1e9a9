"""Iterations of Private-kNN: one budget for all, each student fitted once, neighbours by what was learned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from collegium_reproduction.experiments.knn_runs import NearestPlan, measure
from collegium_reproduction.experiments.knn_table_1 import PAPER, PLANS, KnnTable1
from collegium_reproduction.experiments.knn_table_2 import PLAN, KnnTable2
from collegium_reproduction.nearest.coordinator import NearestRecords
from collegium_reproduction.nearest.knn import PrivateKNN
from unit.experiments.conftest import silent

from collegium.data import DataSource, Examples, default_task, load
from collegium_accounting.game.laws import block_epsilon
from collegium_accounting.mechanisms import Adjacency, Unit

TASK = default_task("digits")
DIGITS: dict[str, Any] = {
    "task": TASK.model_dump(),
    "pool": {"source": "digits", "start": 1000, "stop": 1400},
    "holdout": {"source": "digits", "start": 1400},
    "student": {"method": "consistency", "options": {"steps": 20}},
}
MECHANISM = PrivateKNN(k=20, classes=10, threshold=8.0, sigma1=3.0, sigma2=1.0, sampling_rate=0.5)
TWICE = NearestPlan("twice", "digits", DIGITS, MECHANISM, (40, 30), budget=100.0, dimensions=16)


@pytest.fixture(scope="module")
def private() -> Examples:
    return load(DataSource(source="digits", stop=1000), TASK, data_root=None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("iterations")


@pytest.fixture(scope="module")
def asked_by(folder: Path, private: Examples) -> Iterator[tuple[list[str], list[dict[str, Any]]]]:
    """The names of the features that neighbours were found by, and what was measured."""
    names: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        request = NearestRecords.ask

        def spied(questions: NearestRecords, *rest: Any, **named: Any) -> Any:
            names.append(questions.features.name)
            return request(questions, *rest, **named)

        patch.setattr(NearestRecords, "ask", spied)
        rows = measure(TWICE, 0, private, silent(folder))
    yield names, rows


def _epsilon(mechanism: PrivateKNN, screened: int, answered: int) -> float:
    unit = Unit(1, Adjacency.ADD_REMOVE)
    screening, release = (stage.law(unit, mechanism.classes) for stage in mechanism.stages)
    return block_epsilon({screening: screened, release: answered}, 1e-5)


def test_the_second_iteration_finds_neighbours_by_what_the_first_taught(
    asked_by: tuple[list[str], list[dict[str, Any]]],
) -> None:
    names = asked_by[0]
    assert names[0] == "hog"
    assert names[-1] == "network"
    assert names == sorted(names)


def test_all_iterations_are_paid_from_one_ledger(asked_by: tuple[list[str], list[dict[str, Any]]]) -> None:
    first, second = asked_by[1]
    assert (first["screened"], second["screened"]) == (40, 70)
    assert second["answered"] == first["answered"] + second["answered_here"]
    for row in (first, second):
        # Stated beforehand: that every query of the iterations so far may be answered, and no query of any other.
        assert row["epsilon"] == pytest.approx(_epsilon(MECHANISM, row["screened"], row["screened"]), rel=1e-6)
        # The paper's figure is that of the queries answered.
        assert row["epsilon_classic"] > _epsilon(MECHANISM, row["screened"], row["answered"])
    # Of 1,000 records in ten classes the nearest 20 of a sample: far above one in ten.
    assert min(first["labels"], second["labels"]) > 0.6


def test_each_student_is_fitted_once_and_a_run_goes_on_where_it_was(
    asked_by: tuple[list[str], list[dict[str, Any]]], folder: Path, private: Examples
) -> None:
    students = {path: path.stat().st_mtime_ns for path in (folder / "learned").glob("student-*")}
    assert len(students) == 2
    ledger = (folder / "twice-seed-0" / "ledger.sqlite").read_bytes()
    (folder / "twice-seed-0" / "iteration-2.json").unlink()
    again = measure(TWICE, 0, private, silent(folder))
    for row, before in zip(again, asked_by[1], strict=True):
        assert {key: row[key] for key in row if "cpu" not in key} == {
            key: before[key] for key in before if "cpu" not in key
        }
    assert {path: path.stat().st_mtime_ns for path in (folder / "learned").glob("student-*")} == students
    assert (folder / "twice-seed-0" / "ledger.sqlite").read_bytes() == ledger


def test_no_iteration_passes_the_budget(tmp_path: Path, private: Examples) -> None:
    budget = _epsilon(MECHANISM, 40, 10)  # what may be screened is stated beforehand
    rows = measure(replace(TWICE, budget=budget, sizes=(40,)), 0, private, silent(tmp_path))
    assert rows[0]["epsilon"] <= budget
    assert 10 == rows[0]["answered"] <= rows[0]["screened"] < 40


def test_the_pages_put_what_is_measured_below_what_the_paper_says() -> None:
    row = {"screened": 1000, "answered": 812, "answered_here": 407, "labels": 0.9712, "student": 0.9868}
    row |= {"epsilon": 0.97, "epsilon_classic": 1.19}
    results = {"records": 60000, "rows": [row | {"row": plan.key, "seed": 0, "iteration": 1} for plan in PLANS]}
    first = KnnTable1().render(results)
    for paper in PAPER:
        assert f"{100 * paper.student:.2f} %" in first
    assert first.count("97.12 %") == len(PLANS)
    second = KnnTable2().render(
        {"records": 60000, "rows": [row | {"row": PLAN.key, "seed": 0, "iteration": number} for number in (1, 2)]}
    )
    assert second.count("98.68 %") == 2
    assert "94.41 %" in second
