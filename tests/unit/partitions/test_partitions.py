"""Partitions are disjoint, cover everything, follow the seed alone, and are skewed the way they say."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from collegium.data import DataSource, Examples, default_task, load
from collegium.errors import ConfigurationError, DataError
from collegium.simulations.partitions import PartitionConfig, partition

CLASSES = 10


def divided(examples: Examples, **settings: Any) -> list[np.ndarray]:
    return partition(examples, PartitionConfig(**settings))


def sample(records: int, *, groups: int | None = None, seed: int = 0, sort: bool = False) -> Examples:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, records)
    return Examples(
        np.zeros((records, 1), dtype=np.float32),
        np.sort(labels) if sort else labels,
        None if groups is None else rng.integers(0, groups, records).astype(str),
        {"hospital": rng.choice(["north", "south", "west"], records)},
    )


def assert_divides(parts: list[np.ndarray], examples: Examples) -> None:
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(examples)))
    assert all(part.dtype == np.int64 and bool((np.diff(part) > 0).all()) for part in parts)


@settings(max_examples=40)
@given(
    kind=st.sampled_from(["iid", "dirichlet", "quantity"]),
    records=st.integers(1, 120),
    parties=st.integers(1, 12),
    groups=st.none() | st.integers(1, 30),
    alpha=st.floats(0.01, 100),
    seed=st.integers(0, 2**32),
)
def test_parts_are_disjoint_cover_everything_and_split_no_group(
    kind: Any, records: int, parties: int, groups: int | None, alpha: float, seed: int
) -> None:
    examples = sample(records, groups=groups, seed=seed)
    units = records if examples.groups is None else len(set(examples.groups.tolist()))
    if parties > units:
        with pytest.raises(ConfigurationError, match=f"{parties} parties cannot divide {units}"):
            divided(examples, kind=kind, parties=parties, seed=seed, alpha=alpha)
        return
    parts = divided(examples, kind=kind, parties=parties, seed=seed, alpha=alpha)
    assert len(parts) == parties
    assert_divides(parts, examples)
    if examples.groups is not None:
        owners = [set(examples.groups[part].tolist()) for part in parts]
        assert sum(map(len, owners)) == len(set().union(*owners))


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "quantity"])
def test_the_seed_alone_decides(kind: Any) -> None:
    examples = sample(300)

    def parts(seed: int) -> list[list[int]]:
        return [part.tolist() for part in divided(examples, kind=kind, parties=7, seed=seed)]

    np.random.seed(1)
    first = parts(5)
    np.random.seed(2)
    assert parts(5) == first
    assert parts(6) != first


def test_iid_parts_are_equal_in_size_and_mix_the_classes_of_a_sorted_set() -> None:
    examples = sample(2000, sort=True)
    parts = divided(examples, kind="iid", parties=8, seed=1)
    assert {len(part) for part in parts} == {250}
    # With 250 of 2,000 records a class of about 200 is absent with probability below 1e-11 for each of 80 pairs.
    assert all(len(np.unique(examples.labels()[part])) == CLASSES for part in parts)


def label_skew(alpha: float) -> float:
    examples = sample(4000)
    parts = divided(examples, kind="dirichlet", parties=10, seed=3, alpha=alpha)
    largest = [np.bincount(examples.labels()[part]).max() / len(part) for part in parts if len(part)]
    return float(np.mean(largest))


def test_a_small_alpha_skews_labels_and_a_large_one_does_not() -> None:
    assert label_skew(0.05) > 0.5
    assert label_skew(1000.0) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0])
def test_the_shares_of_a_class_are_dirichlet_of_the_stated_concentration(alpha: float) -> None:
    classes, records_per_class, parties = 2000, 100, 10
    examples = Examples(np.zeros((classes * records_per_class, 1), np.float32), np.arange(classes * 100) % classes)
    parts = divided(examples, kind="dirichlet", parties=parties, seed=4, alpha=alpha)
    shares = np.array([np.bincount(examples.labels()[part], minlength=classes) for part in parts]) / records_per_class
    # Σ p² lies in [0, 1] and has the mean (α + 1)/(Kα + 1). By Hoeffding's inequality the mean over 2,000 classes is
    # within 0.061 of it but for a probability of 1e-6; rounding to whole records adds at most 2·10·0.01·mean share.
    expected = (alpha + 1) / (parties * alpha + 1)
    assert float(np.mean(np.sum(shares**2, axis=0))) == pytest.approx(expected, abs=0.061 + 0.02)
    assert np.mean(shares, axis=1) == pytest.approx(np.full(parties, 1 / parties), abs=0.061 + 0.01)


def size_skew(alpha: float) -> float:
    sizes = [len(part) for part in divided(sample(4000), kind="quantity", parties=10, seed=3, alpha=alpha)]
    return max(sizes) / (sum(sizes) / len(sizes))


def test_quantity_skews_sizes_and_not_labels() -> None:
    assert size_skew(0.1) > 2
    assert size_skew(1000.0) < 1.2
    examples = sample(4000, sort=True)
    largest = max(divided(examples, kind="quantity", parties=10, seed=3, alpha=0.1), key=len)
    shares = np.bincount(examples.labels()[largest]) / len(largest)
    assert shares.max() < 0.2


def test_a_party_may_be_left_without_a_record() -> None:
    for kind in ("quantity", "dirichlet"):
        parts = divided(sample(50), kind=kind, parties=40, seed=0, alpha=0.01)
        assert len(parts) == 40
        assert min(map(len, parts)) == 0


def test_a_column_gives_one_party_per_value_in_their_order() -> None:
    examples = sample(90)
    parts = divided(examples, kind="column", column="hospital")
    assert_divides(parts, examples)
    assert [set(examples.columns["hospital"][part].tolist()) for part in parts] == [{"north"}, {"south"}, {"west"}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "column", "column": "state"}, "no column state to partition by; there are: hospital"),
        ({"kind": "column", "column": "hospital", "parties": 4}, "has 3 values for 4 parties"),
        ({"kind": "iid", "parties": 91}, "91 parties cannot divide 90 records: ask for fewer"),
    ],
)
def test_what_the_data_cannot_give_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        divided(sample(90), **options)


def test_a_group_under_two_values_of_the_column_is_refused() -> None:
    with pytest.raises(DataError, match="groups have records under several values"):
        divided(sample(90, groups=5), kind="column", column="hospital")


def test_label_skew_needs_labels() -> None:
    with pytest.raises(DataError, match="no label"):
        divided(Examples(np.zeros((9, 1), dtype=np.float32)), kind="dirichlet", parties=2)


@pytest.mark.parametrize(
    "settings_",
    [{"kind": "iid"}, {"kind": "column"}, {"kind": "iid", "parties": 2, "column": "a"}, {"parties": 2, "alpha": 0.0}],
)
def test_settings_that_make_no_sense_are_refused(settings_: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PartitionConfig(**settings_)


def test_two_hundred_and_fifty_parties_of_the_digits() -> None:
    examples = load(DataSource(source="digits"), default_task("digits"), data_root=None)
    parts = divided(examples, kind="iid", parties=250, seed=0)
    assert {len(part) for part in parts} == {7, 8}
    assert_divides(parts, examples)
