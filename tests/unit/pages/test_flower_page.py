"""docs/flower.md: the project that it shows is one that Flower takes, and its lines are at most fifteen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.pages import blocks_of, text_of_page

pytestmark = pytest.mark.slow

pytest.importorskip("flwr")

SECTION = text_of_page("flower.md").partition("## What you add")[2].partition("\n## ")[0]


def lines_of(kind: str) -> list[str]:
    return [line for block in blocks_of(SECTION, kind) for line in block.splitlines() if line.strip()]


def packed(project: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What Flower says when it checks the project and packs it."""
    place = folder / "our-federation"
    place.mkdir()
    (place / "pyproject.toml").write_text(project)
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": str(folder / "home")}
    program = Path(sys.executable).with_name("flwr")
    environment = {"PATH": str(program.parent), "PYTHONPATH": ":".join(sys.path), "HOME": str(folder), **quiet}
    return subprocess.run([program, "build"], cwd=place, env=environment, capture_output=True, text=True)


def test_flower_takes_the_project_of_the_page(tmp_path: Path) -> None:
    done = packed("\n".join(lines_of("toml")) + "\n", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "our-federation").glob("*.fab"))


def test_flower_would_say_so_if_an_app_were_not_found(tmp_path: Path) -> None:
    """Planted: a name that the module does not have."""
    done = packed("\n".join(lines_of("toml")).replace(":server_app", ":no_such_app"), tmp_path)
    assert done.returncode != 0 and "no_such_app" in done.stdout + done.stderr


def test_a_flower_project_adds_at_most_fifteen_lines() -> None:
    printed_by_the_last = 2
    lines = len(lines_of("toml")) + len(lines_of("sh")) + printed_by_the_last
    assert lines <= 15 and f"these are {lines} lines" in SECTION
