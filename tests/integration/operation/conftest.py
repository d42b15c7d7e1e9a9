"""A consortium of this machine that is closed again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.consortium import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with closing(Scene(tmp_path)) as scene:
        yield scene
