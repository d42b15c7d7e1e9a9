"""A person with eight rows whom nobody named: what its institution is asked, and what a report says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from adversaries.conftest import Study
from support.typist import typed, typing

from collegium.coordinator.report.page import render

PERSONS, ROWS_EACH = 12, 8
SCHEMA = """\
[task]
classes = ["no", "yes"]
inputs = { kind = "table", columns = [{ kind = "number", name = "age", low = 0, high = 120 }] }
"""
DECISIONS = ('group = "pseudonym"', "one_row_each = true", "one_row_each = false")


def written(folder: Path, decision: str) -> Path:
    """The party.toml of an institution whose persons have eight rows each; the first one's are all equal."""
    rows = [
        f"{person},{40 + person + (visit if person else 0)},{'yes' if person % 2 else 'no'}"
        for person in range(PERSONS)
        for visit in range(ROWS_EACH)
    ]
    (folder / "records.csv").write_text("\n".join(["pseudonym,age,y", *rows]) + "\n")
    (folder / "task.toml").write_text(SCHEMA)
    file = folder / "party.toml"
    file.write_text(
        f'coordinator = "localhost:1"\ncredentials = "c"\nfolder = "f"\ndata_root = "{folder}"\n'
        f'[data]\nsource = "records.csv"\n{decision}\n'
    )
    return file


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit status of a command, and what it printed."""
    with typing(capsys):  # `serve` changes the logging of this process
        status, out, err = typed(capsys, *words)
    return status, out + err


def answers(capsys: pytest.CaptureFixture[str], folder: Path) -> Iterator[tuple[str, object, str]]:
    for decision in ("", *DECISIONS):
        file = written(folder, decision)
        yield decision, *printed(capsys, "party", "check", str(file), "--schema", str(folder / "task.toml"))


def test_an_institution_is_asked_whose_a_row_is_before_it_serves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = 'whose is a row? Write below [data] in party.toml group = "COLUMN"'
    for decision, status, said in answers(capsys, tmp_path):
        assert (asked in said) == (not decision) and status == (0 if decision else 3)
        status, said = printed(capsys, "party", "serve", str(tmp_path / "party.toml"))
        assert (asked in said) == (not decision) and status == (4 if decision else 2)  # it has no credentials here


def test_repeated_identifiers_and_equal_rows_are_told_loudly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for decision, _, said in answers(capsys, tmp_path):
        named = decision.startswith("group")
        repeated = f"REPEATED IDENTIFIER: pseudonym has {PERSONS} values in {PERSONS * ROWS_EACH} rows, up to 8 rows"
        assert (repeated in said) == (not named)
        equal = "EQUAL ROWS: 8 rows are equal to another one, up to 8 to each other"
        assert (equal in said) == (not named)


def test_a_report_says_rows_until_every_institution_said_persons(study: Study) -> None:
    parties = list(study.parties.by_name.values())
    for party in parties[:-1]:
        party.persons = True
    page = render(study.label("one-did-not"))
    assert "Rows (a person may have several)" in page and "per row, at" in page and "Persons" not in page
    assert "What is promised for a row is promised for no person" in page
    parties[-1].persons = True
    page = render(study.label("all-did", range(20, 24)))
    assert "Persons" in page and "per person, at" in page and "Rows (" not in page and "promised for no" not in page
