"""A small institution: scikit-learn's digits, 8 × 8 pixels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.party_requests import KEY

from collegium.data import Examples, PoolStore
from collegium.data.task import ImageInputs, Task
from collegium.data.values import ArraySpec
from collegium.parties.party import Party, unrestricted


@pytest.fixture(scope="session")
def task() -> Task:
    return Task(classes=tuple("0123456789"), inputs=ImageInputs(height=8, width=8))


@pytest.fixture
def private(digits: Examples) -> Examples:
    return digits.take(np.arange(300))


@pytest.fixture
def pools() -> PoolStore:
    return PoolStore(None)


@pytest.fixture
def pool(pools: PoolStore, digits: Examples) -> ArraySpec:
    return pools.put(digits.x[1500:1600])


@pytest.fixture
def make_party(private: Examples, task: Task, pools: PoolStore) -> Callable[..., Party]:
    def make(examples: Examples | None = None, folder: Path | None = None, **options: Any) -> Party:
        options = {"device": "cpu", "split_key": KEY, "pools": pools, "policy": unrestricted} | options
        return Party("alpha", private if examples is None else examples, task, folder=folder, **options)

    return make
