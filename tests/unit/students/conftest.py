"""Images that students learn from."""

from __future__ import annotations

import pytest
from support.data import first_digits

from collegium.data import Examples


@pytest.fixture(scope="session")
def digits() -> Examples:
    """Five hundred of scikit-learn's, shuffled."""
    return first_digits(500)
