"""Records of several labels: one more or less moves the votes by no more than is charged; brute force, planted bugs.

Votes are made by the real path: a party's records and clipped votes by distance, the coordinator's k.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from collegium_reproduction.clipped_votes import RESOLUTION, clipped_votes, swap_l2
from collegium_reproduction.nearest import party as nearest_records
from collegium_reproduction.nearest.coordinator import shares_of_nearest
from collegium_reproduction.nearest.party import SampledRecords
from collegium_reproduction.nearest.question import CountNearest
from hypothesis import given, settings
from hypothesis import strategies as st

from collegium.data import Examples
from collegium.data.several_labels import held_in
from collegium.data.task import NumberColumn, TableInputs
from collegium.models.features import Features
from collegium.protocol.question import PoolRange, QuestionTerms
from collegium_accounting.divergences.independent import sampled_gaussian_curve
from collegium_accounting.mechanisms import SystemNoise, create
from collegium_accounting.renyi import WIDE_ORDERS

pytestmark = pytest.mark.slow

LABELS = 5
POOL = PoolRange("a" * 64, tuple(range(3)))
LINE = TableInputs(columns=(NumberColumn(name="a", low=0.0, high=1.0),))
POINTS = np.zeros((3, 2), dtype=np.float32)
POINTS[:, 0] = [0.0, 0.4, 1.0]
EDGES = np.array([[110**2, 320**2, 320**2, 700**2]] * 3, dtype=np.int64)

People = list[tuple[int, int]]
"""Place on the line in twelfths, and label number."""


def question(k: int, tau: float, rate: float = 1.0) -> CountNearest:
    said = {"k": k, "labels": LABELS, "tau": tau, "sigma": 9.0, "sampling_rate": rate}
    terms = QuestionTerms("multilabel-knn", said, "add-remove", "clear", "release")
    return CountNearest(terms, "ledger", Features("raw"), POOL, LABELS, EDGES)


def party(people: People, names: list[str]) -> SampledRecords:
    x = np.zeros((len(people), 2), dtype=np.float32)
    x[:, 0] = [place / 12 for place, _ in people]
    return SampledRecords(Examples(x, np.array([number for _, number in people]), np.array(names)), LINE, b"k" * 32)


def votes(
    people: People, k: int, tau: float, *, names: list[str] | None = None, rate: float = 1.0,
    choose: Callable[..., np.ndarray] = shares_of_nearest,
) -> Any:  # fmt: skip
    """Votes in parts, of two parties of which the first has two thirds of the people, dealt by name."""
    names = names or [str(number) for number in range(len(people))]
    dealt = [[at for at, name in enumerate(names) if (int(name) % 3 == 0) == second] for second in (False, True)]
    held = [party([people[at] for at in part], [names[at] for at in part]) for part in dealt if part]

    asked = question(k, tau, rate)
    counts = sum((one.counts("run", asked, POINTS) for one in held), np.zeros(asked.shape, dtype=np.int64))
    return choose(counts.reshape(3, asked.intervals, 1 + LABELS), k)


def moved(people: People, k: int, tau: float, **options: Any) -> float:
    """Largest L2 distance, in votes, over all removals of one record."""
    names = [str(number) for number in range(len(people))]
    whole, most = votes(people, k, tau, names=names, **options), 0.0
    for gone in range(len(people)):
        rest = votes(people[:gone] + people[gone + 1 :], k, tau, names=names[:gone] + names[gone + 1 :], **options)
        most = max(most, float(np.sqrt(np.square((whole - rest) / RESOLUTION).sum(axis=1)).max()))
    return most


record = st.tuples(st.integers(0, 12), st.integers(0, 2**LABELS - 1))


@settings(max_examples=50, deadline=None)
@given(
    people=st.lists(record, min_size=1, max_size=14),
    k=st.integers(1, 6),
    tau=st.sampled_from([1.0, 1.5, 2.0, 3.0, 5.0]),
    rate=st.sampled_from([1.0, 0.5]),
)
def test_one_record_more_or_less_moves_no_more_than_is_charged(people: People, k: int, tau: float, rate: float) -> None:
    """Crowded intervals, more than k of one party in one, ties and samples of fewer than k included."""
    assert moved(people, k, tau, rate=rate) <= swap_l2(tau, LABELS)


def crowds(seed: int) -> People:
    """Records of one, two or all labels, of which many share an interval."""
    generator = np.random.default_rng(seed)
    sets = [0b00001, 0b10000, 0b00011, 0b11000, 0b11111]
    return [(int(generator.integers(13)), int(generator.choice(sets))) for _ in range(12)]


CASES = [(seed, k, tau) for seed in range(6) for k in (1, 2, 4) for tau in (1.0, 2.0)]


def worst(**options: Any) -> float:
    """What was moved, as a share of what is charged."""
    return max(moved(crowds(seed), k, tau, **options) / swap_l2(tau, LABELS) for seed, k, tau in CASES)


def test_crowds_stay_within_the_charge_and_come_near_to_it() -> None:
    assert 0.95 < worst() <= 1.0


def test_places_go_to_all_of_the_interval_alike() -> None:
    votes = [[2, 0, 1, 0, 0], [4, 2, 1, 0, 0], [9, 9, 9, 9, 9]]
    counts = np.array([[[n, *(256 * part for part in row)] for n, row in zip((2, 4, 1), votes, strict=True)]])
    assert (shares_of_nearest(counts, 4) / RESOLUTION).tolist() == [[4.0, 1.0, 1.5, 0.0, 0.0]]


def around_the_cut(counts: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The votes of the records before the interval of the k-th, and of those in it; ``[queries, labels]`` each."""
    cut = np.minimum((np.cumsum(counts[:, :, 0], axis=1) < k).sum(axis=1), counts.shape[1] - 1)
    nearer = np.arange(counts.shape[1]) < cut[:, None]
    return (counts * nearer[:, :, None]).sum(axis=1)[:, 1:], counts[np.arange(len(counts)), cut, 1:]


def test_keeping_the_whole_interval_of_the_cut_is_caught() -> None:
    assert worst(choose=lambda counts, k: sum(around_the_cut(counts, k))) > 1.0


def test_leaving_the_interval_of_the_cut_out_is_caught() -> None:
    assert worst(choose=lambda counts, k: around_the_cut(counts, k)[0]) > 1.0


def test_votes_that_are_not_clipped_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest_records, "clipped_votes", lambda held, tau: np.asarray(held) * RESOLUTION)
    assert worst() > 1.0


def test_scaling_to_the_largest_label_in_place_of_the_sum_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        nearest_records,
        "clipped_votes",
        lambda held, tau: (np.asarray(held) * min(1.0, tau) * RESOLUTION).astype(np.int64),
    )
    assert worst() > 1.0


def test_cutting_sums_off_at_k_in_place_of_scaling_them_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would favour labels that many hold: seven records of one party in one interval, k = 2."""
    people = [(6, 0b00001)] * 5 + [(6, 0b11110)] * 2
    fair = votes(people, 2, 5.0)[1] / RESOLUTION
    assert fair[0] > 1.2 and fair.sum() < 4.1
    monkeypatch.setattr(
        nearest_records, "_sum_of_at_most", lambda votes, k: np.minimum(votes.sum(axis=0), k * RESOLUTION)
    )
    cut_off = votes(people, 2, 5.0, names=["1", "2", "4", "5", "7", "8", "10"])[1] / RESOLUTION
    assert cut_off.sum() > fair.sum() + 2


def test_a_swap_of_clipped_votes_reaches_the_bound_but_for_rounding() -> None:
    pair = clipped_votes([[1, 1, 0, 0], [0, 0, 1, 1]], 2.0) / RESOLUTION
    assert np.linalg.norm(pair[0] - pair[1]) == 2.0 == swap_l2(2.0, 4) - 2 * np.sqrt(4) / RESOLUTION
    one = clipped_votes([[1, 1, 1, 1], [0, 0, 0, 0]], 9.0) / RESOLUTION
    assert np.linalg.norm(one[0] - one[1]) == 2.0 < swap_l2(9.0, 4), "never more than the labels that there are"


def test_both_sides_charge_the_sampled_gaussian_of_that_sensitivity() -> None:
    mechanism = create("multilabel-knn", k=30, labels=LABELS, tau=2.0, sigma=9.0, sampling_rate=0.3)
    exact = sampled_gaussian_curve(swap_l2(2.0, LABELS), 9.0, 0.3, WIDE_ORDERS).values
    np.testing.assert_allclose(mechanism.stages[0].charge(WIDE_ORDERS, mechanism.unit()).values, exact)
    own = getattr(mechanism.stages[0].law(mechanism.unit()), "values", None)
    np.testing.assert_allclose(own, exact, rtol=1e-12)


def test_the_release_adds_the_noise_that_is_charged_to_every_label() -> None:
    """2,000 bits at a distance of one σ from their threshold: within 6 deviations of 0.1587 (failure below 1e-8)."""
    mechanism = create("multilabel-knn", k=100, labels=LABELS, tau=2.0, sigma=8.0, sampling_rate=0.3)
    below = np.full((400, LABELS), (50 - 8) * RESOLUTION)
    on = held_in(mechanism.stages[0].run(below, SystemNoise()), LABELS)
    deviation = (0.1587 * 0.8413 / 2000) ** 0.5
    assert abs(on.mean() - 0.1587) < 6 * deviation and len(np.unique(on, axis=0)) > 5
