"""Read the records that a query finds in a database, through SQLAlchemy."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collegium.data.loading.sources import DataSource, Records
from collegium.data.texts import as_written
from collegium.errors import ConfigurationError, DataError
from collegium.extras import optional_import

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import URL

_FILES = ("sqlite", "duckdb")
"""Databases that are a file, whose relative path starts at the data root."""
_ROWS_AT_ONCE = 10_000
_READ_ONLY = {
    "postgresql": "SET TRANSACTION READ ONLY",
    "sqlite": "PRAGMA query_only = ON",
    "mysql": "SET SESSION TRANSACTION READ ONLY",
}
"""What keeps the query from changing anything; other databases need a user who may only read."""


def read_database(source: DataSource, root: Path | None) -> Records:
    """The rows of ``source.query`` as texts, in an order that the database does not decide.

    Parameters
    ----------
    root : folder at which the relative path of a database file starts.

    Raises
    ------
    ConfigurationError
        The URL cannot be read, or it holds a password.
    DataError
        The database cannot be reached, refuses the query or fails in the middle. No password is in the text.
    MissingExtra
        SQLAlchemy or the driver that the URL names is not installed.
    """
    with _answered(source, root) as (shown, result):
        return Records(shown, _frame(shown, list(result.keys()), result.partitions(_ROWS_AT_ONCE), source.decimal))


def columns_found(source: DataSource, root: Path | None) -> list[str]:
    """The names of the columns that ``source.query`` finds; errors as of `read_database`."""
    with _answered(source, root) as (_, result):
        return list(map(str, result.keys()))


def settled(url: str) -> str:
    """The URL of a database; one that is a file with its whole path, as from the working directory."""
    kind, _, path = url.partition(":///")
    is_file = kind.partition("+")[0] in _FILES and path not in ("", ":memory:")
    return f"{kind}:///{Path(path).resolve()}" if is_file else url


@contextmanager
def _answered(source: DataSource, root: Path | None) -> Iterator[tuple[str, Any]]:
    """The database as messages name it, and the result of the query."""
    with optional_import("reading a database"):
        import sqlalchemy

    url = _url_of(source, root)
    shown = url.set(query={}).render_as_string(hide_password=True)
    try:
        with optional_import(f"reading {url.drivername}"):
            engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
        with engine.connect() as connection:
            if url.get_backend_name() in _READ_ONLY:
                connection.exec_driver_sql(_READ_ONLY[url.get_backend_name()])
            if url.drivername in ("sqlite", "sqlite+pysqlite"):  # ATTACH would make a file that is not there
                driver = connection.connection.driver_connection
                assert isinstance(driver, sqlite3.Connection)
                driver.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            if url.get_backend_name() == "duckdb" and root is not None:
                connection.exec_driver_sql("SET file_search_path = '{}'".format(str(root).replace("'", "''")))
            with closing(connection.execute(sqlalchemy.text(str(source.query)))) as result:
                yield shown, result
    except sqlalchemy.exc.NoSuchModuleError as error:
        raise ConfigurationError(f"{shown}: SQLAlchemy knows no database {url.drivername!r}; correct source") from error
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise DataError(f"cannot read {shown}: {_reason(error, url)}; nothing was kept, start again") from error


def _url_of(source: DataSource, root: Path | None) -> URL:
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(source.source)
    except (ArgumentError, ValueError) as error:
        raise ConfigurationError(
            "data.source is no URL of a database: write dialect+driver://user@host/name"
        ) from error
    if url.password is not None or source.shown != source.source:  # as part of the address, or behind ?
        raise ConfigurationError(
            "data.source holds a password: take it out, put it into an environment variable, and name that variable "
            "in data.password_from"
        )
    if source.password_from is not None:
        secret = os.environ.get(source.password_from)
        if secret is None:
            raise ConfigurationError(f"the environment variable {source.password_from} (data.password_from) is not set")
        url = url.set(password=secret)
    if url.get_backend_name() in _FILES and url.database not in (None, "", ":memory:") and root is not None:
        url = url.set(database=str(root / str(url.database)))
    if url.get_backend_name() == "sqlite" and url.database and not Path(url.database).exists():
        raise DataError(f"there is no {url.database}: correct data.source")
    return url


def _frame(shown: str, names: list[str], parts: Any, decimal: str) -> pd.DataFrame:
    """Sorted, since a database may return the same rows in another order each time."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{shown}: the query has two columns {twice[0]!r}: name one of them otherwise")
    rows = sorted(tuple(as_written(value, decimal) for value in row) for part in parts for row in part)
    import pandas as pd

    return pd.DataFrame(rows, columns=names, dtype=object)


def _reason(error: Exception, url: URL) -> str:
    """The first line of what the driver said, without the password."""
    said = str(getattr(error, "orig", None) or error).strip().splitlines() or [type(error).__name__]
    return said[0].replace(str(url.password), "***") if url.password else said[0]
