"""`make audit`: what it makes of what pip-audit says."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from support.files import module_at

SCRIPT = Path(__file__).resolve().parents[3] / ".ci" / "audit.py"
SAFE = {"name": "numpy", "version": "2.0", "vulns": []}
HURT = {"name": "pillow", "version": "9.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["10.0"]}]}
UNKNOWN = {"name": "collegium", "skip_reason": "not on the index"}


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    return module_at(SCRIPT)


def test_a_known_vulnerability_fails_and_is_named_with_its_cure(audit: ModuleType) -> None:
    lines, failed = audit.verdict([SAFE, HURT, UNKNOWN])
    assert failed
    assert lines == [
        "pillow 9.0: PYSEC-1, mended in 10.0",
        "audited 2 packages; not known to the index: collegium",
    ]


def test_no_known_vulnerability_passes(audit: ModuleType) -> None:
    assert audit.verdict([SAFE]) == (["audited 1 packages"], False)


def test_an_index_without_advisories_is_not_taken_for_a_clean_bill(audit: ModuleType) -> None:
    lines, failed = audit.verdict([UNKNOWN])
    assert not failed and lines[0].startswith("nothing was audited")
