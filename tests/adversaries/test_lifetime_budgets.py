"""A record that has spent its budget stays out, whatever task the coordinator sends and however its file is read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.record_votes import KEY, Clinic, plane

from collegium.data import DataSource, Examples, load
from collegium.data.loading.loading import read_records
from collegium.data.loading.row_digests import row_digests
from collegium.data.task import NumberColumn, TableInputs, Task
from collegium.errors import ConfigurationError
from collegium.parties.answer_book import AnswerBook
from collegium.parties.neighbours.budgets import RecordBudgets
from collegium.parties.party import Party, unrestricted
from collegium.parties.policy import PolicyConfig
from collegium.protocol.replies import Counts, Failure
from collegium_accounting.mechanisms import RecordBudget

PLAIN = DataSource(source="a.csv")
"""Settings as they are by default."""
EVERYTHING = 10**6
"""A squared radius that holds every record."""
ROWS = 30


def file_of(folder: Path, *, labels: str = "yn", extra: str = "") -> Path:
    path = folder / "records.csv"
    lines = [f"{x[0]:.6f},{x[2]:.6f},{labels[n % 2]}" for n, x in enumerate(plane(ROWS, 1))]
    if extra:
        lines = [f"{line},{n // 2}" for n, line in enumerate(lines)]
    path.write_text("\n".join([f"a,b,y{',' + extra if extra else ''}", *lines]) + "\n")
    return path


def task(classes: tuple[str, ...] = ("y", "n"), high: float = 1.0) -> Task:
    return Task(
        classes=classes,
        inputs=TableInputs(columns=tuple(NumberColumn(name=name, low=0.0, high=high) for name in "ab")),
    )


def voters(clinic: Clinic, folder: Path, wanted: Task, source: DataSource, *, ledger: str) -> int | str:
    """How many records still vote on one question when every record may do so once; or why none is asked."""
    examples = load(source, wanted, data_root=folder)
    clinic.party = Party(
        "clinic",
        examples,
        wanted,
        folder=folder,
        pools=clinic.pools,
        split_key=KEY,
        policy=unrestricted,
        record_rho=1 / (2 * 10.0**2),
    )
    near: dict[str, Any] = {"participations": 1, "radius_squared": EVERYTHING, "classes": len(wanted.classes)}
    answer = clinic.ask(clinic.question((4,), ledger_id=ledger, **near))
    return int(answer.counts.sum()) if isinstance(answer, Counts) else str(answer.message)


@pytest.mark.parametrize(
    ("wanted", "labels"),
    [
        (task(), "yn"),
        (task(classes=("n", "y")), "yn"),
        (task(classes=("n", "other", "y")), "yn"),
        (task(high=2.0), "yn"),
        (task(), "ny"),
    ],
    ids=["the same", "another order of classes", "one more class", "another range", "corrected labels"],
)
def test_no_task_and_no_correction_gives_a_record_a_second_budget(tmp_path: Path, wanted: Task, labels: str) -> None:
    clinic, source = Clinic(tmp_path), DataSource(source=str(file_of(tmp_path)))
    assert voters(clinic, tmp_path, task(), source, ledger="first") == ROWS
    file_of(tmp_path, labels=labels)
    assert voters(clinic, tmp_path, wanted, source, ledger="second") == 0


@pytest.mark.parametrize("counter", ["", "row", "Index", "lfd. Nr."])
def test_an_export_in_another_order_gives_no_record_a_second_budget(tmp_path: Path, counter: str) -> None:
    """Planted once: the number of a row in the file was part of what a record is known by."""

    def export(order: list[int], decimal: str, digits: int) -> DataSource:
        values = plane(ROWS, 1).round(4)
        rows = [
            f"{place};{values[n][0]:.{digits}f};{values[n][2]:.{digits}f};{'yn'[n % 2]}".replace(".", decimal)
            for place, n in enumerate(order)
        ]
        (tmp_path / "records.csv").write_text("\n".join([f"{counter};a;b;y", *rows]) + "\n", encoding="utf-8")
        return DataSource.model_validate(
            {"source": str(tmp_path / "records.csv"), "separator": ";", "decimal": decimal}
        )

    clinic, ordered = Clinic(tmp_path), list(range(ROWS))
    assert voters(clinic, tmp_path, task(), export(ordered, ",", 5), ledger="first") == ROWS
    for number, another in enumerate([(ordered[::-1], ",", 5), (ordered, ".", 6), ([*ordered[1:], 0, 0], ",", 5)]):
        assert voters(clinic, tmp_path, task(), export(*another), ledger=f"again-{number}") == 0


@pytest.mark.parametrize("within", [0, 1])
def test_another_scheme_is_refused_whether_or_not_a_record_was_near(tmp_path: Path, within: int) -> None:
    """Planted once: a scheme that was kept only where some record had paid, which the refusal told."""
    names, book = [b"%d" % number for number in range(9)], AnswerBook(tmp_path, "clinic", PolicyConfig(), None)
    budgets = RecordBudgets(book, "records", KEY, names, "rows of task one", 1.0)
    with budgets.transaction("run", RecordBudget(1, 1, 0.001)) as spending:
        spending.admit(np.arange(within), np.ones(within, dtype=np.int64))
    with pytest.raises(ConfigurationError, match="every record would get a new budget"):
        RecordBudgets(book, "records", KEY, names, "rows of task two", 1.0)


@pytest.mark.parametrize("group", [None, "patient"])
def test_another_scheme_is_refused_while_budgets_are_spent(tmp_path: Path, group: str | None) -> None:
    """A new column, or a group that was not named before, would make every record somebody new."""
    clinic = Clinic(tmp_path)
    assert voters(clinic, tmp_path, task(), DataSource(source=str(file_of(tmp_path))), ledger="first") == ROWS
    source = DataSource(source=str(file_of(tmp_path, extra="patient")), group=group)
    refused = voters(clinic, tmp_path, task(), source, ledger="second")
    assert isinstance(refused, str) and "every record would get a new budget" in refused
    assert voters(clinic, tmp_path, task(), DataSource(source=str(file_of(tmp_path))), ledger="second") == 0


def test_arrays_alone_are_bound_to_the_task_that_encoded_them(tmp_path: Path) -> None:
    clinic = Clinic(tmp_path)
    assert isinstance(clinic.ask(clinic.question((4,), radius_squared=EVERYTHING)), Counts)
    other = Task(classes=("x", "y"), inputs=task().inputs)
    examples = Examples(plane(ROWS, 1), np.zeros(ROWS, dtype=np.int64))
    kept = {"folder": tmp_path, "pools": clinic.pools, "split_key": KEY}
    clinic.party = Party("clinic", examples, other, policy=unrestricted, record_rho=1.0, **kept)
    answer = clinic.ask(clinic.question((4,), radius_squared=EVERYTHING, classes=2))
    assert isinstance(answer, Failure) and "another task" in answer.message


@pytest.mark.parametrize(
    "spellings",
    [
        ["0.00001", "1e-05", "0,00001", "+.00001", "1.0E-5"],
        ["0", "-0", "-0.0", "-0,00", "+0"],
        ["1234.5", "1,234.50", "1.234,5", "1 234,5", "1'234.5", "01234.5"],
        ["1234567", "1.234.567", "1,234,567", "1\u00a0234\u00a0567"],
        ["0.3", "0.30000000000000004"],
        ["1", "True", "TRUE", "true"],
        ["", "NA", "NaN", "null", "?"],
        ["2026-01-31", "2026-01-31 00:00", "2026-01-31T00:00:00Z", "2026-01-31 00:00:00.000000+00:00"],
        ["2026-01-31", "31.01.2026", "31.1.2026 00:00", "31-Jan-2026", "Jan 31, 2026", "2026/01/31", "20260131"],
        ["2026-01-31 10:00", "2026-01-31T10:00:00", "2026-01-31 10:00:00.000", "2026-01-31T10:00:00+00:00"],
        ["2026-01-31 13:05", "31.01.2026, 13:05:00", "Jan 31, 2026 1:05 PM", "2026-01-31 01:05 p.m."],
        ["00:05", "0:05", "00:05:00", "12:05 AM"],
        ["inf", "Inf", "Infinity", "+inf", "1e999"],
        ["0.1", "0.10000000149011612", "0.100000001490116"],
        ["123456784", "123456784.0", "1.2345678e+08", "123456780"],
        ["M\u00fcller", "Mu\u0308ller", " M\u00fcller "],
    ],
)
def test_no_spelling_of_another_program_gives_a_record_a_second_budget(spellings: list[str]) -> None:
    digests, _ = row_digests(pd.DataFrame({"a": spellings}), None, PLAIN)
    assert len(set(digests.tolist())) == 1


@pytest.mark.parametrize(
    ("settings", "spellings"),
    [
        ({"thousands": ","}, ["1,234", "1234", "1234.0", "1,234.00"]),
        ({"thousands": ".", "decimal": ","}, ["1.234", "1234", "1234,0", "1.234,00"]),
        ({"thousands": ".", "decimal": ","}, ["200.000", "200000"]),
        ({"dates": "dd/mm/yyyy"}, ["03/04/2026", "3-4-2026", "2026-04-03", "3.4.2026"]),
        ({"dates": "mm/dd/yyyy"}, ["03/04/2026", "2026-03-04", "3/4/2026 0:00", "3/4/2026 12:00 AM"]),
        ({"dates": "mm/dd/yyyy"}, ["3/4/2026 9:05", "2026-03-04 09:05:00"]),
    ],
)
def test_a_number_or_date_that_the_settings_read_is_the_same_however_it_is_written(
    settings: dict[str, str], spellings: list[str]
) -> None:
    how, frame = DataSource.model_validate({"source": "a.csv", **settings}), pd.DataFrame({"a": spellings})
    (digests, made_of), (others, plainly) = row_digests(frame, None, how), row_digests(frame, None, PLAIN)
    assert len(set(digests.tolist())) == 1 < len(set(others.tolist()))
    assert made_of != plainly  # the same text is another value, so these are no budgets of the other


@pytest.mark.parametrize(
    ("settings", "text"), [({"thousands": ".", "decimal": ","}, "1,234"), ({"thousands": ","}, "1.234"), ({}, "1.234")]
)
def test_a_number_that_no_text_holds_has_no_mark_of_thousands(
    settings: dict[str, str], text: str, tmp_path: Path
) -> None:
    """The same record as CSV, workbook, Parquet and rows of a database, while the settings stay."""
    files = [tmp_path / name for name in ("a.csv", "a.xlsx", "floats.parquet", "decimals.parquet", "a.db")]
    for file, value in zip(files, [text, 1.234, 1.234, Decimal("1.234"), 1.234], strict=True):
        frame = pd.DataFrame({"a": [value], "b": ["20.000"], "y": ["y"]})
        if file.suffix == ".db":
            with closing(sqlite3.connect(file)) as connection:
                frame.to_sql("a", connection, index=False)
        else:
            options = {"sep": ";"} if file.suffix == ".csv" else {}
            getattr(frame, {".csv": "to_csv", ".xlsx": "to_excel"}.get(file.suffix, "to_parquet"))(
                file, index=False, **options
            )
    known = set()
    for file in files:
        query = {"source": f"sqlite:///{file}", "query": "SELECT * FROM a"} if file.suffix == ".db" else {}
        source = DataSource.model_validate({"source": str(file), "separator": ";", **settings, **query})
        frame = read_records(source, task(), None).frame[["a", "b"]]
        known.add(row_digests(frame, None, source)[0].tobytes())
    assert len(known) == 1


def test_digits_that_a_program_rounds_away_give_no_record_a_second_budget() -> None:
    """Planted once: 15 digits of every number; of some, these are others once a program kept 16."""
    values = np.random.default_rng(3).normal(size=2000)
    exports = [[form % value for value in values] for form in ("%.17g", "%.16G", "%.15g")]
    assert len({row_digests(pd.DataFrame({"a": texts}), None, PLAIN)[0].tobytes() for texts in exports}) == 1
    whole = [f"{2**40 + number}" for number in range(2000)]
    assert len(set(row_digests(pd.DataFrame({"a": whole}), None, PLAIN)[0].tolist())) == 2000


def test_what_fills_a_field_of_fixed_width_gives_no_record_a_second_budget() -> None:
    """A column that a reader holds as texts alone has one spelling for each text, and one of mixed types for each."""
    alike = [pd.Series(["b", "b\0\0"], dtype=dtype) for dtype in ("object", "string", "str")]
    assert len({one for values in alike for one in row_digests(values.to_frame("a"), None, PLAIN)[0].tolist()}) == 1


def test_different_values_are_different_records_under_every_way_to_read_them() -> None:
    values = ["1.234", "1234", "12.34", "1", "2026-01-31", "2026-01-30", "2026-01-31 10:00", "a", ""]
    for settings in ({}, {"thousands": ","}, {"dates": "dd/mm/yyyy"}, {"thousands": "'"}):
        how = DataSource.model_validate({"source": "a.csv", **settings})
        assert len(set(row_digests(pd.DataFrame({"a": values}), None, how)[0].tolist())) == len(values)


def test_no_correction_of_how_numbers_are_read_gives_records_a_second_budget(tmp_path: Path) -> None:
    """1,234 was read as 1.234, and is read as 1234 now: the same text is another value."""
    clinic, file = Clinic(tmp_path), tmp_path / "records.csv"
    file.write_text("a;b;y\n" + "".join(f"{n},123;{n},456;{'yn'[n % 2]}\n" for n in range(1, ROWS + 1)))
    comma = {"source": str(file), "separator": ";", "decimal": ","}
    assert voters(clinic, tmp_path, task(), DataSource.model_validate(comma), ledger="first") == ROWS
    corrected = DataSource(source=str(file), separator=";", thousands=",")
    refused = voters(clinic, tmp_path, task(), corrected, ledger="second")
    assert isinstance(refused, str) and "other thousands or dates in the settings" in refused


def test_budgets_of_a_book_that_knew_records_otherwise_are_refused(tmp_path: Path) -> None:
    book = AnswerBook(tmp_path, "clinic", PolicyConfig(), None)
    examples = load(DataSource(source=str(file_of(tmp_path))), task(), data_root=None)
    identities, scheme = examples.lasting_identities("")
    before = RecordBudgets(book, "records", KEY, [b"a"], scheme.replace("values as read of", "values of"), 1.0)
    with before.transaction("run", RecordBudget(1, 1, 0.001)):
        pass
    with pytest.raises(ConfigurationError, match="another version of Collegium"):
        RecordBudgets(book, "records", KEY, identities, scheme, 1.0)


def test_no_kind_of_number_in_a_file_gives_a_record_a_second_budget() -> None:
    texts = row_digests(pd.DataFrame({"a": ["0.1", "NA", "3"], "b": ["1", "0", ""]}), None, PLAIN)
    for kind in ("float32", "Float32", "float64", "Float64"):
        given = {"a": pd.array([0.1, None, 3], dtype=kind), "b": pd.array([True, False, None], dtype="boolean")}
        frame = pd.DataFrame(given)
        digests, of = row_digests(frame, None, PLAIN)
        assert digests.tolist() == texts[0].tolist() and of == texts[1]
    none = pd.DataFrame(index=range(2))
    vectors = np.array([[1.0, -0.0], [2.0, 3.0]])
    kinds = [vectors.astype(kind) for kind in ("f2", "f4", "f8", "i1", "i8")]
    assert len({row_digests(none, given, PLAIN)[0].tobytes() for given in kinds}) == 1


def test_columns_whose_names_are_numbers_count() -> None:
    frame = pd.DataFrame([[1, 2], [3, 4]])
    assert row_digests(frame, None, PLAIN)[1] == row_digests(frame.rename(columns=str), None, PLAIN)[1]
