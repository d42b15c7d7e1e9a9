"""Records from a database: the same as from a file, no password anywhere, and one line when something is wrong."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from support.postgres import PROGRAMS, Server, server

from collegium.data import DataSource, Examples, load
from collegium.data.task import CategoryColumn, NumberColumn, TableInputs, Task
from collegium.errors import ConfigurationError, DataError
from collegium.parties.checking import check_records

TABLE = Task(
    classes=("no", "yes"),
    inputs=TableInputs(
        columns=(NumberColumn(name="age", low=0, high=100), CategoryColumn(name="ward", categories=("a", "b")))
    ),
)
ROWS = [(50, "a", "yes", "p1"), (None, "c", "no", "p2"), (100, "b", "yes", "p1"), (7, "a", "no", "p3")]
QUERY = "SELECT age, ward, sick AS y, patient FROM visits"


def read(source: str, query: str = QUERY, root: Path | None = None, **options: object) -> Examples:
    return load(DataSource.model_validate({"source": source, "query": query, **options}), TABLE, data_root=root)


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "visits.db") as connection:
        connection.execute("CREATE TABLE visits (age REAL, ward TEXT, sick TEXT, patient TEXT)")
        connection.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)", ROWS)
    connection.close()
    return tmp_path / "visits.db"


def as_csv(folder: Path) -> Examples:
    path = folder / "visits.csv"
    pd.DataFrame(sorted(ROWS, key=str), columns=["age", "ward", "y", "patient"]).to_csv(path, index=False)
    return load(DataSource(source=str(path), group="patient"), TABLE, data_root=None)


def contents(examples: Examples) -> list[bytes]:
    return sorted(bytes(row) + bytes(label) for row, label in zip(examples.x, examples.labels(), strict=True))


def test_a_database_gives_the_records_of_a_file_with_the_same_rows(visits: Path, tmp_path: Path) -> None:
    found = read("sqlite:///visits.db", root=tmp_path, group="patient")
    assert contents(found) == contents(as_csv(tmp_path)) and len(set(found.groups.tolist())) == 3
    # A record is known to its account by its content, wherever it was read.
    assert sorted(found.rows.tolist()) == sorted(as_csv(tmp_path).rows.tolist())


def test_the_order_in_which_a_database_returns_rows_changes_nothing(visits: Path, tmp_path: Path) -> None:
    up, down = (read(f"sqlite:///{visits}", f"{QUERY} ORDER BY age {order}") for order in ("ASC", "DESC"))
    assert np.array_equal(up.x, down.x, equal_nan=True) and np.array_equal(up.labels(), down.labels())


def test_a_query_that_would_change_the_database_is_refused(visits: Path) -> None:
    with pytest.raises(DataError, match="readonly"):
        read(f"sqlite:///{visits}", "DELETE FROM visits RETURNING age, ward, sick AS y, patient")
    with sqlite3.connect(visits) as connection:
        assert connection.execute("SELECT count(*) FROM visits").fetchone() == (4,)
    connection.close()


@pytest.mark.parametrize("settings", [{}, {"decimal": ","}, {"decimal": ",", "thousands": "."}, {"thousands": ","}])
def test_numbers_of_a_database_are_read_whatever_the_mark_of_its_texts(visits: Path, settings: dict[str, str]) -> None:
    """Planted once: 1.234 without its point where thousands have points, and no number where decimals have commas."""
    found = read(f"sqlite:///{visits}", "SELECT 1.234 AS age, 'a' AS ward, 'yes' AS y", **settings)
    assert found.x[0, 0] == pytest.approx(0.01234)


def test_numbers_of_parquet_that_are_no_floats_lose_no_point(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pd.DataFrame({"age": [Decimal("1.234")], "ward": ["a"], "y": ["yes"]}).to_parquet(file)
    with pytest.raises(DataError, match="1 value is no number"):
        load(DataSource(source=str(file), decimal=",", thousands="."), TABLE, data_root=None)
    assert load(DataSource(source=str(file)), TABLE, data_root=None).x[0, 0] == pytest.approx(0.01234)


def test_a_query_that_attaches_another_file_makes_none(visits: Path) -> None:
    with pytest.raises(DataError, match="attached"):
        read(f"sqlite:///{visits}", f"ATTACH '{visits.with_name('new.db')}' AS new")
    assert not visits.with_name("new.db").exists()


def test_duckdb_reads_parquet_files_beside_the_settings(tmp_path: Path) -> None:
    pd.DataFrame(ROWS, columns=["age", "ward", "sick", "patient"]).to_parquet(tmp_path / "visits.parquet")
    found = read("duckdb://", QUERY.replace("visits", "'visits.parquet'"), root=tmp_path, group="patient")
    assert contents(found) == contents(as_csv(tmp_path))


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("postgresql+psycopg://me:secret@db/visits", {}, "holds a password"),
        ("postgresql+psycopg://me@db/visits", {"password_from": "NOT_SET_HERE"}, "NOT_SET_HERE .* is not set"),
        ("nosuch://me@db/visits", {}, "knows no database 'nosuch'"),
        ("sqlite:///nowhere.db", {}, "there is no"),
        ("://", {}, "no URL of a database"),
    ],
)
def test_a_wrong_source_is_one_line(source: str, options: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigurationError, DataError), match=message) as caught:
        read(source, root=tmp_path, **options)
    assert "\n" not in str(caught.value) and "secret" not in str(caught.value)


def test_a_query_with_an_error_is_named_in_one_line(visits: Path) -> None:
    with pytest.raises(DataError, match="no such column: nowhere") as caught:
        read(f"sqlite:///{visits}", "SELECT nowhere FROM visits")
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="no such column: nowhere"):  # `party check` says the same, and names no file
        check_records(DataSource(source=f"sqlite:///{visits}", query="SELECT nowhere FROM visits"), TABLE, None)


@pytest.mark.parametrize("settings", [{"source": "a.csv", "query": "SELECT 1"}, {"source": "sqlite:///a.db"}])
def test_a_query_and_a_database_belong_together(settings: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="belong together"):
        DataSource.model_validate(settings)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    if PROGRAMS is None:
        pytest.skip("no PostgreSQL here: apt-get install postgresql")
    import psycopg

    with server() as made:
        with psycopg.connect(
            host="127.0.0.1", port=made.port, user="collegium", password=made.password, dbname="postgres"
        ) as connection:
            connection.execute("CREATE TABLE visits (age double precision, ward text, sick text, patient text)")
            with connection.cursor() as cursor:
                cursor.executemany("INSERT INTO visits VALUES (%s, %s, %s, %s)", ROWS)
        yield made


@pytest.mark.slow
def test_postgresql_with_a_password_of_the_environment(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISITS_PASSWORD", postgres.password)
    found = read(postgres.url, group="patient", password_from="VISITS_PASSWORD")
    assert contents(found) == contents(as_csv(tmp_path))
    with pytest.raises(DataError, match="read-only transaction"):
        read(postgres.url, "DELETE FROM visits RETURNING *", password_from="VISITS_PASSWORD")


@pytest.mark.slow
def test_a_wrong_password_is_refused_and_not_repeated(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISITS_PASSWORD", "wrong-password")
    with pytest.raises(DataError, match="authentication failed") as caught:
        read(postgres.url, password_from="VISITS_PASSWORD")
    assert "wrong-password" not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_database_that_dies_in_the_middle_is_one_line_and_nothing_is_kept(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query waits in the server; the server is killed as soon as it says that it runs it."""
    import psycopg

    monkeypatch.setenv("VISITS_PASSWORD", postgres.password)
    caught: list[Exception] = []

    def reading() -> None:
        try:
            read(postgres.url, f"SELECT pg_sleep(60), v.* FROM ({QUERY}) v", password_from="VISITS_PASSWORD")
        except Exception as error:
            caught.append(error)

    reader = threading.Thread(target=reading)
    with psycopg.connect(
        host="127.0.0.1", port=postgres.port, user="collegium", password=postgres.password, dbname="postgres",
        autocommit=True,
    ) as watching:  # fmt: skip
        reader.start()
        running = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        while watching.execute(running).fetchone() == (0,):
            assert reader.is_alive()
        postgres.kill()
    reader.join(30)
    (error,) = caught
    assert isinstance(error, DataError) and "nothing was kept, start again" in str(error) and "\n" not in str(error)
