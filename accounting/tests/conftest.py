"""Where curves are kept."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Curves are kept in a folder of this test, in which there are none at first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
