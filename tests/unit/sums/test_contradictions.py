"""Sums and counts that no records give are refused, and honest ones are not.

Each comparison fails honest parties with probability 1e-6; a test here makes at most 2,000 of them, with fixed seeds.
"""

import numpy as np
import pytest
from tests.support.sums_scene import NAMES, POOL, SPEC, TASK, records

from collegium.coordinator.contradictions import (
    Counted,
    check_cap,
    check_counts,
    check_shares,
    check_sums,
    counted_by_evaluation,
    counted_by_sums,
)
from collegium.coordinator.journal import Part
from collegium.errors import Contradiction
from collegium.models.kernels import KernelMap
from collegium.parties.kinds.class_sums import RecordsOfClasses
from collegium.privacy.evaluation_cells import Layout, other_classes
from collegium_accounting.mechanisms.class_sums import bound_squared
from collegium_accounting.mechanisms.record_counts import counts_of

CLASSES = len(TASK.classes)
UNIT = np.sqrt(bound_squared(CLASSES))
MOST = 2**20


@pytest.fixture(scope="module")
def honest() -> list[np.ndarray]:
    """The exact class sums of five parties of 200 records each."""
    kernel = KernelMap.of_pool(SPEC, POOL, TASK.inputs, "cpu")
    return [RecordsOfClasses(records(seed, 200), TASK).sums(kernel) for seed in range(len(NAMES))]


def released(vectors: list[np.ndarray], sigma: float = 4.0, seed: int = 0) -> Part:
    noise = np.random.default_rng(seed).normal(0.0, sigma * UNIT, vectors[0].shape)
    return Part(np.rint(np.sum(vectors, axis=0) + noise).astype(np.int64), sigma * UNIT, NAMES[: len(vectors)])


def check(part: Part, most: int = MOST) -> None:
    check_sums(part, CLASSES, most_records=most, per_party=False)


def test_honest_sums_are_refused_under_no_noise(honest: list[np.ndarray]) -> None:
    for sigma in (0.01, 0.5, 4.0, 50.0, 1_000.0):
        for seed in range(50):
            check(released(honest, sigma, seed))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("a thousandfold", lambda own, _: 1_000 * np.append(own[:-1], own[-1] // 1_000)),
        ("a millionfold", lambda own, _: 10**6 * np.append(own[:-1], own[-1] // 10**6)),
        ("random entries", lambda own, random: random.integers(-(2**30), 2**30, len(own))),
        ("another sign", lambda own, _: np.append(own[:-1], -50 * own[-1])),
        ("one class everywhere", lambda own, _: np.append(own[:-1] + np.arange(len(own) - 1) % 5 * 2**28, own[-1])),
    ],
)
def test_what_no_records_give_is_refused(honest: list[np.ndarray], name: str, spoil: object, seed: int) -> None:
    random = np.random.default_rng(seed)
    assert callable(spoil)
    with pytest.raises(Contradiction, match="nothing of this run is published"):
        check(released([spoil(honest[0], random), *honest[1:]], seed=seed))


def test_no_party_counts_for_more_records_than_the_cap(honest: list[np.ndarray]) -> None:
    check(released(honest, sigma=0.5), most=200)
    with pytest.raises(Contradiction, match="each has 0 to 200"):
        check(released([10 * honest[0], *honest[1:]], sigma=0.5), most=200)


def test_all_rounds_together_pass_the_cap_where_none_does(honest: list[np.ndarray]) -> None:
    """Eight rounds, each of which counts with an error of 66 records: 1,200 of five times 200."""
    spoilt = [released([2 * honest[0], *honest[1:]], sigma=16.0, seed=seed) for seed in range(8)]
    for one in spoilt:
        check(one, most=200)
    with pytest.raises(Contradiction, match=r"together count 1,[123].. records of 5 institutions"):
        check_cap([counted_by_sums(one, CLASSES) for one in spoilt], most_records=200)


def test_without_a_count_of_records_no_cap_is_passed() -> None:
    check_cap([], most_records=1)
    with pytest.raises(Contradiction):
        check_cap([Counted("the class sums", NAMES, 100.0, 1.0)], most_records=1)


@pytest.mark.bits
def test_no_cap_is_passed_by_noise(honest: list[np.ndarray]) -> None:
    """1,000 runs of institutions that have as many as the cap: with probability 1e-6 more than 9 are refused."""
    refused = 0
    for run in range(1_000):
        counts = [counted_by_sums(released(honest, 16.0, 8 * run + number), CLASSES) for number in range(8)]
        try:
            check_cap(counts, most_records=200)
        except Contradiction:
            refused += 1
    assert refused <= 9


def test_a_whole_party_counts_no_records() -> None:
    vector = np.zeros(CLASSES * SPEC.dimensions + 1, dtype=np.int64)
    check_sums(released([vector] * 5), CLASSES, most_records=MOST, per_party=True)
    for spoilt in (np.append(vector[:-1], 2**33), np.append(vector[:-1] + int(20 * UNIT), 0)):
        with pytest.raises(Contradiction):
            check_sums(released([spoilt, *[vector] * 4]), CLASSES, most_records=MOST, per_party=True)


def test_sums_and_evaluation_count_the_same_records(honest: list[np.ndarray]) -> None:
    layout, sigma, cells = Layout(CLASSES), 2.0, []
    for seed in range(len(NAMES)):
        own = records(seed, 200)
        shares = np.random.default_rng(seed).dirichlet(np.ones(CLASSES), len(own.x))
        named = layout.cells(own.labels(), shares, other_classes(own.x, own.labels(), CLASSES))
        cells.append(counts_of(named, np.ones(len(own.x), dtype=np.int64), layout.length))
    by_sums = counted_by_sums(released(honest, sigma=0.1), CLASSES)
    assert by_sums.total == pytest.approx(1_000, abs=20)
    for seed in range(50):
        noise = np.random.default_rng(seed).normal(0.0, sigma, layout.length)
        check_counts([by_sums, counted_by_evaluation(np.sum(cells, axis=0) + noise, sigma, NAMES, CLASSES)])
    lie = np.zeros(layout.length)
    lie[[0, 4, 8]] = 10_000.0  # right for ten thousand records of each class
    false = counted_by_evaluation(np.sum(cells, axis=0) + lie, sigma, NAMES, CLASSES)
    with pytest.raises(
        Contradiction, match=r"evaluation counts 31,000 records, and the class sums 1,0\d\d of the same"
    ):
        check_counts([false, by_sums])
    check_counts([Counted("another evaluation", NAMES[1:], 31_000.0, 1.0), by_sums])  # of other parties


def test_equal_numbers_of_other_classes_are_refused(honest: list[np.ndarray]) -> None:
    by_sums = counted_by_sums(released(honest, sigma=0.1), CLASSES)
    moved = Counted("the evaluation", NAMES, 1_000.0, 1.0, np.array([900.0, 50.0, 50.0]), 5.0)
    with pytest.raises(Contradiction, match="of class 1"):
        check_counts([moved, by_sums])


def test_shares_of_whole_parties_add_up_to_their_number() -> None:
    check_shares(Counted("pool check", NAMES, 4.9, 0.5))
    for false in (9.0, 0.0):
        with pytest.raises(Contradiction):
            check_shares(Counted("pool check", NAMES, false, 0.1))
