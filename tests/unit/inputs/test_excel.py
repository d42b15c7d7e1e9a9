"""Workbooks of Excel as records: each cell by itself, the faults of such files named with what to do."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collegium.data import load
from collegium.data.loading.sources import DataSource
from collegium.data.task import CategoryColumn, NumberColumn, TableInputs, Task
from collegium.errors import DataError, MissingExtra
from collegium.parties.checking import check_records

openpyxl = pytest.importorskip("openpyxl")

TASK = Task(
    classes=("no", "yes"),
    inputs=TableInputs(
        columns=(
            NumberColumn(name="age", low=0, high=100),
            NumberColumn(kind="date", name="seen", low=0, high=40000),
            CategoryColumn(name="smokes", categories=("TRUE", "FALSE")),
        )
    ),
)
HEADER = ["age", "seen", "smokes", "class"]
ROWS = [
    [40, datetime(2016, 3, 17), True, "yes"],
    [41.5, datetime(2016, 3, 18, 9, 30), False, "no"],
    [None, None, None, "no"],
]
SOURCE = DataSource(source="records.xlsx", label="class")


def write(folder: Path, *sheets: tuple[str, list[list[Any]]]) -> None:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets:
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(folder / "records.xlsx")


@pytest.mark.parametrize("decimal", [".", ","])
def test_a_workbook_gives_the_records_that_its_csv_file_gives(tmp_path: Path, decimal: str) -> None:
    write(tmp_path, ("Data", [HEADER, *ROWS, [], [None, ""]]))
    (tmp_path / "records.csv").write_text(
        f"age;seen;smokes;class\n40;2016-03-17;TRUE;yes\n41{decimal}5;2016-03-18 09:30:00;FALSE;no\n;;;no\n"
    )
    own = SOURCE.model_copy(update={"decimal": decimal})
    held = load(own, TASK, data_root=tmp_path)
    text = own.model_copy(update={"source": "records.csv", "separator": ";"})
    same = load(text, TASK, data_root=tmp_path)
    assert np.array_equal(held.x, same.x) and np.array_equal(held.labels(), same.labels())
    assert held.rows is not None and same.rows is not None and (held.rows == same.rows).all()


@pytest.mark.parametrize(
    ("sheets", "settings", "words"),
    [
        ([("A", [["Register of 2024"], [], HEADER, *ROWS])], {}, "row 1 names no column 2: its first row must hold"),
        ([("A", [["age", "age", "smokes", "class"], *ROWS])], {}, "two columns are called 'age'"),
        ([("A", [])], {}, "is empty"),
        ([("A", [HEADER, *ROWS])], {"sheet": "B"}, "has no sheet 'B'; there are 'A'"),
        ([("A", [HEADER, ["old", *ROWS[0][1:]]])], {}, r"column age: 1 value is no number.*\(line 2\)"),
    ],
)
def test_a_fault_is_named(
    tmp_path: Path, sheets: list[tuple[str, list[list[Any]]]], settings: dict[str, Any], words: str
) -> None:
    write(tmp_path, *sheets)
    with pytest.raises(DataError, match=words):
        load(SOURCE.model_copy(update=settings), TASK, data_root=tmp_path)


@pytest.mark.parametrize("numbers", [[0, 1, 2], [1, 2, 3], [7, 3, 40]])
def test_a_first_column_without_a_name_that_numbers_the_rows_is_skipped(tmp_path: Path, numbers: list[int]) -> None:
    """As pandas writes an index; no identity of a record has its number in it."""
    write(tmp_path, ("Data", [HEADER, *ROWS]))
    plain = load(SOURCE, TASK, data_root=tmp_path)
    write(tmp_path, ("Data", [[None, *HEADER], *([number, *row] for number, row in zip(numbers, ROWS, strict=True))]))
    held = load(SOURCE, TASK, data_root=tmp_path)
    assert np.array_equal(held.x, plain.x) and held.rows_of == plain.rows_of
    assert held.rows is not None and plain.rows is not None and (held.rows == plain.rows).all()
    assert "a column without a name numbers the rows: it is not used" in check_records(SOURCE, TASK, tmp_path).notes


@pytest.mark.parametrize("numbers", [[0, 1, 1], [0, 1, "two"], [0, 1, None], [0.5, 1, 2]])
def test_another_column_without_a_name_is_refused(tmp_path: Path, numbers: list[Any]) -> None:
    write(tmp_path, ("Data", [[None, *HEADER], *([number, *row] for number, row in zip(numbers, ROWS, strict=True))]))
    with pytest.raises(DataError, match="row 1 names no column 1"):
        load(SOURCE, TASK, data_root=tmp_path)


def test_what_is_no_workbook_is_refused_in_one_line(tmp_path: Path) -> None:
    for content in (b"", b"PK\x03\x04nothing", b"\xd0\xcf\x11\xe0 an older or protected workbook"):
        (tmp_path / "records.xlsx").write_bytes(content)
        with pytest.raises(DataError, match="no workbook of Excel, damaged, or protected"):
            load(SOURCE, TASK, data_root=tmp_path)


def test_a_check_reports_all_faults_of_a_workbook_at_once_and_finds_the_sheet(tmp_path: Path) -> None:
    rows = [[4000 + 10 * number, "17/03/2016", "maybe", "Yes"] for number in range(20)]
    write(tmp_path, ("Cover", [["Register of 2024"], ["for the consortium"]]), ("Data 2024", [HEADER, *rows]))
    found = check_records(SOURCE, TASK, tmp_path)
    text = "\n".join(found.lines())
    assert found.refused is not None and found.settings["sheet"] == "Data 2024"
    assert "the sheet 'Cover' is read; the workbook also has 'Data 2024'" in text
    assert "the label 'Yes'" in text and "UNITS" in text and 'dates = "dd/mm/yyyy"' in text and "maybe" in text
    settings = {key: value for key, value in found.settings.items() if key != "values"}
    assert check_records(SOURCE.model_copy(update=settings), TASK, tmp_path).refused is None
    capitals = [name.title() for name in HEADER]
    write(tmp_path, ("Cover", [["Register of 2024"]]), ("Data 2024", [capitals, *rows]))
    assert check_records(SOURCE, TASK, tmp_path).settings["sheet"] == "Data 2024"


def test_without_openpyxl_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, ("Data", [HEADER, *ROWS]))
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingExtra, match=r"collegium\[excel\]"):
        load(SOURCE, TASK, data_root=tmp_path)
