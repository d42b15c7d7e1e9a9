"""The planned graph meets its failure bounds, and the bounds are what they claim to be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import hypergeom

from collegium.errors import ConfigurationError
from collegium.protocol.secure_sum.plan import (
    SAMPLE_BITS,
    holders_of,
    liveness_failure,
    log_hypergeometric_tail,
    plan_graph,
    sampled,
    secrecy_failure,
    signatures_to_check,
)


@pytest.mark.parametrize(
    ("population", "marked", "draws", "least"), [(249, 75, 64, 39), (137, 25, 64, 20), (9, 3, 5, 4)]
)
def test_the_tail_is_the_hypergeometric_one(population: int, marked: int, draws: int, least: int) -> None:
    expected = hypergeom(population, marked, draws).sf(least - 1)
    assert math.exp(log_hypergeometric_tail(population, marked, draws, least)[0]) == pytest.approx(expected, rel=1e-9)


def test_an_impossible_count_has_probability_zero_and_a_certain_one_has_one() -> None:
    assert log_hypergeometric_tail(10, np.array([2.0, 5.0]), 4, 3).tolist()[0] == -math.inf
    assert log_hypergeometric_tail(10, 5, 4, 0)[0] == 0.0


@pytest.mark.parametrize("parties", [3, 4, 5, 10, 20, 50, 100, 250, 1000])
@pytest.mark.parametrize("dropout", [0.0, 0.1, 0.3])
def test_every_plan_meets_both_of_its_bounds(parties: int, dropout: float) -> None:
    plan = plan_graph(parties, dropout)
    assert plan.secrecy_failure <= 2.0**-41
    assert plan.liveness_failure <= 1e-6
    assert 2 * plan.quorum > parties + plan.colluding, "two survivors' lists could both gather a quorum"
    assert 2 <= plan.threshold <= plan.neighbours
    assert plan.colluding < plan.threshold or not plan.complete
    assert parties - plan.dropped >= plan.quorum
    assert plan.honest_survivors >= 2
    assert plan.complete == (plan.neighbours == parties - 1)


def test_a_plan_says_who_shares_with_whom_and_what_it_bears() -> None:
    plan = plan_graph(250, quorum=0.8, complete=True)
    assert 2 <= plan.threshold <= plan.neighbours == 249
    assert plan.quorum == 200 and plan.dropped == 50  # of the 75 that may drop out, 50 leave a quorum
    assert str(plan) == (
        f"among 250 parties: shares with all others, any {plan.threshold} open a secret, 200 must stay; at most 50 "
        "may drop out, and 25 collude but for 2^-40"
    )
    assert f"shares with {plan_graph(250).neighbours} others each" in str(plan_graph(250))


@pytest.mark.parametrize(
    ("parties", "excess"), [(5, 1.30), (10, 1.20), (25, 1.22), (50, 1.28), (250, 1.22), (1000, 1.21)]
)
def test_a_demanded_quorum_leaves_little_noise_uncounted(parties: int, excess: float) -> None:
    """Parties insist on the quorum that a round needs in any case; the excess is that of a sum of everyone's noise."""
    plan = plan_graph(parties, quorum=0.8)
    assert plan.quorum == max(math.ceil(0.8 * parties), plan_graph(parties).quorum) == parties - plan.dropped
    assert math.sqrt(parties / plan.honest_survivors) < excess
    assert plan.secrecy_failure <= 2.0**-41 and plan.liveness_failure <= 1e-6


def test_the_secrecy_bound_lies_above_the_exact_chance_of_too_many_corrupt_holders() -> None:
    plan = plan_graph(1000)
    exact = 1000 * hypergeom(999, plan.colluding, plan.neighbours).sf(plan.threshold - 1)
    assert exact <= secrecy_failure(1000, plan.quorum, plan.colluding, plan.neighbours, plan.threshold)[0] * (1 + 1e-9)


def test_bounds_tighten_with_the_threshold_and_the_neighbours() -> None:
    secrecy = [secrecy_failure(250, 138, 25, 60, t)[0] for t in range(10, 40)]
    assert secrecy == sorted(secrecy, reverse=True) and secrecy[0] > secrecy[-1]
    liveness = [liveness_failure(250, 75, k, 25) for k in range(40, 100)]
    assert liveness == sorted(liveness, reverse=True)
    assert plan_graph(250, 0.3).neighbours > plan_graph(250, 0.1).neighbours
    assert plan_graph(1000, security_bits=60).neighbours > plan_graph(1000, security_bits=20).neighbours


@pytest.mark.slow
def test_the_liveness_bound_is_not_below_a_simulation() -> None:
    """At a hopeless k the bound is loose but above the simulated frequency; 400 graphs of 100 parties."""
    generator = np.random.default_rng(3)
    lost = 0
    for _ in range(400):
        gone = set(generator.choice(100, 30, replace=False).tolist())
        digest = generator.bytes(32)
        holders = (holders_of(i, generator.bytes(32), digest, 100, 20) for i in range(100) if i not in gone)
        lost += any(sum(int(h) not in gone for h in chosen) < 8 for chosen in holders)
    bound = liveness_failure(100, 30, 20, 8)
    assert 0 < lost / 400 <= bound < 1


def test_holders_are_a_uniform_subset() -> None:
    """χ² over the 49 parties that 4,000 nonces choose 8 holders from; α = 1e-6, without-replacement being narrower."""
    counts = np.zeros(50)
    for i in range(4000):
        chosen = holders_of(7, i.to_bytes(32, "big"), b"t" * 32, 50, 8)
        assert chosen.size == 8 and 7 not in chosen and (np.diff(chosen) > 0).all()
        counts[chosen] += 1
    others = np.delete(counts, 7)
    expected = 4000 * 8 / 49
    assert ((others - expected) ** 2 / expected).sum() < 109.7  # quantile 1 − 1e-6 of χ² with 48 degrees


def test_holders_depend_on_the_nonce_the_set_up_and_the_owner() -> None:
    drawn = [
        holders_of(owner, nonce, digest, 100, 10).tolist()
        for owner in (1, 2)
        for nonce in (b"a" * 32, b"b" * 32)
        for digest in (b"s" * 32, b"t" * 32)
    ]
    assert len({tuple(chosen) for chosen in drawn}) == 8
    assert holders_of(1, b"a" * 32, b"s" * 32, 5, 10).tolist() == [0, 2, 3, 4]


def test_few_honest_parties_can_be_cut_off_and_they_are_not_counted_on() -> None:
    for parties in (100, 250, 1000):
        plan = plan_graph(parties)
        assert 0 < plan.isolated <= 20
        assert plan.honest_survivors == plan.quorum - plan.colluding - plan.isolated
        shorter = [
            secrecy_failure(parties, plan.quorum, plan.colluding, plan.neighbours, plan.threshold, target)[1]
            for target in (2.0**-41, 2.0**-10)
        ]
        assert shorter[0] == plan.isolated >= shorter[1]
    assert plan_graph(10).isolated == 0


@pytest.mark.parametrize(("shown", "majority"), [(1000, 551), (900, 551), (9000, 5501)])
def test_the_sample_of_signatures_is_as_sound_as_stated_and_not_larger(shown: int, majority: int) -> None:
    checked = signatures_to_check(shown, majority)
    passes = hypergeom(shown, majority - 1, checked).logpmf(checked) / math.log(2)
    assert passes <= -SAMPLE_BITS
    assert hypergeom(shown, majority - 1, checked - 1).logpmf(checked - 1) / math.log(2) > -SAMPLE_BITS
    assert checked < 190


def test_another_tree_list_or_set_of_signers_draws_another_sample() -> None:
    first = (b"list", b"signers", b"root")
    others = [(b"LIST", b"signers", b"root"), (b"list", b"SIGNERS", b"root"), (b"list", b"signers", b"ROOT")]
    drawn = [sampled(*said, 900, 551) for said in (first, *others)]
    assert len({tuple(sample) for sample in drawn}) == 4 and sampled(*first, 900, 551) == drawn[0]
    assert all(sample == sorted(set(sample)) and sample[0] >= 0 and sample[-1] < 900 for sample in drawn)


@pytest.mark.parametrize("parties", [3, 4, 7, 12])
def test_with_few_parties_a_majority_of_signatures_is_checked_conclusively(parties: int) -> None:
    majority = plan_graph(parties).majority
    assert signatures_to_check(majority, majority) == majority


@pytest.mark.parametrize(
    ("parties", "dropout", "collusion"), [(2, 0.1, 0.1), (10, 0.6, 0.1), (10, 0.3, 0.6), (10, 1.0, 0.1), (3, 0.4, 0.1)]
)
def test_contradictory_demands_are_refused(parties: int, dropout: float, collusion: float) -> None:
    with pytest.raises(ConfigurationError):
        plan_graph(parties, dropout, collusion)


@pytest.mark.parametrize(
    ("demand", "told"),
    [
        ({"quorum": -0.1}, r"quorum is a fraction in \[0, 1\], got -0.1"),
        ({"quorum": 1.5}, r"quorum is a fraction in \[0, 1\], got 1.5"),
        ({"security_bits": 0}, "security_bits must lie in 1 to 128, got 0"),
        ({"security_bits": 129}, "security_bits must lie in 1 to 128, got 129"),
    ],
)
def test_a_demand_that_no_graph_can_meet_or_that_asks_for_nothing_is_refused(
    demand: dict[str, float], told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        plan_graph(10, **demand)
