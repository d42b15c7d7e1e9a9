"""ε with more colluding parties than planned, against the closed form of the noise that is left."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from benchmarks import colluders as table
from scipy.optimize import brentq
from scipy.special import ndtr

from collegium.coordinator.run.colluders import beyond_plan, breaking
from collegium.protocol.secure_sum.plan import plan_graph
from collegium_accounting.mechanisms import Mechanism, create

DELTA = 1e-5
DOCS = Path(__file__).resolve().parents[3] / "docs"


def closed_form(mu: float) -> float:
    """Balle and Wang 2018, Theorem 8."""
    return float(
        brentq(lambda e: ndtr(mu / 2 - e / mu) - math.exp(e) * ndtr(-mu / 2 - e / mu) - DELTA, 0.0, 80.0, xtol=1e-10)
    )


@pytest.mark.parametrize(("parties", "mechanism", "moved"), [(5, "class-sums", 1.0), (20, "gnmax", math.sqrt(2.0))])
def test_epsilon_is_that_of_the_shares_that_are_left(parties: int, mechanism: str, moved: float) -> None:
    described: Mechanism = create(mechanism, sigma=60.0, **({"classes": 3} if mechanism == "class-sums" else {}))
    plan = plan_graph(parties, 0.3, 0.1, quorum=0.8)
    found = beyond_plan(described, plan, described.unit(), DELTA, 1)
    assert found[0].colluding == plan.colluding and found[0].noise_of == plan.honest_survivors
    for one in found:
        left = 60.0 * math.sqrt(one.noise_of / plan.honest_survivors)
        assert one.epsilon == pytest.approx(closed_form(moved / left), rel=3e-2)
    assert [one.epsilon for one in found] == sorted(one.epsilon for one in found)


def test_a_single_vector_has_the_share_of_the_sum_that_counts_on_most_parties() -> None:
    plan, sums = plan_graph(5, 0.3, 0.1, quorum=0.8), create("class-sums", sigma=60.0, classes=3)
    *fewer, alone = beyond_plan(sums, plan, sums.unit(), DELTA, 1, plan.of_all.honest_survivors)
    assert fewer == beyond_plan(sums, plan, sums.unit(), DELTA, 1)[:-1], "a sum of fewer parties is the worse one"
    assert alone.noise_of == 1 and plan.of_all.honest_survivors == 4
    assert alone.epsilon == pytest.approx(closed_form(1.0 / (60.0 / math.sqrt(4))), rel=3e-2)


def test_single_vectors_are_seen_from_as_many_as_open_secrets_or_sign_two_lists() -> None:
    for parties in (5, 20, 60):
        plan = plan_graph(parties, 0.3, 0.1, quorum=0.8)
        sums = create("class-sums", sigma=4.0, classes=3)
        found = beyond_plan(sums, plan, sums.unit(), DELTA, 1)
        assert found[-1].colluding == breaking(plan) and found[-1].noise_of == 1
        assert plan.colluding < breaking(plan) <= 2 * plan.quorum - parties
        assert all(one.noise_of > 1 for one in found if one.colluding < breaking(plan) - 1)


def test_the_table_of_the_documentation_is_what_the_command_prints() -> None:
    text = (DOCS / "privacy.md").read_text(encoding="utf-8")
    assert "python -m benchmarks.colluders" in text
    assert "\n".join(table.rows()) in text
