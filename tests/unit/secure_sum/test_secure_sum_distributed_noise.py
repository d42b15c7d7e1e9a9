"""Shares of noise: the honest survivors' alone reach sigma, and the bound covers the exact divergence."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from benchmarks.local_sums import local_round, run_sum

from collegium.errors import ConfigurationError
from collegium.protocol.secure_sum import CoordinatorSum, PartySum, SumSetup, plan_graph
from collegium.protocol.secure_sum.errors import WrongLength
from collegium_accounting.noise.distributed import NoiseShare, closeness_to_one_gaussian
from collegium_accounting.noise.sources import SystemNoise


def discrete_gaussian(sigma: float, reach: int) -> np.ndarray:
    support = np.arange(-reach, reach + 1)
    mass = np.exp(-0.5 * (support / sigma) ** 2)
    return mass / mass.sum()


def convolved(sigma: float, shares: int) -> np.ndarray:
    one = discrete_gaussian(sigma, math.ceil(9 * sigma) + 3)
    law = one
    for _ in range(shares - 1):
        law = np.convolve(law, one)
    return law


@pytest.mark.parametrize("sigma", [186187.776, 200000.0])
def test_what_was_paid_for_a_sum_is_good_for_another_number_of_parties(sigma: float) -> None:
    """A party that joins or leaves between the charge and the release would have it paid twice."""
    assert len({NoiseShare(sigma, parties).law(50000.0, 3) for parties in (2, 3, 4, 5, 6, 17, 200)}) == 1


@pytest.mark.parametrize(("sigma", "shares"), [(0.5, 2), (0.5, 6), (0.6, 4), (0.8, 5)])
def test_the_sum_of_discrete_gaussians_is_as_close_to_one_as_proved(sigma: float, shares: int) -> None:
    law = convolved(sigma, shares)
    reach = law.size // 2
    one = discrete_gaussian(sigma * math.sqrt(shares), reach)
    near = np.abs(np.arange(-reach, reach + 1)) <= 4 * sigma * math.sqrt(shares)
    ratio = np.abs(np.log(law[near] / one[near])).max()
    bound = closeness_to_one_gaussian(sigma, shares)
    assert 0 < ratio <= bound * (1 + 1e-6) + 1e-12
    if shares == 2:
        assert bound < 2 * ratio, "one convolution's bound is nearly attained"


@pytest.mark.parametrize(("sigma", "shares"), [(0.5, 3), (0.7, 6), (1.5, 4)])
@pytest.mark.parametrize("order", [1.5, 2.0, 8.0, 32.0])
def test_the_curve_covers_the_exact_divergence_and_is_not_far_above(sigma: float, shares: int, order: float) -> None:
    law = convolved(sigma, shares)
    shifted, base = law[:-1], law[1:]
    keep = (shifted > 1e-250) & (base > 1e-250)
    exact = 0.0
    for p, q in ((shifted, base), (base, shifted)):
        logs = order * np.log(p[keep]) + (1 - order) * np.log(q[keep])
        exact = max(exact, (np.log(np.exp(logs - logs.max()).sum()) + logs.max()) / (order - 1))
    noise = NoiseShare(sigma * math.sqrt(shares), shares)
    bound = float(noise.curve([order], l2_squared=1.0, changed_entries=1).values[0])
    assert exact <= bound
    if sigma > 1:
        assert bound == pytest.approx(exact, rel=1e-3)


def test_the_honest_survivors_alone_reach_the_wanted_sigma() -> None:
    plan = plan_graph(250)
    noise = NoiseShare(40.0, plan.honest_survivors)
    share = noise.sigma_share
    assert plan.honest_survivors * share**2 >= 40.0**2
    assert plan.honest_survivors * share**2 == pytest.approx(1600.0, rel=1e-12)
    curve = noise.curve([2.0, 32.0], l2_squared=2.0, changed_entries=2)
    assert curve.values == pytest.approx([2 / 1600, 32 / 1600], rel=1e-9)


def test_a_share_planned_for_all_parties_would_be_caught() -> None:
    """Planted bug: dividing by all parties, not by the honest survivors, charges more than was planned."""
    plan = plan_graph(250)
    wrong = NoiseShare(40.0, plan.parties).sigma_share
    left = NoiseShare(wrong * math.sqrt(plan.honest_survivors), plan.honest_survivors)
    assert left.curve([2.0], l2_squared=2.0, changed_entries=2).values[0] > 2 * (2 / 1600)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.inf, 1.0])
def test_noise_that_cannot_be_shared_out_is_refused(sigma: float) -> None:
    with pytest.raises(ConfigurationError):
        NoiseShare(sigma, 100)


def test_no_bound_is_given_for_shares_that_its_proof_does_not_cover() -> None:
    assert closeness_to_one_gaussian(0.5, 3) < math.inf
    with pytest.raises(ConfigurationError, match=r"sigma of at least 0\.5; got 0\.49"):
        closeness_to_one_gaussian(0.49, 3)


@pytest.mark.parametrize("failure", [0.0, 1.0, -0.1, math.nan])
def test_room_for_noise_needs_a_probability(failure: float) -> None:
    with pytest.raises(ConfigurationError, match=r"overflow probability must lie in \(0, 1\)"):
        NoiseShare(4.0, 3).reach(6, 400, failure=failure)


@pytest.mark.parametrize(
    ("sigma", "honest"),
    [
        *[(3.7, 54), (186187.776, 6), (79.28240647623761, 107), (2691418.436789875, 107), (7794177.711238162, 269)],
        *[(1e6 / 3, 2), (1e6 / 3, 8), (1e6 / 3, 32)],
    ],
)
def test_rounding_leaves_the_honest_no_less_noise_than_is_charged(sigma: float, honest: int) -> None:
    """In exact numbers: of most, the next number above σ/√h is too small a share, of three only these tell it."""
    share = Fraction(NoiseShare(sigma, honest).sigma_share)
    assert Fraction(sigma) ** 2 <= honest * share**2 < Fraction(sigma) ** 2 * (1 + Fraction(1, 10**14))


def test_a_share_has_the_variance_of_a_discrete_gaussian() -> None:
    """20,000 draws at σ = 3.7: the sample variance lies within 5.5 of its standard errors (two-sided α < 1e-6)."""
    draws = NoiseShare(3.7, 1).draw(20_000, SystemNoise())
    error = 3.7**2 * math.sqrt(2 / 20_000)
    assert abs(float(np.var(draws)) - 3.7**2) < 5.5 * error
    assert abs(float(np.mean(draws))) < 5.5 * 3.7 / math.sqrt(20_000)


def test_the_noised_sum_holds_everyones_noise_and_nothing_else() -> None:
    parties, length = 6, 400
    votes = np.random.default_rng(2).integers(0, 2, (parties, length))
    share = NoiseShare(4.0, plan_graph(parties).honest_survivors)
    noises = [share.draw(length, SystemNoise()) for _ in range(parties)]
    reach = share.reach(parties, length)
    bare = local_round(votes, 0, 1)
    setup = SumSetup("local", "noised", bare.setup.roster, length, 0, 1, bare.setup.plan, reach)
    members = {
        name: PartySum(setup, name, bare.identities[name].sign, votes[i], noise=noises[i])
        for i, name in enumerate(setup.names)
    }
    total = run_sum(CoordinatorSum(setup), members).total
    assert np.array_equal(total, votes.sum(axis=0) + sum(noises))
    assert (total < 0).any(), "negative entries must survive the ring"


def test_noise_of_another_length_is_refused() -> None:
    made = local_round(np.zeros((3, 4), dtype=np.int64), 0, 1)
    with pytest.raises(WrongLength):
        made.setup.encode(np.zeros(4, dtype=np.int64), np.zeros(1, dtype=np.int64))


def test_the_reach_is_exceeded_less_often_than_stated() -> None:
    """At most 5 % of sums of 20 shares may exceed B in any of 50 entries: at most 160 of 2,000 (α < 1e-6)."""
    share, parties, length = 1.2, 20, 50
    reach = NoiseShare(share, 1).reach(parties, length, failure=0.05)
    generator = np.random.default_rng(4)
    law = convolved(share, parties)
    support = np.arange(law.size) - law.size // 2
    sums = generator.choice(support, size=(2000, length), p=law / law.sum())
    assert (np.abs(sums).max(axis=1) > reach).sum() <= 160
    assert (np.abs(sums).max(axis=1) > 0.6 * reach).sum() > 160, "a reach of 60 % must be noticed"
