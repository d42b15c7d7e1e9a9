"""What an institution refuses before it votes, and what it counts against itself."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collegium.data.task import TeacherSettings
from collegium.errors import ConfigurationError, Refused
from collegium.parties.account import Account
from collegium.parties.costs import own_cost
from collegium.parties.policy import Policy, PolicyConfig
from collegium.privacy.renyi import RenyiCurve
from collegium.protocol.messages import CastVotes, Describe, InlineInputs, PoolRange, Request, Terms

POOL = "ab" * 32


def cast(*indices: int, mode: str = "masked", mechanism: str = "gnmax", **parameters: float) -> CastVotes:
    terms = Terms(mechanism, parameters or {"sigma": 40.0}, "replace", mode)
    return CastVotes(terms, TeacherSettings(), PoolRange(POOL, indices or (0,)), "round-1")


def ask(policy: PolicyConfig, request: CastVotes, hour: int = 12) -> None:
    Policy(policy, lambda: datetime(2026, 1, 5, hour, tzinfo=UTC))(Request("id", "run", request))


def test_the_default_policy_takes_masked_sums_and_shows_no_votes() -> None:
    ask(PolicyConfig(), cast())
    with pytest.raises(Refused, match="clear"):
        ask(PolicyConfig(), cast(mode="clear"))


@pytest.mark.parametrize(
    ("policy", "request_", "word"),
    [
        (PolicyConfig(mechanisms=("lnmax",)), cast(), "gnmax"),
        (PolicyConfig(minimum_noise_votes=50), cast(), "50"),
        (PolicyConfig(minimum_noise_votes=21), cast(mechanism="lnmax", gamma=0.05), "20"),
        (PolicyConfig(minimum_noise_votes=30), cast(mechanism="confident-gnmax", sigma1=99, sigma2=20), "20"),
        (PolicyConfig(), cast(mechanism="nzc", constant=5), "nzc"),
        (PolicyConfig(), cast(mechanism="gnmax", gamma=5), "sigma"),
        (PolicyConfig(hours_utc=(20, 6)), cast(), "20 to 6"),
    ],
)
def test_a_request_outside_the_policy_is_refused_by_name(policy: PolicyConfig, request_: CastVotes, word: str) -> None:
    with pytest.raises(Refused, match=word):
        ask(policy, request_)


def test_hours_may_span_midnight() -> None:
    night = PolicyConfig(hours_utc=(20, 6))
    for hour in (20, 23, 0, 5):
        ask(night, cast(), hour)


def test_inputs_sent_along_need_agreement() -> None:
    inline = CastVotes(cast().terms, TeacherSettings(), InlineInputs(np.zeros((2, 3), np.float32)), "round-1")
    with pytest.raises(Refused, match="pool"):
        ask(PolicyConfig(), inline)
    ask(PolicyConfig(inline_inputs=True), inline)


def test_requests_that_show_no_votes_are_not_the_policys_business() -> None:
    Policy(PolicyConfig(mechanisms=()))(Request("id", "run", Describe()))


def test_a_misspelt_policy_names_its_mistake(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("minimum_noise = 3")
    with pytest.raises(ConfigurationError, match="minimum_noise"):
        PolicyConfig.read(path)


def unanimous(queries: int, teachers: int) -> np.ndarray:
    counts = np.zeros((queries, 3), np.int64)
    counts[:, 1] = teachers
    return counts


def test_agreeing_teachers_cost_their_square_and_split_ones_less() -> None:
    orders = (2.0, 8.0)
    split = np.array([[2, 1, 1]], dtype=np.int64)
    agree = own_cost(unanimous(1, 4), cast().terms, orders).values
    assert np.allclose(agree, np.array(orders) * 16 / (2 * 40**2))
    assert np.allclose(own_cost(split, cast().terms, orders).values, np.array(orders) * 6 / (2 * 40**2))


@given(st.lists(st.integers(0, 9), min_size=3, max_size=3), st.sampled_from([1.5, 2.0, 8.0, 32.0]))
def test_the_gaussian_cost_is_the_divergence_of_the_noisy_sums_with_and_without_the_party(
    votes: list[int], order: float
) -> None:
    sigma = 3.0
    cost = own_cost(np.array([votes], dtype=np.int64), cast(sigma=sigma).terms, (order,)).values[0]
    shift = np.array(votes, dtype=float)
    # Independent evaluation: the log moment of a Gaussian shifted by v, coordinate by coordinate, by quadrature.
    grid = np.linspace(-60, 60, 24001)
    exact = 0.0
    for moved in shift:
        log_p, log_q = -((grid - moved) ** 2) / (2 * sigma**2), -(grid**2) / (2 * sigma**2)
        mass = np.exp(order * log_p + (1 - order) * log_q - (order * (order - 1) * moved**2) / (2 * sigma**2))
        density = mass.sum() * (grid[1] - grid[0]) / (sigma * np.sqrt(2 * np.pi))
        if abs(order * moved) < 40:
            assert density == pytest.approx(1.0, rel=1e-6)
        exact += order * moved**2 / (2 * sigma**2)
    assert cost == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("mechanism", ["lnmax", "exponential"])
def test_pure_mechanisms_cost_at_most_half_the_squared_loss(mechanism: str) -> None:
    cost = own_cost(unanimous(1, 3), cast(mechanism=mechanism, gamma=0.1).terms, (2.0,))
    assert cost.values[0] == pytest.approx(2.0 * (3 * 0.1) ** 2 / 2)


def account(folder: Path, **limits: object) -> Account:
    return Account(folder, "clinic", PolicyConfig.model_validate(limits), None)


def test_answers_are_charged_before_they_are_given_and_survive_a_restart(tmp_path: Path) -> None:
    first = account(tmp_path)
    first.charge(cast(0, 1, 2), unanimous(3, 2))
    spent = first.spent().epsilon
    first.close()
    again = account(tmp_path)
    assert again.spent().epsilon == spent > 0
    assert again.queries_answered() == 3
    one = own_cost(unanimous(3, 2), cast().terms, (2.0,))
    assert isinstance(one, RenyiCurve)


def test_a_limit_of_queries_holds_over_rounds_and_a_refused_round_counts_nothing(tmp_path: Path) -> None:
    mine = account(tmp_path, queries=4)
    mine.charge(cast(0, 1, 2), unanimous(3, 1))
    with pytest.raises(Refused, match="3 of 4"):
        mine.charge(cast(3, 4), unanimous(2, 1))
    mine.charge(cast(3), unanimous(1, 1))
    assert mine.queries_answered() == 4


def test_one_query_is_not_summed_again_and_again_whatever_the_terms(tmp_path: Path) -> None:
    mine = account(tmp_path, times_per_query=2)
    mine.charge(cast(7), unanimous(1, 1))
    mine.charge(cast(7, sigma=41.0), unanimous(1, 1))
    with pytest.raises(Refused, match="differ by their votes"):
        mine.charge(cast(6, 7, sigma=42.0), unanimous(2, 1))
    assert mine.queries_answered() == 2


def test_its_own_epsilon_is_a_hard_stop(tmp_path: Path) -> None:
    mine = account(tmp_path, epsilon=0.5)
    mine.charge(cast(0), unanimous(1, 1))
    with pytest.raises(Refused, match="policy"):
        mine.charge(cast(1, sigma=0.5), unanimous(1, 1))


def test_confirming_a_named_class_costs_at_most_what_a_test_of_the_largest_count_does() -> None:
    votes = np.array([[3, 1, 0]], dtype=np.int64)
    terms = cast(mechanism="interactive-gnmax", sigma1=20, sigma2=10).terms
    cost = own_cost(votes, terms, (2.0,)).values[0]
    named = max(2.0 * count**2 / (2 * 20**2) for count in votes[0].tolist())
    assert cost == pytest.approx(named + 2.0 * 10 / (2 * 10**2))
