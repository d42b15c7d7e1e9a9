"""The scale benchmark fits exponents, tells when a bound is passed, and every axis runs."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from benchmarks.scale import AXES, Cost, beside_kept, exponents, fitted, line


def costs(exponent: float) -> list[Cost]:
    return [Cost("parties", "work", size, 1e-3 * size**exponent) for size in (10, 100, 1000, 10_000)]


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_is_found(exponent: float) -> None:
    found = fitted(costs(exponent), lambda cost: cost.cpu_s)
    assert found == pytest.approx(exponent)


def test_a_start_up_cost_does_not_hide_a_bend() -> None:
    bent = [Cost("pool", "work", size, 1.0 + 1e-7 * size**2) for size in (10, 100, 1000, 10_000, 100_000)]
    found = fitted(bent, lambda cost: cost.cpu_s)
    assert found is not None and found > 1.3


def test_work_that_grows_with_the_square_passes_its_bound() -> None:
    (row,) = exponents(costs(2.0))
    assert not row["kept"] and "**passed**" in line(row)
    assert exponents(costs(1.0))[0]["kept"]


def test_what_was_measured_before_stays_beside_what_is_measured_again() -> None:
    kept = [asdict(cost) for cost in [*costs(1.0)[:2], Cost("pool", "work", 10, 5.0)]]
    joined = beside_kept(kept, [Cost("parties", "work", 1000, 7.0), Cost("parties", "work", 10, 6.0)])
    assert [(cost.axis, cost.size, cost.cpu_s) for cost in joined] == [
        ("parties", 10, 6.0), ("parties", 100, 0.1), ("parties", 1000, 7.0), ("pool", 10, 5.0),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("axis", ["classes", "pool", "federated", "ledger"])
def test_an_axis_gives_costs_of_every_size(axis: str) -> None:
    measured = list(AXES[axis][0]((60, 120)))
    assert {cost.size for cost in measured} == {60, 120} and all(cost.cpu_s >= 0 for cost in measured)
