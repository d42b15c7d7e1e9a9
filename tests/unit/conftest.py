"""Records that several rooms' tests use."""

from __future__ import annotations

import pytest
from support.data import all_digits

from collegium.data import Examples


@pytest.fixture(scope="session")
def digits() -> Examples:
    return all_digits()
