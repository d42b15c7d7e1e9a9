"""Files as institutions have them: separators, encodings, decimal commas, other names; and what is said of each."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from collegium.data import DataSource, Examples, load
from collegium.data.task import CategoryColumn, NumberColumn, TableInputs, Task
from collegium.errors import ColumnMissing, DataError

TASK = Task(
    classes=("ja", "nein"),
    inputs=TableInputs(
        columns=(NumberColumn(name="age", low=0, high=100), CategoryColumn(name="ward", categories=("Süd", "Nord")))
    ),
)
PLAIN = "age,ward,y\n40.5,Süd,ja\n?,Nord,nein\n"


def written(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "records.csv"
    path.write_bytes(text.encode(encoding))
    return path


def read(path: Path, **settings: object) -> Examples:
    return load(DataSource.model_validate({"source": str(path), **settings}), TASK, data_root=None)


def same(one: Examples, other: Examples) -> bool:
    return np.array_equal(one.x, other.x) and one.labels().tolist() == other.labels().tolist()


def test_settings_make_another_form_of_the_same_records_equal(tmp_path: Path) -> None:
    plain = read(written(tmp_path, PLAIN))
    excel = "Alter;ward;Befund\n40,5;Süd;JA\n;Nord;Nein\n"
    settings = {
        "separator": ";",
        "encoding": "cp1252",
        "decimal": ",",
        "rename": {"Alter": "age"},
        "classes": {"JA": "ja", "Nein": "nein"},
        "label": "Befund",
    }
    assert same(read(written(tmp_path, excel, "cp1252"), **settings), plain)


def test_renaming_and_spellings_give_no_record_another_identity(tmp_path: Path) -> None:
    """A party counts what a record has spent by its identity, which must not begin anew with a setting."""
    before = read(written(tmp_path, PLAIN.replace("age", "Alter")), rename={"Alter": "age"})
    again = read(
        written(tmp_path, PLAIN.replace("age", "Alter").replace(",ja", ",JA")),
        rename={"Alter": "age"},
        classes={"JA": "ja"},
    )
    absent = read(written(tmp_path, PLAIN.replace("age", "Alter")), absent="missing")
    for other in (again, absent):
        (ours, scheme), (theirs, same) = other.lasting_identities(""), before.lasting_identities("")
        assert scheme == same and list(ours) == list(theirs)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_marks_of_byte_order_are_no_part_of_a_name(tmp_path: Path, encoding: str) -> None:
    named = {"encoding": "utf-16"} if encoding == "utf-16" else {}
    assert same(read(written(tmp_path, PLAIN, encoding), **named), read(written(tmp_path, PLAIN)))


def test_an_absent_column_is_missing_in_every_record_where_the_settings_say_so(tmp_path: Path) -> None:
    path = written(tmp_path, "ward,y\nSüd,ja\n")
    with pytest.raises(ColumnMissing, match=r'no column age; there are ward, y: .*absent = "missing"'):
        read(path)
    assert read(path, absent="missing").x.tolist() == [[0, 1, 1, 0, 0]]
    with pytest.raises(ColumnMissing):  # a file of something else is no file of missing values
        read(written(tmp_path, "y\nja\n"), absent="missing")


@pytest.mark.parametrize(
    ("text", "encoding", "settings", "words"),
    [
        ("age;ward;y\n1;Nord;ja\n", "utf-8", {}, "no ',' but ';': set separator = \";\" beside source"),
        (PLAIN, "cp1252", {}, 'not written in utf-8: set encoding = "cp1252" or "utf-16" beside source'),
        ("age;ward;y\n40,5;Nord;ja\n", "utf-8", {"separator": ";"}, 'age: 1 value .* set decimal = "," beside source'),
        ("age;ward;y\n4.500,5;Nord;ja\n", "utf-8", {"separator": ";", "decimal": ","}, "age: 1 value .* correct them"),
        ("age;ward;y\n40.5;Nord;ja\n", "utf-8", {"separator": ";", "decimal": ","}, "age: 1 value is no number"),
        (PLAIN.replace("ja", "Ja"), "utf-8", {}, "no class 'Ja'.*set classes = "),
        (PLAIN, "utf-8", {"rename": {"Alter": "age"}}, "rename names 'Alter', but there are age, ward, y"),
        (PLAIN, "utf-8", {"rename": {"y": "age"}}, "two columns are called 'age'"),
        ("age,ward,y\n1,Nord,ja\n1,Nord,ja,x,y\n", "utf-8", {}, "line 3 has 5 values, but the lines before it have 3"),
        ('age,ward,y\n1,"Nord,ja\n', "utf-8", {}, "a quotation mark is opened and never closed"),
        ("", "utf-8", {}, "it is empty"),
    ],
)
def test_what_is_wrong_is_said_in_plain_words_with_the_setting_that_helps(
    tmp_path: Path, text: str, encoding: str, settings: dict[str, object], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        read(written(tmp_path, text, encoding), **settings)


@pytest.mark.parametrize("settings", [{"separator": ""}, {"encoding": "klingon"}, {"decimal": ";"}, {"absent": "skip"}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        DataSource.model_validate({"source": "records.csv", **settings})
