"""`collegium party check`: what is unusual about an institution's records, said there and to nobody else."""

import tomllib
from pathlib import Path
from typing import NoReturn

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from support.typist import typed

from collegium.data.loading.loading import load
from collegium.data.loading.respelling import iso_date
from collegium.data.loading.sources import DataSource
from collegium.data.numbers import like_dates, read_numbers
from collegium.data.task import Task
from collegium.errors import DataError
from collegium.parties.checking import check_records

SCHEMA = """\
[task]
classes = ["benign", "malignant"]

[task.inputs]
kind = "table"
columns = [
    { kind = "number", name = "age", low = 0, high = 120 },
    { kind = "date", name = "seen", low = 2020-01-01, high = 2026-12-31 },
    { kind = "category", name = "ward", categories = ["North", "South"] },
]
"""
TASK = Task.model_validate(
    {
        "classes": ["benign", "malignant"],
        "inputs": {
            "kind": "table",
            "columns": [
                {"kind": "number", "name": "age", "low": 0, "high": 120},
                {"kind": "date", "name": "seen", "low": 18262, "high": 20818},
                {"kind": "category", "name": "ward", "categories": ["North", "South"]},
            ],
        },
    }
)
GOOD = "age,seen,ward,y\n40,2024-01-31,North,benign\n50,2024-02-01,South,malignant\n"


def checked(folder: Path, text: str, written_in: str = "utf-8", **settings: object) -> tuple[list[str], list[str]]:
    """The notes, and the lines that are printed."""
    (folder / "records.csv").write_bytes(text.encode(written_in))
    source = DataSource.model_validate({"source": str(folder / "records.csv"), **settings})
    found = check_records(source, TASK, None)
    return found.notes, found.lines()


def test_records_that_fit_have_nothing_to_look_at(tmp_path: Path) -> None:
    notes, lines = checked(tmp_path, GOOD)
    assert notes == []
    assert lines[:3] == ["records      2", "class        benign: 1", "class        malignant: 1"]
    assert lines[-2] == "these records can be served"


@pytest.mark.parametrize(
    ("right", "wrong", "note"),
    [
        ("40,", "9999,", "age: 1 above 120 (most 9999) of 2; values outside the range count as its end"),
        ("40,", "-1,", "age: 1 below 0 (least -1) of 2; values outside the range count as its end"),
        ("40,", "?,", "age: 1 missing of 2"),
        ("40,", "old,", "age: 1 value is no number (1 × 'old') of 2"),
        ("2024-01-31", "01/31/2024", "seen: dates are written as mm/dd/yyyy, if day and month are not swapped"),
        ("2024-01-31", "31 Jan", "seen: 1 value is no date (1 × '31 Jan') of 2"),
        ("North", "north ward", "ward: 1 of no known category (1 × 'north ward') of 2; the task has North, South"),
        ("North", "NORTH", "ward: 1 of no known category (1 × 'NORTH': North?) of 2"),
        (",benign", ",Begnin", "the label 'Begnin' of 1 record is no class: benign?"),
        (",benign", ",?", "1 record has no label"),
        (",benign", ",malignant", "ONE CLASS: all records are of the class malignant: they teach nothing else"),
        ("age,", "Age,", "there is no column age: is it Age?"),
        ("age,", "iq,", "there is no column age; the file also has iq"),
        (",y", ",diagnosis", "there is no label column y: is it diagnosis, by its values?"),
        ("ward,y", "seat,ward", "there is no label column y; the file also has age, seen, seat, ward"),
    ],
)
def test_each_oddity_is_told_with_its_count(tmp_path: Path, right: str, wrong: str, note: str) -> None:
    assert right in GOOD
    notes, _ = checked(tmp_path, GOOD.replace(right, wrong))
    assert note in notes


def test_records_without_a_label_are_counted_together_however_the_file_marks_them(tmp_path: Path) -> None:
    notes, _ = checked(tmp_path, GOOD + "41,2024-02-01,North,NA\n42,2024-02-02,South,?\n")
    assert [note for note in notes if "no label" in note] == ["2 records have no label"]


def test_the_settings_for_a_file_of_excel_are_named_and_then_mend_it(tmp_path: Path) -> None:
    excel = "Age;seen;ward;y\n40,5;31.01.2024;North;Benign\n50,5;01.02.2024;Süd;Malignant\n"
    _, lines = checked(tmp_path, excel, "cp1252")
    start = next(number for number, line in enumerate(lines) if line.startswith("set below [data]"))
    assert "the records would be taken then" in lines[start]
    assert sorted(line.strip() for line in lines[start + 1 : -2]) == [
        'classes = { "Benign" = "benign", "Malignant" = "malignant" }',
        'decimal = ","',
        'encoding = "cp1252"',
        'rename = { "Age" = "age" }',
        'separator = ";"',
        'values = { "ward" = { "Süd" = "?" } }',
    ]
    settings = {"separator": ";", "encoding": "cp1252", "decimal": ",", "rename": {"Age": "age"}}
    classes = {"Benign": "benign", "Malignant": "malignant"}
    notes, lines = checked(tmp_path, excel, "cp1252", classes=classes, **settings)
    assert notes == ["ward: 1 of no known category (1 × 'Süd') of 2; the task has North, South"]
    assert lines[-2] == "these records can be served"
    values = {"ward": {"Süd": "South"}}
    assert checked(tmp_path, excel, "cp1252", classes=classes, values=values, **settings)[0] == []


def test_a_column_that_the_institution_never_had_may_be_missing(tmp_path: Path) -> None:
    text = "seen,ward,y\n2024-01-31,North,benign\n2024-02-01,South,malignant\n"
    _, lines = checked(tmp_path, text)
    assert '    absent = "missing"' in lines and lines[-2].startswith("these records would be refused")
    _, lines = checked(tmp_path, text, absent="missing")
    assert lines[-2] == "these records can be served"


def test_a_column_of_another_name_is_to_be_renamed_and_not_silently_missing(tmp_path: Path) -> None:
    text = "patient,iq,seen,ward,y\np1,40,2024-01-31,North,benign\np2,40,2024-02-01,South,malignant\n"
    _, lines = checked(tmp_path, text)
    assert '    rename = { "iq" = "?" }' in lines and '    absent = "missing"' not in lines


def test_columns_that_all_have_other_names_are_all_offered_though_a_number_is_another_in_every_row(
    tmp_path: Path,
) -> None:
    text = "edad;visto;sala;y\n40,5;31.01.2024;norte;benign\n50,5;01.02.2024;norte;malignant\n"
    notes, lines = checked(tmp_path, text)
    assert "there is no column age; the file also has edad" in notes  # two numbers tell nothing of a range
    assert '    rename = { "visto" = "seen", "sala" = "ward", "edad" = "?" }' in lines


def test_renamed_columns_are_found_by_their_values_with_what_else_is_wrong_in_them(tmp_path: Path) -> None:
    """Nothing is left for a second check: the unit, the spellings and the dates behind the other names are told too."""
    rows = [
        f"{n};P{n // 2};{10 * (5 + 37 * n % 90)};{n % 28 + 1:02}/03/2024;{'sur' if n % 3 else 'NORTH'}"
        for n in range(50)
    ]
    rows = [f"{row};{'benign' if n % 2 else 'malignant'}" for n, row in enumerate(rows)]
    text = "numero;patient;edad;visto;sala;y\n" + "\n".join(rows) + "\n"
    notes, lines = checked(tmp_path, text)
    start = next(number for number, line in enumerate(lines) if line.startswith("set below [data]"))
    named = "\n".join(line.strip() for line in lines[start + 1 : -2])
    settings = tomllib.loads(named)
    assert settings["rename"] == {"edad": "age", "visto": "seen", "sala": "ward"}
    assert settings["scale"] == {"age": 0.1} and settings["dates"] == "dd/mm/yyyy"
    assert settings["values"] == {"ward": {"NORTH": "North", "sur": "?"}}
    assert "there is no column age: is it edad, by its values?" in notes
    assert checked(tmp_path, text, **settings)[1][-2] == "these records can be served"


def test_records_without_a_label_are_left_out_where_a_setting_says_so_and_are_counted(tmp_path: Path) -> None:
    text = GOOD + "41,2024-02-01,North,\n42,2024-02-01,South,unclear\n"
    classes = {"unclear": ""}
    notes, lines = checked(tmp_path, text, classes=classes)
    assert "2 records have no label" in notes and '    unlabelled = "leave-out"' in lines
    assert any("the records would be taken then" in line for line in lines)
    notes, lines = checked(tmp_path, text, unlabelled="leave-out", classes=classes)
    assert notes == ["2 records have no label, and count for nothing"]
    assert lines[-2] == "these records can be served" and not any("[data]" in line for line in lines)


def test_what_is_open_in_the_settings_is_not_told_as_a_fault_beside_them(tmp_path: Path) -> None:
    _, lines = checked(tmp_path, GOOD.replace("benign", "gut").replace("malignant", "schlecht"))
    assert any("the records would be taken then; put in place of" in line for line in lines)
    assert not any(line.startswith("even then") for line in lines)


def test_the_one_column_that_is_left_is_proposed_for_the_one_category_that_lacks_with_its_spellings(
    tmp_path: Path,
) -> None:
    text = GOOD.replace("ward", "Haus").replace("North", "Nordbau").replace("South", "Altbau")
    notes, lines = checked(tmp_path, text + "60,2024-02-02,Neubau,benign\n61,2024-02-02,Nordbau,benign\n")
    assert "there is no column ward: is it Haus, the only one left?" in notes
    three = "2 × 'Nordbau', 1 × 'Altbau', 1 × 'Neubau'"
    assert f"SPELLINGS: ward: 4 of no known category ({three}) of 4; the task has North, South" in notes
    assert any('"Haus" = "ward"' in line for line in lines)
    assert any('values = { "ward" = { "Nordbau" = "?", "Altbau" = "?", "Neubau" = "?" } }' in line for line in lines)


def test_a_number_of_32_bits_is_shown_as_it_was_written(tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": np.array([40.0, 121.81], dtype=np.float32), "seen": "2024-01-31", "ward": "North"})
    frame.assign(y=["benign", "malignant"]).to_parquet(tmp_path / "records.parquet")
    notes = check_records(DataSource(source=str(tmp_path / "records.parquet")), TASK, None).notes
    assert "age: 1 above 120 (most 121.81) of 2; values outside the range count as its end" in notes


def test_where_two_columns_fit_alike_nobody_guesses(tmp_path: Path) -> None:
    rows = [f"{20 + n},{24 + n},2024-01-31,North,{'benign' if n % 2 else 'malignant'}" for n in range(60)]
    notes, _ = checked(tmp_path, "score,points,seen,ward,y\n" + "\n".join(rows) + "\n")
    assert not any("by its values" in note for note in notes)
    assert "there is no column age; the file also has score, points" in notes


def test_equal_rows_are_told_beside_what_the_records_would_be_refused_for(tmp_path: Path) -> None:
    notes, lines = checked(tmp_path, GOOD.replace(",benign", ",") + GOOD.splitlines()[-1] + "\n")
    assert any("have no label" in note or "has no label" in note for note in notes)
    assert any(note.startswith("EQUAL ROWS: 2 rows") for note in notes) and lines[-2].startswith("these records would")


def test_the_wrong_label_column_is_told_in_a_few_lines(tmp_path: Path) -> None:
    rows = "".join(f"p{row},40,2024-01-31,North,benign\n" for row in range(300))
    notes, lines = checked(tmp_path, "patient,age,seen,ward,y\n" + rows, label="patient")
    assert notes[-1].startswith("300 different labels are no class: is patient the column of the class?")
    assert notes[-1].endswith("age, seen, ward, y") and len(lines) < 15
    assert not any(line.startswith("set below [data]") for line in lines)


def test_the_command_opens_no_socket_and_writes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr("socket.socket.__init__", refuse)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "records.csv").write_text(GOOD.replace("y\n", "diagnosis\n"))
    before = sorted(tmp_path.rglob("*"))
    asked = ["party", "check", "--schema", "schema.toml", "--data", "records.csv"]
    for options, status in ((["--label", "diagnosis"], 0), ([], 3)):
        code, out, err = typed(capsys, *asked, *options)
        assert code == status and not err and "Nothing was sent" in out
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("cap", "said"), [(1, True), (10_000, False)])
def test_more_records_than_the_cap_are_named_before_anything_is_paid(
    cap: int, said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.toml").write_text(f"{SCHEMA}\n[budget]\nepsilon = 1.0\nrecords_per_party = {cap}\n")
    (tmp_path / "records.csv").write_text(GOOD)
    _, out, _ = typed(capsys, "party", "check", "--schema", "schema.toml", "--data", "records.csv")
    assert (f"MORE RECORDS THAN THE CAP of {cap:,}" in out) == said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "which records?"),
        (["--data", "records.csv"], "which classes and columns?"),
        (["--data", "none.csv", "--schema", "schema.toml"], "there is no none.csv"),
        (["--data", "records.csv", "--schema", "other.toml"], "task: classes: is missing"),
        (["--data", "visits.db", "--schema", "schema.toml"], "named by its URL, sqlite:///visits.db, and a query"),
        (["--data", "sqlite:///visits.db", "--schema", "schema.toml"], "options: a database's URL (dialect://…) and a"),
        (
            ["--data", "sqlite:///visits.db", "--schema", "schema.toml", "--query", "SELECT 1 FROM nowhere"],
            "no such table: nowhere",
        ),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "other.toml").write_text('name = "trial"\n')
    (tmp_path / "visits.db").touch()
    (tmp_path / "records.csv").write_text(GOOD)
    status, out, err = typed(capsys, "party", "check", *arguments)
    assert status != 0 and words in err and len(err.splitlines()) == 1 and not out


def test_a_class_that_is_spelled_like_a_missing_value_is_a_spelling_all_the_same(tmp_path: Path) -> None:
    task = TASK.model_copy(update={"classes": ("none", "mild")})
    (tmp_path / "r.csv").write_text("age,seen,ward,y\n40,2024-01-31,North,NONE\n50,2024-02-01,South,mild\n")
    found = check_records(DataSource(source=str(tmp_path / "r.csv")), task, None)
    assert found.settings == {"classes": {"NONE": "none"}} and not found.even_then
    assert found.per_class == {"none": 1, "mild": 1}


def test_a_date_outside_its_range_is_shown_as_a_date(tmp_path: Path) -> None:
    notes, _ = checked(tmp_path, GOOD.replace("2024-01-31", "2019-05-04"))
    assert notes == ["seen: 1 below 2020-01-01 (least 2019-05-04) of 2; values outside the range count as its end"]


def many(ages: list[str], dates: list[str]) -> str:
    rows = [
        f'"{age}",{seen},North,{"benign" if n % 2 else "malignant"}'
        for n, (age, seen) in enumerate(zip(ages, dates, strict=True))
    ]
    return "age,seen,ward,y\n" + "\n".join(rows) + "\n"


def test_units_ten_times_too_large_are_said_loudly_with_the_factor_that_mends_them(tmp_path: Path) -> None:
    dates = [f"2024-01-{day:02}" for day in range(1, 25)]
    wrong = many([str(10 * (30 + day)) for day in range(24)], dates)
    notes, lines = checked(tmp_path, wrong)
    assert "UNITS: 100% of age lie outside 0 to 120 and would be clipped; times 0.1, 100% would lie within" in notes
    assert '    scale = { "age" = 0.1 }' in lines
    assert checked(tmp_path, wrong, scale={"age": 0.1})[0] == []
    few = many([str(30 + day + 100 * (day < 5)) for day in range(24)], dates)  # a few outliers are no other unit
    assert not any(note.startswith("UNITS") for note in checked(tmp_path, few)[0])


def test_all_faults_of_a_file_are_told_at_once_and_the_settings_mend_it(tmp_path: Path) -> None:
    """Another separator, a comma for decimals, points for thousands, slashes in dates, other spellings and units."""
    rows = [
        f"{1000 + 10 * n:,}".replace(",", ".") + f",5;{n + 1:02}/03/2024;NORTH;{'Benign' if n % 2 else 'Malignant'}"
        for n in range(20)
    ]
    text = "Age;seen;ward;y\n" + "\n".join(rows) + "\n"
    _, lines = checked(tmp_path, text)
    start = next(number for number, line in enumerate(lines) if line.startswith("set below [data]"))
    assert "the records would be taken then" in lines[start]
    named = {line.strip() for line in lines[start + 1 : -2]}
    assert named == {
        'separator = ";"',
        'decimal = ","',
        'thousands = "."',
        'dates = "dd/mm/yyyy"',
        'scale = { "age" = 0.1 }',
        'rename = { "Age" = "age" }',
        'values = { "ward" = { "NORTH" = "North" } }',
        'classes = { "Malignant" = "malignant", "Benign" = "benign" }',
    }
    settings = tomllib.loads("\n".join(named))
    assert checked(tmp_path, text, **settings)[0] == []
    examples = load(
        DataSource.model_validate({"source": str(tmp_path / "records.csv"), **settings}), TASK, data_root=None
    )
    assert examples.x[0, 0] == pytest.approx(100.05 / 120) and examples.x[0, 2] == pytest.approx((19783 - 18262) / 2556)


def test_commas_between_thousands_are_not_taken_for_decimal_commas_with_another_unit(tmp_path: Path) -> None:
    task = Task.model_validate(
        {
            "classes": ["no", "yes"],
            "inputs": {
                "kind": "table",
                "columns": [
                    {"kind": "number", "name": "platelets", "low": 20_000, "high": 500_000},
                    {"kind": "number", "name": "albumin", "low": 15, "high": 55},
                ],
            },
        }
    )
    for mark, decimal in ((",", "."), (".", ",")):
        rows = [
            f"{200_000 + 1000 * n:,}\t{30 + n / 10}\t{'yes' if n % 2 else 'no'}".translate({44: mark, 46: decimal})
            for n in range(20)
        ]
        (tmp_path / "records.tsv").write_text("platelets\talbumin\ty\n" + "\n".join(rows) + "\n")
        source = DataSource(source=str(tmp_path / "records.tsv"), separator="\t", decimal=decimal)
        found = check_records(source, task, None)
        assert found.settings == {"thousands": mark} and not any("UNITS" in note for note in found.notes)
        given = DataSource(source=source.source)  # nothing said yet
        assert check_records(given, task, None).settings.get("decimal", ".") == decimal
        with pytest.raises(DataError, match=f"where thousands are set apart, set thousands = '{mark}' beside source"):
            load(source, task, data_root=None)
        examples = load(source.model_copy(update={"thousands": mark}), task, data_root=None)
        assert examples.x[0, 0] == pytest.approx(180 / 480)  # 200,000, and not 200


def test_columns_and_classes_that_are_still_to_be_named_raise_no_loud_alarm(tmp_path: Path) -> None:
    """A column of numbers under another name repeats its values, and is no identifier of persons."""
    rows = [f"{30 + n % 7},{n % 5 + 100},{'gutartig' if n % 2 else 'Malignant'},P{n // 2}" for n in range(40)]
    notes, _ = checked(tmp_path, "Lebensjahre,Station,y,Patient\n" + "\n".join(rows) + "\n")
    assert not any(note.startswith("ONE CLASS") for note in notes)
    loud = [note for note in notes if note.startswith("REPEATED IDENTIFIER")]
    assert len(loud) == 1 and "Patient has 20 values in 40 rows" in loud[0]


def test_behind_a_wrong_label_column_the_other_faults_are_told_too(tmp_path: Path) -> None:
    text = GOOD.replace(",y\n", ",outcome\n") + "40,2024-01-31,North,benign\n" * 2
    notes, lines = checked(tmp_path, text, label="outcom")
    assert '    label = "outcome"' in lines and "class        benign: 3" in lines
    assert any(note.startswith("EQUAL ROWS: 3 rows") for note in notes)


def test_what_the_settings_do_not_mend_is_told_beside_them(tmp_path: Path) -> None:
    _, lines = checked(tmp_path, GOOD.replace("40,", "old,").replace(",benign", ",Benign"))
    assert any("would still be refused" in line for line in lines)
    assert any(line.startswith("even then: ") and "is no number" in line for line in lines)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"thousands": ",", "decimal": ","}, "both ','"),
        ({"scale": {"age": 0}}, "positive factor"),
        ({"dates": "yy"}, "dd/mm/yyyy"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        DataSource.model_validate({"source": "a.csv", **settings})


DAY = 20306  # 6 August 2025


@pytest.mark.parametrize(
    "text",
    ["2025-08-06", "2025/08/06", "2025/8/6", "06.08.2025", "06-Aug-2025", "6 Aug 2025", "06AUG2025", "6. August 2025",
     "6 aug 2025 14:30", "2025-08-06T14:30:00", "Aug 6, 2025", "August 6, 2025", "Aug. 6th 2025", "2025.08.06",
     "Aug 6, 2025, 2:30 PM", "20250806"],
)  # fmt: skip
def test_a_date_whose_day_and_month_nobody_can_swap_is_read_without_a_setting(text: str) -> None:
    numbers, unread = read_numbers(pd.Series([text]), dates=True)
    assert not unread and numbers.tolist() == [DAY]


@pytest.mark.parametrize(
    "text",
    ["6 Okt 2025", "06-Aug-25", "31 Feb 2025", "2025/13/01", "6 Ma 2025", "2025-08/06", "06/08/2025", "6 2025",
     "Aug 32, 2025", "Au 6, 2025"],
)  # fmt: skip
def test_another_text_is_no_date(text: str) -> None:
    assert read_numbers(pd.Series([text]), dates=True)[1] == [text]


def test_months_have_english_names_whatever_the_machine_speaks(tmp_path: Path) -> None:
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    numbers, unread = read_numbers(pd.Series([f"01-{month}-2025" for month in months]), dates=True)
    dates = pd.to_datetime(pd.Series(numbers), unit="D")
    assert not unread and dates.dt.month.tolist() == list(range(1, 13))
    written = GOOD.replace("2024-01-31", "31-Jan-2024").replace("2024-02-01", "1 Feb 2024")
    assert checked(tmp_path, written)[0] == []


@pytest.mark.parametrize(
    "unread", ["6. März 2025", "06.08.25", "Mi, 6.8.2025", "Juin 6, 2025", "2025-Aug-06", "8/25/25"]
)
def test_dates_that_cannot_be_read_are_loudly_so_and_no_categories(tmp_path: Path, unread: str) -> None:
    notes, lines = checked(tmp_path, GOOD.replace("2024-01-31", f'"{unread}"').replace("2024-02-01", f'"{unread}"'))
    assert notes[0] == f"UNREAD DATES: seen has dates such as {unread!r}: write them as 2026-01-31"
    assert any("would be refused" in line for line in lines)
    notes, _ = checked(tmp_path, GOOD.replace("North", f'"{unread}"').replace("South", f'"{unread}"'))
    assert notes[0] == f"DATES: ward has dates such as {unread!r}, but is a category: tell the operator"


def test_numbers_ranges_and_names_do_not_look_like_dates() -> None:
    assert not any(like_dates([text]) for text in ("12.5", "10-20", "E11.9", "ward 3", "2025", "May", "Unit 12", "1/2"))


def test_dates_with_dashes_are_read_as_the_setting_for_slashes_says(tmp_path: Path) -> None:
    text = GOOD.replace("2024-01-31", "31-01-2024").replace("2024-02-01", "01-02-2024")
    notes, lines = checked(tmp_path, text)
    assert "seen: dates are written as dd/mm/yyyy, if day and month are not swapped" in notes
    assert '    dates = "dd/mm/yyyy"' in lines and checked(tmp_path, text, dates="dd/mm/yyyy")[0] == []
    assert any('set dates = "dd/mm/yyyy" or "mm/dd/yyyy" beside source' in line for line in lines)


@pytest.mark.parametrize("first", [0, 1, 40])
def test_row_numbers_without_a_name_are_no_column(tmp_path: Path, first: int) -> None:
    """Nothing is proposed of them, and they hide no rows that are equal."""
    header, *rows = [*GOOD.replace("50,", "40,").splitlines(), "40,2024-01-31,North,benign"]
    text = "\n".join([f",{header}", *(f"{first + 2 * n},{row}" for n, row in enumerate(rows))]) + "\n"
    notes, lines = checked(tmp_path, text)
    assert notes[0] == "a column without a name numbers the rows: it is not used"
    assert notes[1].startswith("EQUAL ROWS: 2 rows") and len(notes) == 2
    assert lines[-2] == "these records can be served"
    notes, lines = checked(tmp_path, text.replace("age,", "edad,"))
    assert '    rename = { "edad" = "?" }' in lines


def test_one_column_tells_how_the_file_writes_the_thousands_of_another(tmp_path: Path) -> None:
    """Of 23.456 alone it made thousandths with another unit, and the settings did not mend the file."""
    rows = [f"{30 + n},5;{2 * n};{20 + n}.{'000' if n % 2 else '500'};{'yes' if n % 3 else 'no'}" for n in range(40)]
    (tmp_path / "stays.csv").write_text("\n".join(["age;days;income;y", *rows]), encoding="utf-8")
    found = check_records(DataSource(source=str(tmp_path / "stays.csv")), STAYS, None)
    assert found.settings == WRITTEN and not found.notes and not found.even_then
    mended = DataSource.model_validate({"source": str(tmp_path / "stays.csv"), **found.settings})
    assert load(mended, STAYS, data_root=None).x[0].tolist() == pytest.approx([12.5 / 78, 0, 0, 0, 12500 / 88000, 0])


def test_a_date_with_slashes_is_read_by_day_or_month_first_and_no_other_text_is_touched() -> None:
    assert iso_date("17/03/2016", "dd/mm/yyyy") == iso_date("3/17/2016", "mm/dd/yyyy") == "2016-03-17"
    assert iso_date("2016-03-17", "dd/mm/yyyy") == "2016-03-17" and iso_date("soon", "dd/mm/yyyy") == "soon"


STAYS = Task.model_validate(
    {
        "classes": ["no", "yes"],
        "inputs": {
            "kind": "table",
            "columns": [
                {"kind": "number", "name": "age", "low": 18, "high": 96},
                {"kind": "number", "name": "days", "low": 0, "high": 150},
                {"kind": "number", "name": "income", "low": 8000, "high": 96000},
            ],
        },
    }
)

WRITTEN = {"separator": ";", "decimal": ",", "thousands": "."}


def stays(folder: Path, header: str, **settings: object) -> tuple[list[str], DataSource]:
    """The notes on a file of 60 people with thousands set apart, and how it is read with what is proposed."""
    rows = (f"{20 + n};{2 * n};{20 + n}.{'000' if n % 2 else '500'};{'yes' if n % 3 else 'no'}" for n in range(60))
    (folder / "stays.csv").write_text("\n".join([f"{header};y", *rows]), encoding="utf-8")
    source = DataSource.model_validate({"source": str(folder / "stays.csv"), **WRITTEN, **settings})
    found = check_records(source, STAYS, None)
    assert not found.even_then
    return found.notes, source.model_copy(update=found.settings)


def test_swapped_columns_are_told_and_the_settings_put_them_back(tmp_path: Path) -> None:
    _, right = stays(tmp_path, "age;days;income")
    expected = load(right, STAYS, data_root=None).x
    notes, mended = stays(tmp_path, "days;age;income")
    assert "SWAPPED: age and days fit the range of the other better than their own" in notes
    assert mended.rename == {"age": "days", "days": "age"}
    assert (load(mended, STAYS, data_root=None).x == expected).all()
    notes, mended = stays(tmp_path, "stay;years;income", rename={"years": "age", "stay": "days"})
    assert (load(mended, STAYS, data_root=None).x == expected).all(), "by the file's own names"
    notes, _ = stays(tmp_path, "age;days;income")
    assert not any("SWAPPED" in note for note in notes)


def test_a_mark_of_a_missing_number_is_proposed_and_leaves_thousands_alone(tmp_path: Path) -> None:
    """A value of 24.000 became 24 as soon as `values` named anything of its column."""
    _, mended = stays(tmp_path, "age;days;income")
    expected = load(mended, STAYS, data_root=None).x
    text = (tmp_path / "stays.csv").read_text(encoding="utf-8")
    (tmp_path / "stays.csv").write_text(f"{text}\n30;10;k.A.;yes\n", encoding="utf-8")
    found = check_records(mended, STAYS, None)
    assert found.settings == {"values": {"income": {"k.A.": ""}}} and not found.even_then
    read = load(mended.model_copy(update=found.settings), STAYS, data_root=None).x
    assert (read[:-1] == expected).all() and read[-1, 5] == 1, "the last one is missing"


def test_texts_that_are_most_of_a_column_are_no_marks_of_missing_numbers(tmp_path: Path) -> None:
    _, lines = checked(tmp_path, GOOD.replace("40,", "old,").replace("50,", "young,"))
    assert not any('"old" = ""' in line for line in lines)


def test_codes_of_a_missing_number_are_told_and_the_settings_make_them_missing(tmp_path: Path) -> None:
    """They were clipped to the range's end, in one line among equals."""
    _, right = stays(tmp_path, "age;days;income")
    text = (tmp_path / "stays.csv").read_text(encoding="utf-8")
    for code in ("-1", "-99", "999"):
        (tmp_path / "stays.csv").write_text(text + f"\n{code};10;30.000;yes" * 2, encoding="utf-8")
        found = check_records(right, STAYS, None)
        assert f"CODE: age is {code} in 2 rows, which may say that it is missing" in found.notes
        assert found.settings == {"values": {"age": {code: ""}}}
        read = load(right.model_copy(update=found.settings), STAYS, data_root=None).x
        assert (read[-2:, 1] == 1).all() and not read[:-2, 1].any()
    for row in ("99;10;30.000;yes", "98;999;30.000;yes\n5;10;30.000;no"):  # 99 is old, and no number comes twice
        (tmp_path / "stays.csv").write_text(f"{text}\n{row}", encoding="utf-8")
        assert not any("CODE" in note for note in check_records(right, STAYS, None).notes)


def test_two_columns_of_one_name_are_told(tmp_path: Path) -> None:
    text = "age,seen,ward,age,y\n40,2024-01-31,North,41,benign\n50,2024-02-01,South,51,malignant\n"
    assert "TWO COLUMNS are called age: the first one is read" in checked(tmp_path, text)[0]


def test_a_unit_in_both_names_decides_between_columns_that_fit_alike(tmp_path: Path) -> None:
    km = {"kind": "number", "low": 0.2, "high": 64}
    days = {"kind": "number", "low": 0, "high": 150}
    columns = [km | {"name": "distance_km"}, days | {"name": "waiting_days"}]
    task = Task.model_validate({"classes": ["no", "yes"], "inputs": {"kind": "table", "columns": columns}})
    rows = [f"{0.5 + 60 * (n / 50) ** 6:.1f},{n * n // 19},{'yes' if n % 2 else 'no'}" for n in range(50)]
    (tmp_path / "far.csv").write_text("\n".join(["Weg km,Wartezeit,y", *rows]), encoding="utf-8")
    found = check_records(DataSource(source=str(tmp_path / "far.csv")), task, None)
    assert found.settings["rename"] == {"Weg km": "distance_km", "Wartezeit": "waiting_days"}
