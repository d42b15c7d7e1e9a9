"""The counts of an evaluation: how far a record, a person or a party moves them, and what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest

from collegium.coordinator.noise import CoordinatorNoise
from collegium.errors import ConfigurationError
from collegium.privacy.evaluation_cells import BINS, EDGES, Layout, other_classes
from collegium_accounting.game.laws import VectorLaw
from collegium_accounting.mechanisms import COORDINATOR, AddedBy, Adjacency, IntArray, SeededNoise, Unit
from collegium_accounting.mechanisms import record_counts as counts_file
from collegium_accounting.mechanisms.record_counts import ONE, RecordCounts, counts_of, weights_of
from collegium_accounting.renyi import WIDE_ORDERS


def drawn(records: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, labels and somebody's probabilities."""
    draws = np.random.default_rng(seed)
    shares = draws.dirichlet(np.full(classes, 0.4), records)
    return draws.random((records, 2)).astype(np.float32), draws.integers(0, classes, records), shares


def of_classifiers(sigma: float, classes: int, candidates: int = 1) -> RecordCounts:
    layout = Layout(classes)
    return RecordCounts(sigma=sigma, parts=candidates * layout.parts, cells=candidates * layout.length)


def vector(x: np.ndarray, labels: np.ndarray, shares: np.ndarray, **how: Any) -> np.ndarray:
    classes = shares.shape[1]
    cells = Layout(classes).cells(labels, shares, other_classes(x, labels, classes))
    weights = weights_of(how.get("groups"), len(x), per_party=how.get("per_party", False))
    return counts_of(cells, weights, Layout(classes).length)


def norm(change: np.ndarray) -> float:
    return math.sqrt(float((change.astype(np.float64) ** 2).sum()))


@pytest.mark.parametrize("classes", [2, 3])
def test_adding_or_replacing_any_record_moves_the_counts_by_no_more_than_is_charged(classes: int) -> None:
    """All neighbours of a data set over a grid of labels and probabilities, brought about one by one."""
    stage = of_classifiers(5.0, classes).stages[0]
    grid = [share for share in product((0.0, 0.02, 0.4, 0.6, 1.0), repeat=classes) if math.isclose(sum(share), 1.0)]
    x, labels, shares = drawn(6, classes, 0)
    before = vector(x, labels, shares)
    add, replace = (stage.moved(Unit(1, one)) * ONE for one in (Adjacency.ADD_REMOVE, Adjacency.REPLACE))
    most_added = most_replaced = 0.0
    for label, share in product(range(classes), grid):
        one = np.array([label]), np.array([share])
        added = vector(np.concatenate([x, x[:1]]), np.concatenate([labels, one[0]]), np.concatenate([shares, one[1]]))
        replaced = vector(x, np.concatenate([one[0], labels[1:]]), np.concatenate([one[1], shares[1:]]))
        most_added, most_replaced = max(most_added, norm(added - before)), max(most_replaced, norm(replaced - before))
    assert most_added == pytest.approx(add) and most_replaced <= replace * (1 + 1e-12)
    assert most_replaced == pytest.approx(replace)  # attained: the charge is not larger than it must be


@pytest.mark.parametrize("classes", [2, 4])
def test_a_person_with_many_records_and_a_whole_party_move_them_as_one_record_does(classes: int) -> None:
    most = of_classifiers(5.0, classes).stages[0].moved(Unit(1, Adjacency.ADD_REMOVE)) * ONE
    x, labels, shares = drawn(900, classes, 1)
    groups = np.array(["one"] * 700 + [f"p{number}" for number in range(200)])
    rest = vector(x[700:], labels[700:], shares[700:], groups=groups[700:])
    assert 0 < norm(vector(x, labels, shares, groups=groups) - rest) <= most
    assert 0 < norm(vector(x, labels, shares, per_party=True)) <= most


@pytest.mark.parametrize(("records", "of_person"), [(2, 1), (10, 9), (100, 99)])
def test_a_person_in_a_party_that_sends_shares_moves_them_by_less_than_another_party_would(
    records: int, of_person: int
) -> None:
    """More than a record does where parties send none: so it is charged as a party that is replaced."""
    mechanism = of_classifiers(5.0, 2)
    moved, replaced = (mechanism.stages[0].moved(Unit(1, kind)) for kind in Adjacency)
    shares = np.tile([[0.6, 0.4]], (records, 1))
    shares[:of_person] = [0.2, 0.8]
    x, labels = np.arange(2.0 * records, dtype=np.float32).reshape(records, 2), np.zeros(records, dtype=np.int64)
    whole = vector(x, labels, shares, per_party=True)
    rest = vector(x[of_person:], labels[of_person:], shares[of_person:], per_party=True)
    assert max(moved, replaced) >= norm(whole - rest) / ONE
    assert of_person == 1 or norm(whole - rest) / ONE > 1.2 * min(moved, replaced)


def test_a_record_counted_twice_or_a_person_that_is_not_divided_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: both move the counts by more than is charged."""
    most = of_classifiers(5.0, 2).stages[0].moved(Unit(1, Adjacency.ADD_REMOVE)) * ONE
    x, labels, shares = drawn(5, 2, 2)
    twice = np.repeat(np.arange(5), 2)
    assert (
        norm(
            vector(x[twice], labels[twice], shares[twice]) - vector(x[twice][2:], labels[twice][2:], shares[twice][2:])
        )
        > most
    )
    monkeypatch.setattr(counts_file, "weights_of", lambda groups, records, **_: np.full(records, ONE))
    undivided = counts_of(
        Layout(2).cells(labels, shares, labels), counts_file.weights_of(np.array(["one"] * 5), 5), Layout(2).length
    )
    assert norm(undivided) > most


def test_cells_say_what_was_predicted_and_how_surely() -> None:
    layout = Layout(2)
    shares = np.array([[1.0, 0.0], [0.5, 0.5], [0.49, 0.51], [0.0, 1.0]])
    cells = layout.cells(np.array([0, 0, 1, 1]), shares, np.array([1, 1, 0, 0]))[:, 0]
    true, given, positives, negatives = layout.views()
    assert true[cells].tolist() == given[cells].tolist() == [0, 0, 1, 1]
    assert cells.tolist() == [0, 4, BINS + 5, BINS + 9] and EDGES[4] == 0.5
    assert positives.tolist() == [list(range(BINS, 2 * BINS))] and negatives.tolist() == [list(range(BINS))]
    x, labels, shares = drawn(500, 5, 3)
    others = other_classes(x, labels, 5)
    assert (others != labels).all() and set(others) == set(range(5))
    assert np.array_equal(others[7:9], other_classes(x[7:9], labels[7:9], 5))  # of the record alone
    cells = Layout(5).cells(labels, shares, others)
    true, given, positives, negatives = Layout(5).views()
    assert (true[cells[:, 0]] == labels).all() and (given[cells[:, 0]] == shares.argmax(axis=1)).all()
    assert (true[cells[:, 1:]] == -1).all() and (given[cells[:, 1:]] == -1).all()
    for column, kinds, whose in ((1, positives, labels), (2, negatives, others)):
        bins = np.searchsorted(EDGES, shares[np.arange(500), whose])
        assert (cells[:, column] == kinds[whose, bins]).all()
    assert cells[:, 1].min() >= 25 and cells[:, 2].max() < Layout(5).length


def test_the_charge_is_one_gaussian_of_the_stated_sensitivity_for_every_unit() -> None:
    for candidates, classes, parts in ((1, 2, 1), (4, 2, 1), (2, 10, 3)):
        plain = of_classifiers(20.0, classes, candidates)
        for adjacency, factor in ((Adjacency.ADD_REMOVE, 1.0), (Adjacency.REPLACE, 2.0)):
            rho = factor * parts * candidates / (2.0 * 20.0**2)
            for added in (COORDINATOR, AddedBy(7)):
                (stage,) = plain.summed(added)
                charge = stage.charge(WIDE_ORDERS, Unit(1, adjacency))
                np.testing.assert_allclose(charge.values, rho * np.array(WIDE_ORDERS), rtol=1e-6)
                law = stage.law(Unit(1, adjacency))
                assert isinstance(law, VectorLaw) and law.mu == pytest.approx(math.sqrt(2.0 * rho)) and law.slack < 2e-6
        assert plain.noise_votes == pytest.approx(20.0 / math.sqrt(parts * candidates))


def noise_of(sigma: float) -> IntArray:
    """What the coordinator adds to 4,000 counts, in parts of a record."""
    (stage,) = RecordCounts(sigma, 1, 4_000).stages
    return CoordinatorNoise(seed=1).vector(stage, np.zeros(4_000, dtype=np.int64), "test")


def test_the_noise_is_what_is_charged() -> None:
    """Over 4,000 counts: the variance lies within 5.5 standard errors of σ², which fails once in 10 million."""
    noise = noise_of(3.0) / ONE
    assert abs(noise.var() / 9.0 - 1.0) < 5.5 * math.sqrt(2.0 / 4_000)
    half = noise_of(1.5) / ONE
    assert abs(half.var() / 9.0 - 1.0) > 0.5  # planted: half the noise


class GivenNoise(SeededNoise):
    """The same on every entry, as whole numbers of a type."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def gaussian(self, sigma: float, shape: tuple[int, ...]) -> np.ndarray:
        return np.full(shape, 2**53 + 1, dtype=np.int64).astype(self._kind)


@dataclass(frozen=True)
class WithGivenNoise(CoordinatorNoise):
    kind: type = np.int64

    def _source(self, drawn_for: str) -> SeededNoise:
        return GivenNoise(self.kind)


def test_noise_in_whole_numbers_passes_no_floating_point() -> None:
    """2^53 + 1 is the first whole number that a float cannot hold."""
    (stage,) = RecordCounts(3.0, 1, 2).stages
    values = np.array([0, -(2**53)])
    assert WithGivenNoise().vector(stage, values, "test").tolist() == [2**53 + 1, 1]
    assert WithGivenNoise(kind=np.float64).vector(stage, values, "test").tolist() == [2**53, 0]  # planted


def test_one_class_or_too_many_candidates_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="2 to 1000 classes; got 1"):
        Layout(1)
    with pytest.raises(ConfigurationError, match="parts"):
        of_classifiers(1.0, 3, candidates=17)
