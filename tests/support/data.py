"""Real data sets, which a checkout can do without."""

from __future__ import annotations

from pathlib import Path

import pytest

from collegium.data import data_root


def folder_with(*names: str) -> Path:
    """The folder that COLLEGIUM_DATA names; where it lacks one of these files the test is skipped and says which."""
    root = data_root(None)
    for name in names:
        if root is None or not (root / name).exists():
            pytest.skip(f"needs {name} in the folder that COLLEGIUM_DATA names")
    assert root is not None
    return root
