"""One besieged coordinator for all tests of its ports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.attackers import Fortress


@pytest.fixture(scope="package")
def fortress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fortress]:
    fortress = Fortress(tmp_path_factory.mktemp("besieged"))
    try:
        yield fortress
    finally:
        fortress.close()
