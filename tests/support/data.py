"""Real data sets: scikit-learn's digits, and those which a checkout can do without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collegium.coordinator.settings.run_config import PublicData
from collegium.data import DataSource, Examples, data_root, default_task, load
from collegium.data.task import Task


def folder_with(*names: str) -> Path:
    """The folder that COLLEGIUM_DATA names; where it lacks one of these files the test is skipped and says which."""
    root = data_root(None)
    for name in names:
        if root is None or not (root / name).exists():
            pytest.skip(f"needs {name} in the folder that COLLEGIUM_DATA names")
    assert root is not None
    return root


def records_from(source: Path | str, task: Task, root: Path | None = None, **options: object) -> Examples:
    return load(DataSource.model_validate({"source": str(source), **options}), task, data_root=root)


def first_digits(count: int) -> Examples:
    """So many of scikit-learn's digits, shuffled by this package."""
    return records_from("digits", default_task("digits"), split="all", shuffle_seed=0, stop=count)


def all_digits() -> Examples:
    """scikit-learn's, 1,797 images of 8 × 8 pixels, which are sorted by their writers."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return Examples((bunch.images * 15.9).astype(np.uint8)[..., None], bunch.target.astype(np.int64))


def mixed(digits: Examples) -> Examples:
    """The same in an order without their writers."""
    return digits.take(np.random.default_rng(0).permutation(len(digits)))


def pool_and_test(shuffled: Examples) -> PublicData:
    """Of all the digits, those after the first 1,200: institutions hold these."""
    return PublicData(shuffled.take(np.arange(1200, 1500)), shuffled.take(np.arange(1500, 1797)))
