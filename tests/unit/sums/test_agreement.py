"""Own records beside the others' first class sum: who is told that both tell the classes apart otherwise."""

from collections.abc import Callable

import numpy as np
import pytest

from collegium.data import Examples
from collegium.models.codes import Codes
from collegium.parties.agreement import SAMPLE, Compared, compared, sampled
from collegium_accounting.mechanisms.class_sums import ONE, count_of_one

DIMENSIONS, CLASSES = 30, 4
Labels = np.ndarray


def vectors(random: np.random.Generator, labels: Labels, apart: float = 0.5) -> np.ndarray:
    """Vectors φ of length ONE whose classes lie so far apart, beside a mean that all have in common."""
    found = random.normal(size=(len(labels), DIMENSIONS)) / np.sqrt(DIMENSIONS)
    found[:, 0] += 1.0
    found[np.arange(len(labels)), 1 + labels] += apart
    return np.asarray(np.trunc(found * (ONE / np.linalg.norm(found, axis=1, keepdims=True))))


def summed(found: np.ndarray, labels: Labels) -> np.ndarray:
    sums = Codes(CLASSES).of(found, labels).astype(np.float64).T @ found
    return np.append(sums.reshape(-1), len(labels) * count_of_one(CLASSES))


def met(
    seed: int,
    own: Callable[[Labels], Labels] = lambda labels: labels,
    others: Callable[[Labels], Labels] = lambda labels: labels,
    *,
    noise: float = 0.0,
    frequencies: tuple[float, ...] = (0.25,) * CLASSES,
    here: tuple[float, ...] = (0.25,) * CLASSES,
    apart: float = 0.5,
    records: int = 200,
    rest: int = 0,
) -> Compared | None:
    """Own records and others, by default four times as many, whose classes are called so; noise in contributions."""
    random = np.random.default_rng(seed)
    ours, there = random.choice(CLASSES, records, p=here), random.choice(CLASSES, rest or 4 * records, p=frequencies)
    sample, found = vectors(random, ours, apart), vectors(random, there, apart)
    standard = noise * ONE * np.sqrt(CLASSES * (CLASSES - 1)) * 128
    sums = summed(found, others(there))
    return compared(sample, own(ours), sums + random.normal(0.0, standard, len(sums)) if noise else sums, standard)


def swapped(labels: Labels) -> Labels:
    return np.where(labels < 2, 1 - labels, labels)


def test_two_classes_that_are_exchanged_are_told_by_their_names() -> None:
    for seed in range(20):
        found = met(seed, own=swapped)
        assert found is not None and found.broken
        assert found.classes and set(found.classes) <= {0, 1}


def test_it_does_not_matter_at_whom_they_are_exchanged() -> None:
    found = met(0, others=swapped)
    assert found is not None and set(found.classes) <= {0, 1} and found.broken


def test_labels_drawn_by_lot_are_told() -> None:
    for seed in range(20):
        random = np.random.default_rng(100 + seed)
        found = met(
            seed, own=lambda labels, random=random: random.integers(0, CLASSES, len(labels)), apart=2.0, records=1000
        )  # type: ignore[misc]
        assert found is not None and found.altogether.broken()


@pytest.mark.parametrize("noise", [0.0, 5.0, 50.0])
@pytest.mark.parametrize("frequencies", [(0.25,) * CLASSES, (0.7, 0.1, 0.1, 0.1)])
@pytest.mark.parametrize("apart", [0.5, 0.02])
def test_of_records_that_are_alike_nothing_is_told(noise: float, frequencies: tuple[float, ...], apart: float) -> None:
    """However frequent the classes are, and however little tells them apart; the seeds are fixed, so it never fails."""
    assert not any(
        (found := met(seed, noise=noise, frequencies=frequencies, apart=apart)) and found.broken for seed in range(20)
    )


@pytest.mark.parametrize("apart", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("here", [(1.0, 0.0, 0.0, 0.0), (0.9, 0.04, 0.03, 0.03), (0.25,) * CLASSES])
@pytest.mark.parametrize("there", [(0.0, 0.0, 0.0, 1.0), (0.03, 0.03, 0.04, 0.9), (0.25,) * CLASSES])
def test_other_frequencies_of_classes_are_no_other_names(
    apart: float, here: tuple[float, ...], there: tuple[float, ...]
) -> None:
    """Planted once: whoever had one class, or had common what is rare elsewhere, was told so every time."""
    for seed in range(10):
        found = met(seed, apart=apart, here=here, frequencies=there)
        assert found is None or not found.broken


@pytest.mark.parametrize(("records", "rest"), [(4, 5000), (6, 5000), (10, 5000), (20, 5000), (40, 5000), (2000, 10)])
def test_of_few_records_nothing_is_told_by_chance(records: int, rest: int) -> None:
    """Planted once: of ten records in four classes, whose spread chance made small, one party in five was told so."""
    for seed in range(20):
        found = met(seed, apart=1.0, records=records, rest=rest)
        assert found is None or not found.broken


def test_exchanged_classes_are_told_where_their_frequencies_differ() -> None:
    for seed in range(10):
        found = met(seed, own=swapped, here=(0.4, 0.2, 0.2, 0.2), frequencies=(0.2, 0.3, 0.3, 0.2))
        assert found is not None and set(found.classes) <= {0, 1} and found.broken


def test_where_noise_hides_the_others_nothing_is_told() -> None:
    found = met(0, own=swapped, noise=10_000.0)
    assert found is None or not found.broken


def test_few_records_and_sums_of_nobody_are_not_compared() -> None:
    labels = np.array([0, 1, 2])
    found = vectors(np.random.default_rng(0), labels)
    assert compared(found, labels, summed(found, labels), 0.0) is None
    many = np.arange(40) % CLASSES
    of_many = vectors(np.random.default_rng(0), many)
    assert compared(of_many, many, np.zeros(CLASSES * DIMENSIONS + 1), 1.0) is None


def test_one_record_of_each_person_is_compared() -> None:
    groups = np.array([f"person-{number // 3}" for number in range(30)])
    rows = sampled(Examples(np.zeros((30, 2), dtype=np.float32), np.zeros(30, dtype=np.int64), groups=groups))
    assert sorted(groups[rows]) == sorted(set(groups))
    many = Examples(np.zeros((SAMPLE + 9, 1), dtype=np.float32), np.zeros(SAMPLE + 9, dtype=np.int64))
    assert len(set(sampled(many).tolist())) == SAMPLE


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [1e308, -1e308, 1e200, 0.0])
def test_absurd_numbers_are_told_of_nobody(value: float) -> None:
    labels = np.arange(40) % CLASSES
    found = compared(vectors(np.random.default_rng(0), labels), labels, np.full(CLASSES * DIMENSIONS + 1, value), 1e150)
    assert found is None or not found.broken
