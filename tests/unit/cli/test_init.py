"""`collegium init`: what it writes of a public file is a configuration, with the columns as they are in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from support.typist import typed

from collegium.coordinator.settings.consortium import ConsortiumConfig, read_consortium
from collegium.coordinator.settings.run_config import load_public

ROWS = 60


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    born = pd.to_datetime("1950-01-01") + pd.to_timedelta(rng.integers(0, 9000, ROWS), "D")
    return pd.DataFrame(
        {
            "patient": range(1000, 1000 + ROWS),
            "name": [f"n{number}" for number in range(ROWS)],
            "born": born.strftime("%d.%m.%Y"),
            "weight": [f"{value:.1f}".replace(".", ",") for value in rng.uniform(40, 99, ROWS)],
            "height": rng.integers(150, 200, ROWS),
            "stage": [1, 2, 3] * (ROWS // 3),
            "ward": ["Süd", "Nord"] * (ROWS // 2),
            "nothing": [""] * ROWS,
            "always": ["yes"] * ROWS,
            "city": [*"aaaaaaaaaabbbbbbbbbccccccccddddddd", *(f"v{n}" for n in range(20)), *("w" for _ in range(6))],
        }
    )


def begun(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    status, out, err = typed(capsys, "init", *arguments, "--most-records", 5000)
    return status, out + err


def written(capsys: pytest.CaptureFixture[str], *arguments: object) -> ConsortiumConfig:
    status, said = begun(capsys, *arguments)
    assert status == 0, said
    return read_consortium(Path("consortium.toml"))


def columns(config: ConsortiumConfig) -> dict[str, dict[str, Any]]:
    return {column["name"]: column for column in config.task.inputs.model_dump()["columns"]}


def test_a_table_of_excel_becomes_columns_that_the_loader_then_reads(capsys: pytest.CaptureFixture[str]) -> None:
    table().to_csv("pool.csv", sep=";", encoding="cp1252", index=False)
    config = written(capsys, "pool.csv", "--classes", "well,ill", "--categories", 4, "--parties", "ash,oak,yew")
    found = columns(config)
    assert {name: column["kind"] for name, column in found.items()} == {
        "born": "date", "weight": "number", "height": "number", "stage": "category", "ward": "category",
        "city": "category",
    }  # fmt: skip
    assert (found["weight"]["low"], found["weight"]["high"]) == (43, 99)
    assert found["stage"]["categories"] == ("1", "2", "3") and found["ward"]["categories"] == ("Nord", "Süd")
    assert found["city"]["categories"] == ("a", "b", "c", "d")
    assert config.consortium.parties == ("ash", "oak", "yew") and config.task.classes == ("well", "ill")
    pool = load_public(config.run, config.consortium.data_root).pool
    assert pool.x.shape == (ROWS, *config.task.inputs.shape)
    encoded = pool.x[:, : 2 * 3]
    assert not encoded[:, 1::2].any(), "no value is missing"
    assert encoded[:, 0].min() == 0 and encoded[:, 0].max() == 1, "dates span their range"


def test_nothing_is_written_without_a_cap_on_records(capsys: pytest.CaptureFixture[str]) -> None:
    """Without groups nothing else keeps one institution from deciding the result."""
    table().to_csv("pool.csv", index=False)
    status, _, err = typed(capsys, "init", "pool.csv", "--classes", "well,ill")
    assert status == 2 and err.count("\n") == 1 and "say by --most-records" in err
    assert not Path("consortium.toml").exists()
    assert written(capsys, "pool.csv", "--classes", "well,ill").run.budget.records_per_party == 5000


@pytest.mark.parametrize("pool", [True, False])
def test_the_pool_is_checked_before_any_label_where_there_is_one(
    capsys: pytest.CaptureFixture[str], pool: bool
) -> None:
    table().to_csv("pool.csv", index=False)
    found = written(capsys, "pool.csv", "--classes", "well,ill", *(() if pool else ("--no-pool",))).run.pool_check
    assert (found is not None and found.share == 0.05) == pool


def test_what_is_no_input_is_left_out_with_the_reason_and_taken_in_on_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table().to_csv("pool.csv", index=False)
    status, said = begun(capsys, "pool.csv", "-o", "one.toml")
    assert status == 0 and "fill in the classes" in said
    for words in (
        "patient: a whole number of its own in every row",
        "name: 60 different texts in 60 rows",
        "nothing: no values",
        "always: the same value in every row",
    ):
        assert f"left out: {words}" in said
    config = written(
        capsys, "pool.csv", "--classes", "a,b", "--column", "patient=number", "--column", "height=out",
        "--column", "stage=number",
    )  # fmt: skip
    found = columns(config)
    assert found["patient"]["kind"] == found["stage"]["kind"] == "number" and "height" not in found


def test_a_column_that_may_be_the_class_is_pointed_at(capsys: pytest.CaptureFixture[str]) -> None:
    table().to_csv("pool.csv", index=False)
    _, said = begun(capsys, "pool.csv", "--classes", "Nord,Süd")
    assert "look at ward: its values are the classes; if it is the class, write --label ward" in said
    _, said = begun(capsys, "pool.csv", "--classes", "Nord,Süd", "--label", "ward", "-o", "other.toml")
    assert "look at" not in said and '"ward"' not in Path("other.toml").read_text()


def test_none_as_a_value_is_pointed_at_and_is_a_category_once_it_stands_among_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What "none" said of an insurance was taken for missing without a word."""
    frame = pd.DataFrame({"cover": ["none", "private", "public", ""] * 15})
    frame.to_csv("pool.csv", index=False)
    _, said = begun(capsys, "pool.csv", "--classes", "no,yes")
    assert "look at cover: 'none' counts as missing (15 rows); if it is a value, add it to categories" in said
    text = Path("consortium.toml").read_text()
    for categories, different in (('["private", "public"]', 3), ('["private", "public", "none"]', 4)):
        Path("consortium.toml").write_text(text.replace('["private", "public"]', categories))
        pool = load_public(read_consortium(Path("consortium.toml")), Path.cwd()).pool
        assert len(np.unique(pool.x[:, :different], axis=0)) == different
    frame.replace({"none": "public"}).to_csv("pool.csv", index=False)
    assert "look at" not in begun(capsys, "pool.csv", "--classes", "no,yes", "-o", "other.toml")[1]
    frame.replace({"public": "none"}).assign(n=frame["cover"]).to_csv("pool.csv", index=False)
    _, said = begun(capsys, "pool.csv", "--classes", "no,yes", "-o", "third.toml")
    assert "left out: cover: one value beside 'none', which counts as missing" in said


@pytest.mark.parametrize(
    ("income", "born", "size", "separator", "written_as"),
    [
        ("{:,.0f}", "%d/%m/%Y", "{:.1f}", ",", {"thousands": ",", "dates": "dd/mm/yyyy"}),
        ("{:,.0f}", "%m/%d/%Y", "{:.1f}", ";", {"separator": ";", "thousands": ",", "dates": "mm/dd/yyyy"}),
        ("{:,.0f}", "%Y-%m-%d", "{:.0f}", ",", {"thousands": ","}),  # could be 24.500 by themselves
        ("{:_.0f}", "%d.%m.%Y", "{:.1f}", ";", {"separator": ";", "thousands": " "}),
        ("{:.2f}", "%Y-%m-%d", "{:.1f}", ",", {}),
    ],
)
def test_a_pool_is_read_as_it_writes_numbers_and_dates(
    income: str, born: str, size: str, separator: str, written_as: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 24,500 beside 170.5 it made a decimal comma, with which nothing could be read, and left dates out as names."""
    rng = np.random.default_rng(1)
    days = pd.to_datetime("1950-01-01") + pd.to_timedelta(rng.integers(0, 9000, ROWS), "D")
    numbers = rng.integers(9_000, 90_000, ROWS)
    frame = pd.DataFrame({"income": [income.format(one).replace("_", " ") for one in numbers]})
    frame["born"], frame["size"] = days.strftime(born), [size.format(one) for one in rng.uniform(140, 210, ROWS)]
    frame.to_csv("pool.csv", index=False, sep=separator)
    assert (
        begun(capsys, "pool.csv", "--classes", "no,yes", "--column", "income=number", "--column", "size=number")[0] == 0
    )
    config = read_consortium(Path("consortium.toml"))
    assert config.pool is not None
    assert config.pool.model_dump(exclude_defaults=True) == {"source": "pool.csv", **written_as}
    found = columns(config)
    assert [one["kind"] for one in found.values()] == ["number", "date", "number"]
    assert found["income"]["low"] >= 8_000 and load_public(config, Path.cwd()).pool.x[:, 0].std() > 0.1


@pytest.mark.parametrize("rows", [ROWS, 9])
@pytest.mark.parametrize("name", ["pool.csv", "pool.xlsx"])
def test_an_index_that_pandas_wrote_is_left_out_in_one_line(
    name: str, rows: int, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = table()[["weight", "height", "ward"]][:rows]
    frame.to_csv(name) if name.endswith("csv") else frame.to_excel(name)
    status, said = begun(capsys, name, "--classes", "no,yes")
    assert status == 0 and said.count("it numbers the rows") == said.count("left out") == 1
    config = read_consortium(Path("consortium.toml"))
    assert {*columns(config)} == {"weight", "height", "ward"}
    assert len(load_public(config.run, Path.cwd()).pool) == rows


@pytest.mark.parametrize("name", ["pool.csv", "pool.xlsx"])
def test_vectors_that_pandas_wrote_with_their_index_are_vectors(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    vectors = np.random.default_rng(0).normal(size=(30, 48))
    frame = pd.DataFrame(vectors)
    frame.to_csv(name) if name.endswith("csv") else frame.to_excel(name)
    config = written(capsys, name, "--classes", "a,b")
    assert config.task.inputs.kind == "vector" and config.task.inputs.shape == (48,)
    assert np.allclose(load_public(config.run, Path()).pool.x, vectors, atol=1e-5)


@pytest.mark.parametrize("how", ["%d-%b-%Y", "%-d %b %Y", "%Y/%m/%d", "%d%b%Y", "%b %-d, %Y", "%B %-d, %Y", "%Y%m%d"])
def test_dates_with_a_month_by_its_name_or_the_year_first_are_dates(
    how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    days = pd.to_datetime("2020-01-01") + pd.to_timedelta(range(0, 10 * ROWS, 10), "D")
    pd.DataFrame({"seen": days.strftime(how), "size": range(ROWS)}).to_csv("pool.csv", index=False)
    config = written(capsys, "pool.csv", "--classes", "no,yes", "--column", "size=number")
    assert config.pool is not None and config.pool.model_dump(exclude_defaults=True) == {"source": "pool.csv"}
    assert columns(config)["seen"]["kind"] == "date"


@pytest.mark.parametrize("month", ["Aug", "Okt"])
def test_dates_that_cannot_be_read_are_called_so_and_no_names(month: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A year of two digits may be of another century, and months have English names."""
    year = "25" if month == "Aug" else "2025"
    seen = [f"{day:02}-{month}-{year}" for day in range(1, 31)]
    pd.DataFrame({"seen": seen, "size": range(0, 60, 2)}).to_csv("pool.csv", index=False)
    _, said = begun(capsys, "pool.csv", "--classes", "no,yes", "--column", "size=number")
    assert f"left out: seen: UNREAD DATES such as '01-{month}-{year}': write them as 2026-01-31 in the pool" in said
    Path("consortium.toml").unlink()
    pd.DataFrame({"seen": seen[:3] * 10, "size": range(0, 60, 2)}).to_csv("pool.csv", index=False)
    _, said = begun(capsys, "pool.csv", "--classes", "no,yes", "--column", "size=number")
    assert "UNREAD DATES" in said and 'name = "seen"' not in Path("consortium.toml").read_text(encoding="utf-8")


def test_a_column_of_numbers_with_words_in_it_is_not_called_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    income = [f"{number}.{number:03},50" for number in range(10, 10 + ROWS)]
    frame = pd.DataFrame({"income": [*income[:-5], *["k.A."] * 5], "weight": [f"{n},5" for n in range(ROWS)]})
    frame.to_csv("pool.csv", index=False, sep=";")
    _, said = begun(capsys, "pool.csv", "--classes", "no,yes")
    assert "left out: income: 5 values are no numbers, such as 'k.A.'; correct them in the pool" in said


def test_parquet_and_csv_give_the_same_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    frame = table().drop(columns=["born", "weight"])
    frame["born"] = pd.to_datetime("2020-02-28") + pd.to_timedelta(range(ROWS), "D")
    frame.to_csv("pool.csv", index=False)
    frame.to_parquet("pool.parquet")
    first = written(capsys, "pool.csv", "--classes", "a,b")
    Path("consortium.toml").unlink()
    second = written(capsys, "pool.parquet", "--classes", "a,b")
    assert first.task == second.task
    assert np.array_equal(load_public(first.run, Path()).pool.x, load_public(second.run, Path()).pool.x)


def test_images_in_an_npz_and_in_a_folder(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    np.savez("pool.npz", x=np.zeros((5, 4, 6), dtype=np.uint8))
    assert written(capsys, "pool.npz", "--classes", "a,b").task.inputs.shape == (4, 6, 1)
    Path("consortium.toml").unlink()
    (folder / "images").mkdir()
    for number in range(3):
        Image.new("RGB", (6, 4), (number, 0, 0)).save(folder / "images" / f"{number}.png")
    config = written(capsys, "images", "--classes", "a,b")
    assert config.task.inputs.shape == (4, 6, 3)
    pool = load_public(config.run, Path()).pool
    assert pool.x.shape == (3, 4, 6, 3) and pool.y is None


def test_a_table_without_names_in_an_npz(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("pool.npz", x=np.random.default_rng(0).normal(size=(30, 3)))
    config = written(capsys, "pool.npz", "--classes", "a,b")
    assert load_public(config.run, Path()).pool.x.shape == (30, 6)


def test_numbers_without_names_are_a_vector(capsys: pytest.CaptureFixture[str]) -> None:
    vectors = np.random.default_rng(0).normal(size=(30, 48)).astype(np.float32)
    np.savez("pool.npz", x=vectors)
    frame = pd.DataFrame(vectors, columns=[f"e{number}" for number in range(48)])
    frame.to_csv("pool.csv", index=False)
    pd.DataFrame({"embedding": list(vectors)}).to_parquet("pool.parquet")
    for name in ("pool.npz", "pool.csv", "pool.parquet"):
        Path("consortium.toml").unlink(missing_ok=True)
        config = written(capsys, name, "--classes", "a,b")
        assert config.task.inputs.kind == "vector" and config.task.inputs.shape == (48,), name
        assert np.allclose(load_public(config.run, Path()).pool.x, vectors, atol=1e-5), name


def test_the_classes_are_those_of_the_holdout_and_its_label_is_no_input(capsys: pytest.CaptureFixture[str]) -> None:
    frame = table()
    frame.to_csv("pool.csv", index=False)
    frame["ill"] = ["yes", "no", "unsure"] * 20
    frame.to_csv("holdout.csv", index=False)
    alone = written(capsys, "pool.csv", "--classes", "yes,no")
    assert alone.evaluation is not None  # nobody else could measure the student
    Path("consortium.toml").unlink()
    config = written(capsys, "pool.csv", "--holdout", "holdout.csv", "--label", "ill")
    assert config.evaluation is None
    assert config.task.classes == ("no", "unsure", "yes")
    public = load_public(config.run, Path())
    assert public.holdout is not None and len(public.holdout.labels()) == ROWS
    Path("consortium.toml").unlink()
    assert "ill" not in columns(written(capsys, "holdout.csv", "--label", "ill"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.csv"], "there is no"),
        (["pool.csv", "--column", "hight=number"], "no column 'hight': did you mean height?"),
        (["pool.csv", "--column", "height=numer"], "no kind of column is called 'numer': did you mean number?"),
        (["pool.csv", "--column", "height"], "write NAME=KIND"),
        (["pool.csv", "--column", "name=number"], "the values of the column 'name' are no numbers"),
        (["pool.csv", "--parties", "Ash"], "'Ash' is not a name"),
        (["pool.csv", "--holdout", "pool.csv", "--label", "ill"], "has no column ill"),
        (["pool.csv", "-o", "pool.csv"], "is there already"),
        (["pool.ods"], "save it as .xlsx, CSV or Parquet"),
        (["other.npz"], "has no array x"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    table().to_csv("pool.csv", index=False)
    np.savez("other.npz", embeddings=np.zeros((3, 4)))
    (folder / "pool.ods").write_bytes(b"PK")
    status, said = begun(capsys, *arguments)
    assert status != 0 and words in said and len(said.splitlines()) == 1, said
    assert not (folder / "consortium.toml").exists()


def test_without_a_pool_the_file_gives_columns_alone_and_a_check_says_what_is_drawn(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    table().to_csv("example.csv", sep=";", encoding="cp1252", index=False)
    config = written(capsys, "example.csv", "--no-pool", "--classes", "well,ill", "--parties", "ash,oak,yew")
    (folder / "example.csv").unlink()  # nothing is read from it again
    assert config.pool is None and config.run.drawn and len(columns(config)) == 6
    status, out, err = typed(capsys, "provision", "consortium.toml", "--check")
    assert status == 0, err
    assert "pool         3000 inputs that are drawn from the schema" in out and "are needed" not in out


def test_of_a_workbook_the_sheet_that_is_read_is_named_and_another_may_be(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    holdout = table().assign(ill=["yes", "no"] * (ROWS // 2))
    with pd.ExcelWriter("pool.xlsx") as book:
        pd.DataFrame({"about": ["numbers of 2024"]}).to_excel(book, sheet_name="Notes", index=False)
        table().to_excel(book, sheet_name="Data", index=False)
    with pd.ExcelWriter("holdout.xlsx") as book:
        holdout.to_excel(book, sheet_name="Data", index=False)
    status, said = begun(capsys, "pool.xlsx", "--classes", "yes,no")
    other = "pool.xlsx: the sheet 'Notes' is read, and not 'Data' (--sheet takes another)"
    assert status != 0 and "no column of the pool" in said and other in said and len(said.splitlines()) == 1
    status, said = begun(capsys, "pool.xlsx", "--classes", "yes,no", "-o", "first.toml", "--column", "about=category")
    assert status == 0 and other in said
    arguments = ["pool.xlsx", "--sheet", "Data", "--holdout", "holdout.xlsx", "--label", "ill"]
    config = written(capsys, *arguments)
    assert "weight" in columns(config) and len(load_public(config.run, folder).pool) == ROWS
    assert config.holdout is not None and config.holdout.sheet == "Data"
    status, said = begun(capsys, "pool.xlsx", "--sheet", "Dta", "-o", "third.toml")
    assert status != 0 and "has no sheet 'Dta'; there are 'Notes', 'Data'" in said and len(said.splitlines()) == 1


def test_a_check_says_what_the_holdout_tells_of_an_accuracy(capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.concat([table()] * 7, ignore_index=True)[:400]
    frame["ill"] = ["yes", "no"] * 200
    frame.to_csv("holdout.csv", index=False)
    written(capsys, "holdout.csv", "--holdout", "holdout.csv", "--label", "ill", "--parties", "ash,oak,yew")
    out = typed(capsys, "provision", "consortium.toml", "--check")[1]
    assert "holdout: 400 records, which tell an accuracy of 80 % to ± 3.9 points" in out
    assert ": 400 tell an accuracy of 80 % to ± 4 points" in Path("consortium.toml").read_text(encoding="utf-8")
