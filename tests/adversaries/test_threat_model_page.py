"""Every test that the threat model names is there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "threat-model.md"


def test_every_test_that_the_threat_model_names_exists() -> None:
    named = set(re.findall(r"`([a-z_]+/[a-z_/]*test_[a-z_]+\.py)`", PAGE.read_text(encoding="utf-8")))
    assert len(named) >= 8
    assert [name for name in sorted(named) if not (TESTS / name).is_file()] == []
