"""A record touches one teacher only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from collegium.data import Examples
from collegium.errors import ConfigurationError, StorageError
from collegium.parties.teachers.specs import canonical_order
from collegium.parties.teachers.splits import KEY_FILE, assign_teachers, derive_key, load_or_create_key, simulated_key

KEY = simulated_key(0, "alpha")
TEACHERS = 7


def numbered(records: int, *, seed: int = 0) -> Examples:
    """Records with numbers of their own, as a patient number is."""
    rng = np.random.default_rng(seed)
    groups = np.array([f"patient-{number}" for number in range(records)])
    return Examples(rng.random((records, 3), dtype=np.float32), rng.integers(0, 3, records), groups)


def by_content(examples: Examples) -> Examples:
    return Examples(examples.x, examples.y)


def without(examples: Examples, number: int) -> Examples:
    return examples.take(np.delete(np.arange(len(examples)), number))


def splits(examples: Examples, assign: object = assign_teachers) -> list[bytes]:
    """What each teacher would learn from, as bytes."""
    assigned = assign(list(examples.identities()), TEACHERS, KEY)  # type: ignore[operator]
    own = [canonical_order(examples.take(np.flatnonzero(assigned == number))) for number in range(TEACHERS)]
    return [part.x.tobytes() + np.asarray(part.y).tobytes() for part in own]


def touched(before: Examples, after: Examples, assign: object = assign_teachers) -> int:
    return sum(a != b for a, b in zip(splits(before, assign), splits(after, assign), strict=True))


def changed(examples: Examples, number: int) -> Examples:
    x = examples.x.copy()
    x[number] = 1 - x[number]
    return Examples(x, examples.y, examples.groups)


@pytest.mark.parametrize("number", range(0, 60, 5))
def test_changing_adding_or_removing_a_numbered_record_touches_exactly_one_teacher(number: int) -> None:
    examples = numbered(60)
    assert touched(examples, changed(examples, number)) == 1
    assert touched(examples, without(examples, number)) == 1
    assert touched(without(examples, number), examples) == 1


@pytest.mark.parametrize("number", range(0, 60, 5))
def test_without_numbers_a_change_is_one_record_removed_and_one_added(number: int) -> None:
    examples = by_content(numbered(60))
    assert touched(examples, without(examples, number)) == 1
    assert touched(without(examples, number), examples) == 1
    assert 1 <= touched(examples, changed(examples, number)) <= 2


def test_splitting_by_position_or_balancing_would_be_caught() -> None:
    """Planted bugs: both move many records when one is removed."""

    def by_position(identities: list[bytes], teachers: int, key: bytes) -> np.ndarray:
        return np.arange(len(identities)) % teachers

    def balanced(identities: list[bytes], teachers: int, key: bytes) -> np.ndarray:
        return np.argsort(np.argsort(identities)) * teachers // len(identities)

    examples = numbered(60)
    for planted in (by_position, balanced):
        assert touched(examples, without(examples, 5), planted) > 1


def test_a_group_stays_together() -> None:
    examples = numbered(200)
    grouped = Examples(examples.x, examples.y, np.array([f"family-{number % 20}" for number in range(200)]))
    assigned = assign_teachers(grouped.identities(), TEACHERS, KEY)
    for family in range(20):
        assert len(set(assigned[family::20])) == 1


def test_duplicates_of_a_record_share_a_teacher() -> None:
    examples = by_content(numbered(40))
    twice = Examples(np.concatenate([examples.x, examples.x]), np.concatenate([examples.y, examples.y]))
    assigned = assign_teachers(twice.identities(), TEACHERS, KEY)
    assert np.array_equal(assigned[:40], assigned[40:])


def test_another_key_deals_otherwise() -> None:
    identities = list(numbered(60).identities())
    other = simulated_key(0, "beta")
    assert not np.array_equal(assign_teachers(identities, 7, KEY), assign_teachers(identities, 7, other))
    assert simulated_key(1, "alpha") != KEY != derive_key(KEY, "another purpose")


def test_teachers_get_equal_shares() -> None:
    """Chi-squared on 7,000 records and 7 teachers: above 38.3 with probability 1e-6 (6 degrees of freedom)."""
    counts = np.bincount(assign_teachers([str(i).encode() for i in range(7000)], 7, KEY), minlength=7)
    assert ((counts - 1000) ** 2 / 1000).sum() < 38.3


@pytest.mark.parametrize("teachers", [0, 1001])
def test_a_number_of_teachers_beyond_the_limits_is_refused(teachers: int) -> None:
    with pytest.raises(ConfigurationError, match="1 to 1000 teachers"):
        assign_teachers([b"a"], teachers, KEY)


def test_the_key_is_made_once_and_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "alpha"
    key = load_or_create_key(folder)
    assert load_or_create_key(folder) == key
    assert load_or_create_key(tmp_path / "beta") != key
    assert stat.S_IMODE((folder / KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == [KEY_FILE]


def test_a_damaged_key_is_an_error_and_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).write_bytes(b"short")
    with pytest.raises(StorageError, match="damaged"):
        load_or_create_key(tmp_path)
    assert (tmp_path / KEY_FILE).read_bytes() == b"short"


def test_a_key_made_meanwhile_by_another_process_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def late(source: Path, target: Path) -> None:
        if not target.exists():
            target.write_bytes(b"k" * 32)
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    assert load_or_create_key(tmp_path) == b"k" * 32


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot use the key"):
        load_or_create_key(tmp_path / "file")
