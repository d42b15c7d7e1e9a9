"""Mechanisms describe themselves, run their stages and refuse what makes no sense."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import collegium_reproduction.nearest.question  # noqa: F401  its mechanisms are named here
import numpy as np
import pytest
from collegium_reproduction.clipped_votes import RESOLUTION, clipped_votes
from collegium_reproduction.interactive_gnmax import InteractiveGNMax
from collegium_reproduction.propose_test_release import votes_to_change

from collegium.errors import ConfigurationError, DataError, UnsupportedAccounting
from collegium_accounting.analysis.epsilons import planned_charges, published_curve
from collegium_accounting.game.winner import RoundLaw
from collegium_accounting.mechanisms import (
    ABSTAIN,
    NEXT_STAGE,
    Adjacency,
    Mechanism,
    SeededNoise,
    Stage,
    SystemNoise,
    Unit,
    create,
    known_names,
    mechanism_named,
    register,
)
from collegium_accounting.mechanisms.class_sums import bound_squared
from collegium_accounting.mechanisms.lnmax import LNMax
from collegium_accounting.mechanisms.parameters import checked, fields_of
from collegium_accounting.mechanisms.record_counts import ONE
from collegium_accounting.mechanisms.registry import numbers_of
from collegium_accounting.noise.distributed import NoiseShare
from collegium_accounting.renyi import WIDE_ORDERS
from collegium_accounting.units import checked_counts, winners

PARAMETERS = {
    "lnmax": {"gamma": 0.05},
    "gnmax": {"sigma": 40.0},
    "confident-gnmax": {"sigma1": 150.0, "sigma2": 40.0, "threshold": 200.0},
    "interactive-gnmax": {"sigma1": 150.0, "sigma2": 40.0, "threshold": 200.0},
    "exponential": {"gamma": 0.05},
    "knn": {"k": 300, "classes": 10, "threshold": 210.0, "sigma1": 85.0, "sigma2": 25.0, "sampling_rate": 0.25},
    "individual-knn": {"sigma": 70.0, "participations": 2},
    "multilabel": {"sigma": 20.0, "tau": 4.0, "voters": 100},
    "multilabel-knn": {"k": 300, "labels": 10, "tau": 4.0, "sigma": 50.0, "sampling_rate": 0.05, "on_share": 0.4},
    "ptr": {"epsilon": 0.1, "delta": 1e-9},
    "nzc": {"constant": 100.0, "gamma": 0.05, "accept_no_privacy": True},
}


def test_every_mechanism_is_registered():
    assert set(PARAMETERS) <= set(known_names())


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_mechanism_is_made_again_from_what_a_ledger_keeps(name):
    mechanism = create(name, **PARAMETERS[name])
    assert isinstance(mechanism, Mechanism)
    assert create(name, **mechanism.parameters()) == mechanism
    for stage in mechanism.stages:
        assert isinstance(stage, Stage)
    with pytest.raises(AttributeError):
        mechanism.sigma = 1.0


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_charges_are_curves_that_grow_with_the_votes_of_a_unit_or_are_refused(name, adjacency):
    orders = (1.5, 2.0, 16.0)
    mechanism = create(name, **PARAMETERS[name])
    for stage in mechanism.stages:
        if adjacency not in mechanism.adjacencies:
            with pytest.raises(UnsupportedAccounting, match="add-remove"):
                stage.charge(orders, Unit(1, adjacency))
            with pytest.raises(UnsupportedAccounting, match="add-remove"):
                mechanism.unit(1, adjacency)
            continue
        one, two = (stage.charge(orders, Unit(k, adjacency)) for k in (1, 2))
        assert (two.values >= one.values).all() and two.delta >= one.delta
        assert (np.diff(one.values[np.isfinite(one.values)]) >= 0).all()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("lnmax", {"gamma": 0.0}),
        ("lnmax", {"gamma": float("nan")}),
        ("lnmax", {"sigma": 1.0}),
        ("lnmax", {}),
        ("gnmax", {"sigma": -1.0}),
        ("confident-gnmax", {"sigma1": 1.0, "sigma2": 1.0, "threshold": float("inf")}),
        ("knn", {**PARAMETERS["knn"], "sampling_rate": 1.5}),
        ("ptr", {"epsilon": 1.0, "delta": 0.7}),
        ("nzc", {"constant": 1.0, "gamma": 1.0, "sigma": 1.0, "accept_no_privacy": True}),
        ("nzc", {"constant": 1.0, "gamma": 1.0}),
        ("no-such", {}),
    ],
)
def test_wrong_parameters_are_named(name, wrong):
    with pytest.raises(ConfigurationError, match=name):
        create(name, **wrong)


def test_a_user_adds_a_mechanism_without_touching_ours():
    @register
    @dataclass(frozen=True)
    class Constant(Mechanism):
        name: ClassVar[str] = "constant-for-test"
        source: ClassVar[str] = "trivial"

        @property
        def stages(self):
            return ()

    assert mechanism_named("constant-for-test") is Constant
    with pytest.raises(ConfigurationError, match="frozen"):
        register(type("Loose", (), {"name": "loose", "source": "none"}))

    for nameless in ({"name": "unnamed-source"}, {"source": "somebody 2031"}):
        with pytest.raises(ConfigurationError, match="needs a name and a source"):
            register(dataclass(frozen=True)(type("Nameless", (Mechanism,), {"stages": (), **nameless})))

    with pytest.raises(ConfigurationError, match="two mechanisms"):

        @register
        @dataclass(frozen=True)
        class Other(Mechanism):
            name: ClassVar[str] = "constant-for-test"
            source: ClassVar[str] = "trivial"


def test_parties_are_told_numbers_alone():
    @dataclass(frozen=True)
    class Worded(Mechanism):
        name: ClassVar[str] = "worded-for-test"
        source: ClassVar[str] = "trivial"
        how: str = "well"
        sigma: float = 4.0

        @property
        def stages(self):
            return ()

    with pytest.raises(ConfigurationError, match="parties cannot be told 'how', which is no number"):
        numbers_of(Worded())
    assert numbers_of(create("gnmax", sigma=40))["sigma"] == 40.0


@pytest.mark.parametrize("said", [1, 0, "yes"])
def test_no_privacy_is_accepted_by_true_alone(said):
    field = fields_of(mechanism_named("nzc"))["accept_no_privacy"]
    assert checked("nzc", field, True) is True
    with pytest.raises(ConfigurationError, match="nzc: accept_no_privacy must be true or false"):
        checked("nzc", field, said)


def test_lowest_index_wins_a_tie():
    assert winners(np.array([[3, 3, 1], [0, 2, 2], [1, 1, 1]])).tolist() == [0, 1, 0]


@pytest.mark.parametrize("bad", ([[1.5, 2.0]], [[-1, 2]], [1, 2], [["a", "b"]], np.zeros((2, 0))))
def test_counts_that_are_not_counts_are_refused(bad):
    with pytest.raises(DataError):
        checked_counts(np.asarray(bad))


@pytest.mark.parametrize("name", [name for name in PARAMETERS if name not in ("knn", "multilabel", "multilabel-knn")])
def test_release_gives_one_label_or_an_abstention_per_query_and_repeats_with_a_seed(name):
    mechanism = create(name, **PARAMETERS[name])
    votes = np.random.default_rng(2).multinomial(250, [0.8, 0.1, 0.1], 60)
    labels = mechanism.release(votes, noise=SeededNoise(1))
    assert labels.shape == (60,) and set(labels.tolist()) <= {ABSTAIN, 0, 1, 2}
    assert (labels == mechanism.release(votes, noise=SeededNoise(1))).all()
    with pytest.raises(DataError):
        mechanism.release(votes / 7.0)


def test_release_draws_from_the_system_and_afresh_unless_a_source_is_given():
    mechanism, votes = create("gnmax", sigma=40.0), np.full((200, 4), 50)
    # Two runs of 200 uniform choices among four agree by chance with probability 4^−200.
    assert (mechanism.release(votes) != mechanism.release(votes)).any()


def test_expected_agreement_is_what_releases_show_whether_a_law_is_known_or_not():
    counts = np.array([[30, 10, 10], [12, 11, 10]])
    for mechanism in (
        create("gnmax", sigma=10.0),
        create("confident-gnmax", sigma1=10.0, sigma2=5.0, threshold=20.0),
        create("ptr", epsilon=0.5, delta=1e-3),
    ):
        agrees, passes = mechanism.expected_agreement(counts)
        labels = mechanism.release(np.repeat(counts, 20_000, axis=0), noise=SeededNoise(5)).reshape(2, -1)
        # Hoeffding for 20,000 releases: an error above 0.02 has probability 2e-7; 2,000 simulated ones allow 0.06.
        allowed = 0.02 if mechanism.noise_law(discrete=True) else 0.08
        assert np.allclose(passes, (labels != ABSTAIN).mean(axis=1), atol=allowed)
        assert np.allclose(agrees * passes, (labels == 0).mean(axis=1), atol=allowed)


def test_confident_mechanism_abstains_without_agreement():
    stage = create("confident-gnmax", sigma1=1.0, sigma2=1.0, threshold=50.0).stages[0]
    outcome = stage.run(np.array([[100, 0], [10, 10]] * 20), SystemNoise())
    assert (outcome[::2] == NEXT_STAGE).all() and (outcome[1::2] == ABSTAIN).all()


def test_interactive_mechanism_confirms_the_student_or_asks_the_teachers():
    """The second class is confirmed where it has the votes; the teachers decide all else."""
    mechanism = InteractiveGNMax(sigma1=1.0, sigma2=1.0, threshold=50.0)
    outcome = mechanism.stages[0].run(np.array([[100, 0], [0, 100]]), SystemNoise())
    assert outcome.tolist() == [0, NEXT_STAGE]
    votes = np.array([[200, 100], [100, 0], [0, 100], [0, 100]])
    assert mechanism.answers(votes, [1, 1, -1, 0], SystemNoise()).tolist() == [1, 0, 1, 1]
    for wrong in ([0, 2, 0, 0], [0, -2, 0, 0], [0]):
        with pytest.raises(ConfigurationError):
            mechanism.answers(votes, wrong, SystemNoise())


def test_every_vote_budget_refuses_nzc_and_its_claim_is_near_zero():
    mechanism = create("nzc", constant=1e100, gamma=1e-10, accept_no_privacy=True)
    assert np.isinf(mechanism.stages[0].charge(WIDE_ORDERS, Unit()).values).all()
    assert mechanism.claimed_epsilon(10_000, 1e-5, WIDE_ORDERS) < 0.01
    assert np.isinf(mechanism.honest_epsilon([[125, 125], [200, 50]]))
    outcome = mechanism.stages[0].run(np.array([[126, 124], [124, 126]]), SystemNoise())
    assert outcome.tolist() == [0, 1]  # one vote apart, told apart by one answer


def test_ptr_distance_never_exceeds_the_votes_that_keep_the_winner():
    def brute(histogram, depth):
        winner, frontier = histogram.index(max(histogram)), {histogram}
        for distance in range(depth):
            following = set()
            for one in frontier:
                for a in range(len(one)):
                    for b in range(len(one)):
                        if a != b and one[a] > 0:
                            other = list(one)
                            other[a] -= 1
                            other[b] += 1
                            following.add(tuple(other))
            if any(other.index(max(other)) != winner for other in following):
                return distance
            frontier = following
        return depth

    generator = np.random.default_rng(3)
    for _ in range(40):
        histogram = tuple(generator.multinomial(int(generator.integers(1, 9)), [0.6, 0.2, 0.2]).tolist())
        assert int(votes_to_change(np.array([histogram]))[0]) <= brute(histogram, 5)


def test_ptr_distance_moves_by_at_most_one_and_a_stable_winner_stays():
    for n in range(1, 8):
        for top in range(n + 1):
            for second in range(n - top + 1):
                histogram = (top, second, n - top - second)
                base = int(votes_to_change(np.array([histogram]))[0])
                for a in range(3):
                    for b in range(3):
                        if a == b or histogram[a] == 0:
                            continue
                        moved = list(histogram)
                        moved[a] -= 1
                        moved[b] += 1
                        other = np.array([moved])
                        assert abs(int(votes_to_change(other)[0]) - base) <= 1
                        if base >= 1:
                            assert winners(other)[0] == winners(np.array([histogram]))[0]


def test_ptr_releases_the_exact_winner_only_when_it_is_far_from_changing():
    stage = create("ptr", epsilon=1.0, delta=1e-6).stages[0]
    outcome = stage.run(np.array([[500, 0, 0], [251, 249, 0]] * 50), SystemNoise())
    assert (outcome[::2] == 0).all() and (outcome[1::2] == ABSTAIN).all()  # fails with probability below 1e-4


def test_clipped_votes_keep_their_bound_and_a_swap_moves_at_most_two_tau():
    generator = np.random.default_rng(5)
    votes = (generator.random((200, 12)) < 0.5).astype(int)
    for tau in (1.0, 2.5, 4.0):
        clipped = clipped_votes(votes, tau) / RESOLUTION
        assert (clipped.sum(axis=1) <= tau).all() and (clipped >= 0).all()
        squared = ((clipped[:100] - clipped[100:]) ** 2).sum(axis=1)
        assert (squared <= 2 * tau).all()
    untouched = clipped_votes([[1, 0, 1]], 2.0) / RESOLUTION
    assert untouched.tolist() == [[1.0, 0.0, 1.0]]
    with pytest.raises(DataError):
        clipped_votes([[2.0, 0.0]], 1.0)


def test_multilabel_charges_two_tau_because_the_ones_alone_are_noised():
    curve = create("multilabel", sigma=20.0, tau=4.0, voters=100).stages[0].charge((2.0,), Unit())
    assert curve.values[0] == pytest.approx(2.0 * 4.0 / 20.0**2)


def test_individual_knn_costs_the_same_however_many_queries():
    mechanism = create("individual-knn", sigma=70.0, participations=1)
    assert mechanism.charged_queries(40) == mechanism.charged_queries(4000) == 1
    total = published_curve(planned_charges(mechanism, mechanism.unit(), 40))
    assert total.to_epsilon(1e-5).epsilon == pytest.approx(0.046, abs=0.001)


def test_a_seed_repeats_its_noise_and_the_system_does_not():
    stage = create("gnmax", sigma=40.0).stages[0]
    votes = np.full((200, 4), 50)
    assert (stage.run(votes, SeededNoise(1)) == stage.run(votes, SeededNoise(1))).all()
    # Two runs of 200 uniform choices among four agree by chance with probability 4^−200.
    assert (stage.run(votes, SystemNoise()) != stage.run(votes, SystemNoise())).any()
    assert SystemNoise().private and not SeededNoise(1).private


LAWS = {
    "lnmax": [("discrete-laplace", 20.0, "replace", 1.0)],
    "gnmax": [("discrete-gaussian", 40.0, "replace", 1.0)],
    "confident-gnmax": [("discrete-gaussian", 150.0, "add-remove", 1.0), ("discrete-gaussian", 40.0, "replace", 1.0)],
    "interactive-gnmax": [("discrete-gaussian", 150.0, "add-remove", 1.0), ("discrete-gaussian", 40.0, "replace", 1.0)],
    "exponential": [("gumbel", 20.0, "replace", 1.0)],
    "knn": [("discrete-gaussian", 85.0, "add-remove", 0.25), ("discrete-gaussian", 25.0, "replace", 0.25)],
    "individual-knn": [("discrete-gaussian", 70.0, "add-remove", 1.0)],
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_exact_accountant_is_told_the_noise_that_is_drawn_and_plays_only_where_one_winner_leaves(name):
    mechanism = create(name, **PARAMETERS[name])
    laws = [stage.law(mechanism.unit()) for stage in mechanism.stages]
    told = [(law.noise, law.scale, str(law.adjacency), law.sampling_rate) for law in laws if isinstance(law, RoundLaw)]
    assert told == LAWS.get(name, [])
    assert not any(isinstance(stage.law(mechanism.unit(2)), RoundLaw) for stage in mechanism.stages)


@pytest.mark.parametrize(
    ("make", "entry"),
    [
        (lambda sigma: create("lnmax", gamma=1.0 / sigma), 1.0),
        (lambda sigma: create("gnmax", sigma=sigma), 1.0),
        (lambda sigma: create("confident-gnmax", sigma1=sigma, sigma2=40.0, threshold=200.0), 1.0),
        (lambda sigma: create("confident-gnmax", sigma1=40.0, sigma2=sigma, threshold=200.0), 1.0),
        (lambda sigma: create("individual-knn", sigma=sigma, participations=2, levels=1024), 1024.0),
        (lambda sigma: create("class-sums", sigma=sigma, classes=10), math.sqrt(bound_squared(10))),
        (lambda sigma: create("record-counts", sigma=sigma, parts=48, cells=100), float(ONE)),
        (lambda sigma: NoiseShare(sigma, 1), 1.0),
        (lambda sigma: NoiseShare(sigma, 4), 2.0**-1),
    ],
)
def test_noise_that_no_release_could_draw_is_refused_before_anything_is_charged(make, entry):
    """More than 2^50 units of a number that is summed."""
    largest = 2.0**50 / entry
    make(largest * (1 - 1e-9))
    for sigma in (largest * (1 + 1e-9), 1e300):
        with pytest.raises(ConfigurationError, match=r"at most 2\^50"):
            make(sigma)


def test_a_tiny_gamma_is_refused_when_the_mechanism_is_made():
    for gamma in (1e-16, 5e-324):
        with pytest.raises(ConfigurationError, match="take less noise"):
            LNMax(gamma=gamma)
