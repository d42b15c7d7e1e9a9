"""Whatever the vectors and whoever drops out when: the exact sum of the survivors, or a typed abort."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.local_sums import local_round, run_sum
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from collegium.errors import ConfigurationError
from collegium.protocol.secure_sum import Phase, SumSetup, choose_ring, plan_graph
from collegium.protocol.secure_sum.errors import SumAborted, TooFewSurvivors, ValueOutOfRange, WrongLength
from collegium.protocol.secure_sum.plan import holders_of


def exact_sum_or_abort(vectors: np.ndarray, low: int, high: int, leaves: list[Phase]) -> bool:
    """Run one round in which party i leaves before phase ``leaves[i]``; whether it completed."""
    made = local_round(vectors, low, high)
    leaving = dict(zip(made.setup.names, leaves, strict=True))
    try:
        result = run_sum(made.coordinator, made.parties, lambda name, phase: phase >= leaving[name])
    except TooFewSurvivors:
        with pytest.raises(SumAborted):
            _ = made.coordinator.result
        return False
    stayed = [i for i, phase in enumerate(leaves) if phase > Phase.MASK]
    assert result.survivors == tuple(made.setup.names[i] for i in stayed)
    assert np.array_equal(result.total, vectors[stayed].sum(axis=0))
    return True


@st.composite
def rounds(draw: st.DrawFn, least: int, most: int) -> tuple[np.ndarray, int, int, list[Phase]]:
    parties = draw(st.integers(least, most))
    length = draw(st.integers(1, 5))
    low = draw(st.sampled_from([0, -3, -(10**6), 17]))
    high = low + draw(st.sampled_from([0, 1, 200, 10**6, 10**12]))
    seed = draw(st.integers(0, 2**32 - 1))
    share = draw(st.sampled_from([0.0, 0.1, 0.3, 0.6]))
    generator = np.random.default_rng(seed)
    vectors = generator.integers(low, high, (parties, length), endpoint=True)
    leaves = [
        Phase(int(generator.integers(0, 5))) if generator.random() < share else Phase.DONE for _ in range(parties)
    ]
    return vectors, low, high, leaves


@pytest.mark.slow
@settings(max_examples=60)
@given(rounds(3, 24))
def test_few_parties_get_the_exact_sum_or_a_clean_abort(case: tuple[np.ndarray, int, int, list[Phase]]) -> None:
    vectors, low, high, leaves = case
    completed = exact_sum_or_abort(vectors, low, high, leaves)
    plan = plan_graph(len(leaves))
    assert plan.complete
    assert completed == (sum(phase is Phase.DONE for phase in leaves) >= plan.quorum)


@pytest.mark.slow
@settings(max_examples=5)
@given(rounds(25, 120))  # 250 parties are in the next test
def test_many_parties_get_the_exact_sum_or_a_clean_abort(case: tuple[np.ndarray, int, int, list[Phase]]) -> None:
    vectors, low, high, leaves = case
    completed = exact_sum_or_abort(vectors, low, high, leaves)
    if sum(phase is not Phase.DONE for phase in leaves) <= plan_graph(len(leaves)).dropped // 2:
        assert completed


@pytest.mark.slow
def test_250_parties_lose_75_at_any_phase_and_the_sum_is_exact() -> None:
    generator = np.random.default_rng(5)
    vectors = generator.integers(0, 1, (250, 10), endpoint=True)
    leaves = [Phase.DONE] * 250
    for index in generator.choice(250, 75, replace=False):
        leaves[index] = Phase(int(generator.integers(0, 5)))
    assert exact_sum_or_abort(vectors, 0, 1, leaves)


def completes(plan_neighbours: int, generator: np.random.Generator) -> bool:
    """The logic of drop-outs alone, on the graph as it is really drawn: each of 250 parties leaves with 30 %."""
    plan = plan_graph(250)
    leaves = np.where(generator.random(250) < 0.3, generator.integers(0, 5, 250), Phase.DONE)
    if (leaves > Phase.SIGN).sum() < plan.quorum:
        return False
    answering = leaves > Phase.UNMASK
    digest = generator.bytes(32)
    for owner in np.flatnonzero(leaves > Phase.SHARE):
        holders = holders_of(int(owner), generator.bytes(32), digest, 250, plan_neighbours)
        if answering[holders].sum() < plan.threshold:
            return False
    return True


def test_999_of_1000_runs_survive_thirty_percent_random_drop_outs() -> None:
    """By the law of how many of 250 parties, and of an owner's holders, are left; any one too few would end the run."""
    plan = plan_graph(250)
    until_signing = binom.cdf(plan.quorum - 1, 250, 1 - 0.3 * 4 / 5)  # who leaves does so before one of five phases
    assert until_signing + 250 * binom.cdf(plan.threshold - 1, plan.neighbours, 1 - 0.3) <= 1e-3


@pytest.mark.slow
def test_on_the_graph_as_it_is_drawn_none_of_40_runs_fails() -> None:
    generator = np.random.default_rng(1)
    assert all(completes(plan_graph(250).neighbours, generator) for _ in range(40))


def test_the_drop_out_simulation_notices_a_graph_that_is_too_sparse() -> None:
    generator = np.random.default_rng(1)
    assert sum(completes(plan_graph(250).neighbours - 30, generator) for _ in range(40)) < 10


def test_the_ring_is_the_smallest_that_cannot_wrap_around() -> None:
    assert choose_ring(65_535, 0, 1) == 16
    assert choose_ring(65_536, 0, 1) == 32
    assert choose_ring(250, -100, 162) == 16
    assert choose_ring(250, -100, 163) == 32
    assert choose_ring(2, 0, 2**31 - 1) == 32
    assert choose_ring(2, 0, 2**31) == 64
    assert choose_ring(1, 0, 2**62, 2**61 - 1) == 64
    assert choose_ring(250, 0, 262, noise_reach=17) == 16
    assert choose_ring(250, 0, 262, noise_reach=18) == 32
    with pytest.raises(ConfigurationError, match="64 bits"):
        choose_ring(250, 0, 2**56)


@pytest.mark.parametrize("high", [32767, 32768])
def test_sums_at_the_edge_of_a_ring_are_exact(high: int) -> None:
    vectors = np.full((3, 4), high // 2 if high > 32767 else high * 2 // 3)
    made = local_round(vectors, 0, int(vectors[0, 0]))
    assert np.array_equal(run_sum(made.coordinator, made.parties).total, vectors.sum(axis=0))


def test_values_that_do_not_fit_the_set_up_never_get_near_a_mask() -> None:
    vectors = np.zeros((3, 4), dtype=np.int64)
    vectors[1, 2] = 2
    with pytest.raises(ValueOutOfRange):
        local_round(vectors, 0, 1)
    made = local_round(vectors, 0, 2)
    with pytest.raises(WrongLength):
        made.setup.encode(np.zeros(5, dtype=np.int64))
    with pytest.raises(WrongLength):
        made.setup.encode(np.zeros(4))


def test_a_set_up_that_contradicts_itself_is_refused() -> None:
    roster = {"a": bytes(32), "b": b"\1" * 32, "c": b"\2" * 32}
    plan = plan_graph(3)
    for wrong in (
        {"roster": {**roster, "d": b"\3" * 32}},
        {"roster": {**roster, "c": b"short"}},
        {"roster": {**roster, "c": bytes(32)}},
        {"length": 0},
        {"high": -1},
    ):
        fields = {"roster": roster, "length": 1, "high": 1, **wrong}
        with pytest.raises(ConfigurationError):
            SumSetup("c", "r", fields["roster"], fields["length"], 0, fields["high"], plan)


@pytest.mark.parametrize(("groups", "left_out"), [(0, 0), (2, 3), (2, -1)])
def test_a_set_up_of_no_group_or_without_a_group_that_there_is_not_is_refused(groups: int, left_out: int) -> None:
    roster = {"a": bytes(32), "b": b"\1" * 32, "c": b"\2" * 32}
    with pytest.raises(ConfigurationError, match="one group at least, and one of its groups may be left out"):
        SumSetup("c", "r", roster, 1, 0, 1, plan_graph(3), groups=groups, left_out=left_out)


def test_every_field_of_the_set_up_changes_its_digest() -> None:
    roster = {"a": bytes(32), "b": b"\1" * 32, "c": b"\2" * 32}
    base = ("c", "r", roster, 4, 0, 1, plan_graph(3), 0)
    changes = ("d", "s", {**roster, "c": b"\3" * 32}, 5, -1, 2, plan_graph(3, 0.0, 0.1, 41), 1)
    digests = {SumSetup(*base).digest}
    for position, change in enumerate(changes):
        digests.add(SumSetup(*base[:position], change, *base[position + 1 :]).digest)
    assert len(digests) == 1 + len(changes)


def test_the_coordinator_finishes_without_the_slowest_answers() -> None:
    vectors = np.ones((10, 3), dtype=np.int64)
    # A party holds no share of itself, so one answer more than the threshold is needed.
    for missing in (0, 1):
        made = local_round(vectors, 0, 1)
        while made.coordinator.phase is not Phase.UNMASK:
            for name, request in made.coordinator.requests().items():
                made.coordinator.accept(name, made.parties[name].handle(request))
            made.coordinator.close_phase()
        asked = list(made.coordinator.requests().items())
        for name, request in asked[: made.setup.plan.threshold + 1 - missing]:
            made.coordinator.accept(name, made.parties[name].handle(request))
        if missing:
            with pytest.raises(TooFewSurvivors):
                made.coordinator.close_phase()
        else:
            made.coordinator.close_phase()
            assert made.coordinator.result.total.tolist() == [10, 10, 10]


def test_a_secret_with_too_few_answering_holders_aborts_cleanly() -> None:
    vectors = np.ones((10, 3), dtype=np.int64)
    made = local_round(vectors, 0, 1)
    with pytest.raises(TooFewSurvivors, match="cannot be recovered"):
        run_sum(made.coordinator, made.parties, lambda name, phase: phase is Phase.UNMASK and name > "party-0004")
