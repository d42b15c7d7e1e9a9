"""What counts of records leave for class sums: together they cost the budget, and hardly less."""

from __future__ import annotations

from typing import Any

import pytest

from collegium.coordinator.run import counts_terms
from collegium.coordinator.run.counts_terms import configured_counts, counted_unit
from collegium.coordinator.run.factories import configured_mechanism
from collegium.coordinator.settings.run_config import RunConfig
from collegium.settings import validate_config
from collegium_accounting.mechanisms.class_sums import block_epsilon
from collegium_accounting.units import Unit

DELTA = 1e-5


def configured(epsilon: float, **changes: Any) -> RunConfig:
    values: dict[str, Any] = {"name": "local", "pool": {"source": "pool.npz"}, "budget": {"epsilon": epsilon}}
    values["task"] = {"classes": ["a", "b", "c"], "inputs": {"kind": "vector", "size": 5}}
    return validate_config(values | changes, RunConfig, "test")


def part_spent(config: RunConfig) -> float:
    """The part of ε that class sums and counts cost together."""
    mechanism = configured_mechanism(config)
    blocks = {mechanism.stages[0].law(Unit(1, type(mechanism).adjacencies[0])): getattr(mechanism, "rounds", 1)}
    for _, counts, rounds in configured_counts(config):
        law = counts.stages[0].law(counted_unit(config))
        blocks[law] = blocks.get(law, 0) + rounds
    return block_epsilon(blocks, DELTA) / config.budget.epsilon


@pytest.mark.parametrize("epsilon", [0.05, 0.2, 1.0, 3.0, 8.0])
@pytest.mark.parametrize(
    "counts",
    [
        {"evaluation": {"share": 0.1}},
        {"evaluation": {"share": 0.5}, "pool_check": {"share": 0.4}},
        {"evaluation": {"sigma": 400.0}},
        {"evaluation": {"share": 0.1}, "budget": {"unit": "party"}},
    ],
    ids=str,
)
def test_class_sums_and_counts_cost_the_budget_together_and_hardly_less(epsilon: float, counts: dict[str, Any]) -> None:
    config = configured(epsilon, **counts | {"budget": counts.get("budget", {}) | {"epsilon": epsilon}})
    assert 0.998 < part_spent(config) <= 1.0


def test_counts_of_a_tenth_take_hardly_anything_off_class_sums_and_a_tenth_off_votes() -> None:
    known = {"evaluation": {"share": 0.1}}
    assert 0.985 < counts_terms.left_for_labels(configured(1.0, **known)) < 0.995
    votes = {"mechanism": {"name": "lnmax", "parameters": {"gamma": 0.05}}, "teachers": {"kind": "forest"}}
    assert counts_terms.left_for_labels(configured(1.0, **known, **votes)) == pytest.approx(0.9)


def test_planted_counts_that_nobody_takes_off_pass_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collegium.coordinator.run.factories.left_for_labels", lambda config: config.budget.own)
    assert part_spent(configured(1.0, evaluation={"share": 0.5})) > 1.0


def test_counts_of_more_than_the_budget_leave_the_least() -> None:
    assert counts_terms.left_for_labels(configured(1.0, evaluation={"sigma": 0.5})) == 1e-3
