"""Images that students learn from."""

from __future__ import annotations

import pytest

from collegium.data import DataSource, Examples, default_task, load


@pytest.fixture(scope="session")
def digits() -> Examples:
    """Five hundred of scikit-learn's, shuffled."""
    return load(
        DataSource(source="digits", split="all", shuffle_seed=0, stop=500), default_task("digits"), data_root=None
    )
