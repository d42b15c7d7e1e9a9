"""What the docstrings show runs as it stands, and every public name shows something."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path
from types import ModuleType

import pytest

import collegium
import collegium_accounting

SHOWN = [
    ".".join([package.__name__, *path.relative_to(root).with_suffix("").parts])
    for package in (collegium, collegium_accounting)
    for root in [Path(package.__file__ or "").parent]
    for path in sorted(root.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", SHOWN)
def test_every_example_gives_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tried = doctest.testmod(importlib.import_module(name), raise_on_error=True)
    assert tried.attempted and not tried.failed


@pytest.mark.parametrize("package", [collegium, collegium_accounting])
def test_every_public_name_shows_an_example(package: ModuleType) -> None:
    names = set(package.__all__) - {"__version__", "errors"}
    assert {name for name in names if ">>> " not in (getattr(package, name).__doc__ or "")} == set()
