"""One record more or less swaps at most one of the k neighbours: brute force over every record, and planted bugs.

Votes are made by the real path, a party's counts by distance and class and the coordinator's choice of k.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from collegium_reproduction.nearest.coordinator import class_orders, votes_of_nearest
from collegium_reproduction.nearest.party import SampledRecords
from collegium_reproduction.nearest.question import CountNearest
from hypothesis import given, settings
from hypothesis import strategies as st

from collegium.data import Examples
from collegium.data.task import NumberColumn, TableInputs
from collegium.models.features import Features
from collegium.protocol.question import PoolRange, QuestionTerms

CLASSES = 3
POOL = PoolRange("a" * 64, tuple(range(4)))
LINE = TableInputs(columns=(NumberColumn(name="a", low=0.0, high=1.0),))
KEY = b"k" * 32
POINTS = np.zeros((4, 2), dtype=np.float32)
POINTS[:, 0] = [0.0, 0.2, 0.5, 1.0]
EDGES = np.array([[30**2, 110**2, 110**2, 320**2, 700**2]] * 4, dtype=np.int64)

Person = tuple[str, tuple[tuple[int, int], ...]]
"""A name, and (place on the line in twelfths, class) of each of the person's records."""


def question(k: int, rate: float) -> CountNearest:
    said = {"k": k, "sampling_rate": rate, "sigma1": 9.0, "sigma2": 9.0}
    terms = QuestionTerms("knn", said, "add-remove", "clear", "release")
    return CountNearest(terms, "ledger", Features("raw"), POOL, CLASSES, EDGES)


def party(people: list[Person]) -> SampledRecords | None:
    """A party of these people; a record carries its person's name as its group."""
    rows = [(name, place, label) for name, records in people for place, label in records]
    if not rows:
        return None
    x = np.zeros((len(rows), 2), dtype=np.float32)
    x[:, 0] = [place / 12 for _, place, _ in rows]
    examples = Examples(x, np.array([label for *_, label in rows]), np.array([name for name, *_ in rows]))
    return SampledRecords(examples, LINE, KEY)


def votes(people: list[Person], k: int, rate: float = 1.0, choose: Callable[..., np.ndarray] | None = None) -> Any:
    """Votes of two parties, dealt by name: a person stays where they are whoever else is there."""
    parties = [party([one for one in people if (int(one[0]) % 2) == side]) for side in range(2)]
    held = [one for one in parties if one is not None]

    asked = question(k, rate)
    counts = sum((one.counts("run", asked, POINTS) for one in held), np.zeros(asked.shape, dtype=np.int64))
    by_interval = counts.reshape(4, asked.intervals, CLASSES)
    return (choose or votes_of_nearest)(by_interval, class_orders(POOL, CLASSES), k)


def farthest_neighbour(people: list[Person], k: int, **options: Any) -> tuple[int, int]:
    """Largest L1 distance and largest move of the top count over all removals of one person."""
    whole = votes(people, k, **options)
    moved, top = 0, 0
    for gone in range(len(people)):
        without = votes(people[:gone] + people[gone + 1 :], k, **options)
        moved = max(moved, int(np.abs(whole - without).sum(axis=1).max()))
        top = max(top, int(np.abs(whole.max(axis=1) - without.max(axis=1)).max()))
    return moved, top


record = st.tuples(st.integers(0, 12), st.integers(0, CLASSES - 1))
alone = st.lists(record, min_size=1, max_size=14).map(
    lambda records: [(str(number), (one,)) for number, one in enumerate(records)]
)
families = st.lists(st.lists(record, min_size=1, max_size=3), min_size=1, max_size=7).map(
    lambda groups: [(str(number), tuple(group)) for number, group in enumerate(groups)]
)


@pytest.mark.slow
@settings(max_examples=60)
@given(people=alone, k=st.integers(1, 8), rate=st.sampled_from([1.0, 0.5]))
def test_one_record_more_or_less_swaps_at_most_one_vote(people: list[Person], k: int, rate: float) -> None:
    """Ties, crowded intervals and samples of fewer than k included; removals from D are additions to D without."""
    moved, top = farthest_neighbour(people, k, rate=rate)
    assert moved <= 2 and top <= 1
    assert (votes(people, k).sum(axis=1) == min(k, len(people))).all()


@settings(max_examples=40)
@given(people=families, k=st.integers(1, 5), rate=st.sampled_from([1.0, 0.5]))
def test_one_person_more_or_less_swaps_at_most_one_vote_however_many_records(
    people: list[Person], k: int, rate: float
) -> None:
    moved, top = farthest_neighbour(people, k, rate=rate)
    assert moved <= 2 and top <= 1


def crowds(seed: int) -> list[Person]:
    generator = np.random.default_rng(seed)
    places = generator.integers(0, 13, 12)
    return [(str(number), ((int(place), int(generator.integers(CLASSES))),)) for number, place in enumerate(places)]


def caught(**options: Any) -> bool:
    seen = [farthest_neighbour(crowds(seed), k, **options) for seed in range(8) for k in (2, 4, 6)]
    return any(moved > 2 or top > 1 for moved, top in seen)


@pytest.mark.slow
def test_every_removal_from_crowds_is_within_the_bound_and_the_bound_is_reached() -> None:
    seen = [farthest_neighbour(crowds(seed), k) for seed in range(8) for k in (2, 4, 6)]
    assert max(moved for moved, _ in seen) == 2 and max(top for _, top in seen) == 1


def around_the_cut(counts: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The classes of the records before the interval of the k-th, and of those in it; ``[queries, classes]`` each."""
    before = np.cumsum(counts.sum(axis=2), axis=1)
    cut = np.minimum((before < k).sum(axis=1), counts.shape[1] - 1)
    nearer = np.arange(counts.shape[1]) < cut[:, None]
    return (counts * nearer[:, :, None]).sum(axis=1), counts[np.arange(len(counts)), cut]


@pytest.mark.slow
def test_keeping_the_whole_interval_of_the_cut_is_caught() -> None:
    def planted(counts: np.ndarray, orders: np.ndarray, k: int) -> np.ndarray:
        nearer, within = around_the_cut(counts, k)
        return nearer + within

    assert not caught() and caught(choose=planted)


@pytest.mark.slow
def test_an_order_that_depends_on_the_records_is_caught() -> None:
    """Keeping the classes of the cut in the order of their counts, as a majority would."""

    def planted(counts: np.ndarray, orders: np.ndarray, k: int) -> np.ndarray:
        _, within = around_the_cut(counts, k)
        return votes_of_nearest(counts, np.argsort(-(within % 3), axis=1, kind="stable"), k)

    assert caught(choose=planted)


@pytest.mark.slow
def test_leaving_the_cut_out_is_caught() -> None:
    def planted(counts: np.ndarray, orders: np.ndarray, k: int) -> np.ndarray:
        return around_the_cut(counts, k)[0]

    assert caught(choose=planted)


def test_several_votes_of_one_person_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    people: list[Person] = [("0", ((0, 0), (1, 0), (2, 0))), *((str(n), ((n, 1),)) for n in range(3, 7))]
    assert farthest_neighbour(people, 3)[0] == 2
    monkeypatch.setattr(
        SampledRecords, "_one_each", lambda held, around, drawn: np.flatnonzero(drawn[held._sampler.person])
    )
    assert farthest_neighbour(people, 3)[0] > 2


@pytest.mark.slow
def test_coins_by_position_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """One record gone must leave everybody else's coin as it is."""
    assert not caught(rate=0.5)
    from collegium_reproduction.nearest.party import Sampler

    def planted(sampler: Sampler, question: bytes, rate: float) -> np.ndarray:
        people = int(sampler.person.max()) + 1
        return np.random.default_rng([people, *question]).random(people) < rate

    monkeypatch.setattr(Sampler, "drawn", planted)
    assert caught(rate=0.5)


def test_the_interval_of_the_cut_gives_the_places_that_are_left_in_the_order_of_the_classes() -> None:
    counts = np.array([[[1, 0, 0], [1, 1, 2], [5, 5, 5]]])
    for k, order, kept in ((3, [2, 0, 1], [1, 0, 2]), (4, [2, 0, 1], [2, 0, 2]), (3, [0, 1, 2], [2, 1, 0])):
        assert votes_of_nearest(counts, np.array([order]), k).tolist() == [kept]
    assert votes_of_nearest(counts[:, :1], np.array([[0, 1, 2]]), 9).tolist() == [[1, 0, 0]], "fewer than k"
