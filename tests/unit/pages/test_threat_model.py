"""Every row of the threat model and of the attempts names the tests that play it, or says that nothing stops it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = (ROOT / "docs" / "threat-model.md", ROOT / "docs" / "research" / "attacks.md")
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split(" | ")]
    for page in PAGES
    for line in page.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| attempt")
]
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)\(", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
}
NEW = ("refusals", "pool", "ghosts", "older copy", "rewrite its own ledger", "stolen")


def problems(row: list[str]) -> list[str]:
    """What is wrong with the last cell of a row: names of tests in backticks, or the word ``nothing``."""
    last = row[-1]
    named = re.findall(r"`(test_\w+)`", last)
    if last == "nothing":
        said = row[0].startswith("**") or "nothing" in row[1]
        return [] if said else ["nothing tests it, and the row does not say that nothing stops it"]
    if not named or ", ".join(f"`{name}`" for name in named) != last:
        return [f"names no test: {last!r}"]
    return [f"there is no {name}" for name in named if name not in TESTS]


@pytest.mark.parametrize("row", ROWS, ids=[row[0].strip("*")[:60] for row in ROWS])
def test_a_row_names_tests_that_exist_or_says_that_nothing_stops_the_attempt(row: list[str]) -> None:
    assert problems(row) == []


def test_the_check_sees_a_test_that_is_gone_and_a_row_without_one() -> None:
    assert problems(["an attempt", "stopped by something", "`test_that_nobody_wrote`"])
    assert problems(["an attempt", "stopped by something", "trust us"])
    assert problems(["an attempt", "stopped by something", "nothing"])
    assert not problems(["**an attempt**", "only by care", "nothing"])


@pytest.mark.parametrize("words", NEW)
def test_the_attempts_that_were_once_missed_have_rows(words: str) -> None:
    assert any(words in row[0] for row in ROWS)
