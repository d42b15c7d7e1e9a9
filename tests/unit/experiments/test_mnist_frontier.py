"""The row that sets accuracy against ε: its plans, its resumption and its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from collegium_reproduction.experiments.base import Setting
from collegium_reproduction.experiments.mnist_frontier import (
    RECORD_PLANS,
    TEACHER_PLANS,
    MnistFrontier,
    _once,
    _RecordRuns,
)
from unit.experiments.conftest import silent

from collegium.coordinator.settings.run_config import RunConfig


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return silent(tmp_path)


def test_plans_have_keys_of_their_own() -> None:
    keys = [plan.key for plan in (*TEACHER_PLANS, *RECORD_PLANS)]
    assert len(set(keys)) == len(keys)


def test_every_plan_of_neighbours_is_a_run_whose_queries_come_from_public_data(setting: Setting) -> None:
    runs = _RecordRuns(3, None, setting)  # type: ignore[arg-type]
    for plan in RECORD_PLANS:
        config = runs._config(plan)
        assert isinstance(config, RunConfig) and config.seed == 3
        assert (config.queries.count, config.queries.choice) == (plan.queries, "representative")
        assert config.neighbours is not None and config.neighbours.share == plan.neighbours / 60_000


def test_a_row_is_measured_once_however_often_it_is_asked_for(setting: Setting) -> None:
    measured: list[int] = []

    def measure() -> dict[str, Any]:
        measured.append(1)
        return {"labels": 0.5, "epsilon": 1.0, "student": 0.25}

    first = _once(TEACHER_PLANS[0], 0, setting, measure)
    assert _once(TEACHER_PLANS[0], 0, setting, measure) == first
    assert len(measured) == 1
    _once(TEACHER_PLANS[0], 1, setting, measure)
    assert len(measured) == 2


def test_the_table_shows_the_mean_over_seeds_and_the_papers() -> None:
    plan = RECORD_PLANS[0]
    rows = [
        {"row": plan.key, "seed": seed, "labels": 1.0, "epsilon": 0.03, "student": student, "cpu_s": 60.0}
        for seed, student in enumerate((0.97, 0.99))
    ]
    shown = MnistFrontier().render({"rows": rows})
    assert "98.00 % (97.00 % to 99.00 %)" in shown
    assert "Confident-GNMax 2018" in shown
