"""The public pool and the private records of whole runs on the digits."""

from __future__ import annotations

import numpy as np
import pytest

from collegium.coordinator.settings.run_config import PublicData
from collegium.data import Examples


@pytest.fixture(scope="session")
def public(digits: Examples) -> PublicData:
    return PublicData(digits.take(np.arange(300)))


@pytest.fixture(scope="session")
def private(digits: Examples) -> Examples:
    return digits.take(np.arange(300, 1797))
