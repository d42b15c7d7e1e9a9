"""`collegium init`: a first consortium.toml from a public file."""

from pathlib import Path
from typing import Annotated

import typer

from collegium.coordinator.report.page import rendered
from collegium.coordinator.settings.draft import KINDS, Draft, draft_of
from collegium.data.encoding import texts_of
from collegium.data.loading.excel import ENDING, sheets_of
from collegium.data.loading.files import find, read_table
from collegium.data.loading.sources import DataSource
from collegium.data.values import check_party_name
from collegium.errors import ColumnMissing, ConfigurationError, DataError
from collegium.limits import MAX_RECORDS_PER_PARTY
from collegium.whole_files import write_new

app = typer.Typer(add_completion=False)


NO_CAP = (
    "say by --most-records how many records the largest institution has at most, rounded up: none then weighs more. "
    f"--most-records {MAX_RECORDS_PER_PARTY} sets no cap, and one of few institutions that lies then decides the result"
)


@app.command(
    epilog="Example: collegium init pool.csv --holdout holdout.csv --label diagnosis --parties ash,birch,oak "
    "--most-records 5000"
)
def init(
    pool: Annotated[str, typer.Argument(help="A public CSV, Parquet or npz file, or folder of images.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("consortium.toml"),
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=KIND", help=f"What a column is: {', '.join(KINDS)}. May be given several times."),
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of the class; no input.")] = None,
    classes: Annotated[str, typer.Option(metavar="A,B,…", help="The classes; else those of the holdout.")] = "",
    holdout: Annotated[
        str | None,
        typer.Option(
            help="Public inputs with labels, to measure the student: 100 tell an accuracy to ± 8 points, 400 to ± 4."
        ),
    ] = None,
    parties: Annotated[str, typer.Option(metavar="A,B,…", help="The institutions' names.")] = "ash,birch,cedar,oak,yew",
    host: Annotated[str, typer.Option(help="The coordinator's host, as parties reach it.")] = "localhost",
    name: Annotated[str, typer.Option(help="The consortium's name.")] = "consortium",
    no_pool: Annotated[
        bool, typer.Option("--no-pool", help="Take columns and ranges from the file, and do without a public pool.")
    ] = False,
    sheet: Annotated[str | None, typer.Option(help="Of an Excel workbook; by default its first one.")] = None,
    most_records: Annotated[
        int | None,
        typer.Option(
            min=1, max=MAX_RECORDS_PER_PARTY, help="The most that any institution has, rounded up; none weighs more."
        ),
    ] = None,
    categories: Annotated[int, typer.Option(min=1, help="Most values of a column of texts that are told apart.")] = 60,
) -> None:
    """Write a consortium.toml from the public pool: its columns with their ranges, a budget, and who takes part.

    Read it before you use it. It says which columns were left out, and why.
    """
    names = [one.strip() for one in parties.split(",") if one.strip()]
    for one in (*names, name):
        check_party_name(one, ConfigurationError)
    if most_records is None:
        raise ConfigurationError(NO_CAP)
    root = Path.cwd()
    kinds = _kinds(column or [])
    try:
        draft = draft_of(pool, root, kinds, (label,) if label else (), categories, sheet)
    except DataError as error:
        if Path(pool).exists() and (line := _in_sheet(pool, sheet, root)[1]):
            raise DataError(f"{error}; {line}") from error
        raise
    known = [one.strip() for one in classes.split(",") if one.strip()]
    known = known or (_classes(holdout or pool, root, label, draft) if label else [])
    text = rendered(
        "coordinator.cli",
        "consortium.toml.j2",
        name=name,
        host=host,
        parties=names,
        pool=None if no_pool else draft.source,
        holdout=_as_the_pool(holdout, root, draft) | {"label": label} if holdout and label else None,
        most_records=most_records,
        classes=known,
        inputs=draft.inputs,
    )
    write_new(output, text + "\n", "remove it, or name another with -o")
    for file in filter(None, (pool, holdout)):
        if line := _in_sheet(file, sheet, root)[1]:
            typer.echo(line, err=True)
    for left, why in draft.left_out.items():
        typer.echo(f"left out: {left}: {why}", err=True)
    if draft.left_out:
        typer.echo("a column is taken in all the same by --column NAME=number, =category or =date", err=True)
    for one, rows in draft.none.items():
        typer.echo(
            f"look at {one}: 'none' counts as missing ({rows} rows); if it is a value, add it to categories", err=True
        )
    for alike in (column for column, values in draft.categories.items() if known and values == set(known)):
        typer.echo(f"look at {alike}: its values are the classes; if it is the class, write --label {alike}", err=True)
    missing = "" if known else " and fill in the classes under [task]"
    typer.echo(f"{output} is written; read it{missing}, then run: collegium provision {output} --check")


def _kinds(given: list[str]) -> dict[str, str]:
    kinds = {}
    for one in given:
        name, mark, kind = one.rpartition("=")
        if not mark:
            raise ConfigurationError(f"--column {one}: write NAME=KIND, where KIND is one of {', '.join(KINDS)}")
        kinds[name] = kind
    return kinds


def _in_sheet(name: str, sheet: str | None, root: Path) -> tuple[str | None, str]:
    """The sheet of a file that is read, and a line that names the others; nothing where there is one or none."""
    sheets = sheets_of(find(name, root)) if name.lower().endswith(ENDING) else []
    taken = sheet if sheet in sheets else next(iter(sheets), None)
    others = ", ".join(repr(one) for one in sheets if one != taken)
    return taken, f"{name}: the sheet {taken!r} is read, and not {others} (--sheet takes another)" if others else ""


def _classes(name: str, root: Path, label: str, draft: Draft) -> list[str]:
    source = DataSource.model_validate(_as_the_pool(name, root, draft))
    frame = read_table(find(name, root), source)
    if label not in frame.columns:
        raise ColumnMissing(f"{name} has no column {label}; there are {', '.join(map(str, frame.columns[:60]))}")
    return sorted({text for text in texts_of(frame[label]).tolist() if text})


def _as_the_pool(name: str, root: Path, draft: Draft) -> dict[str, object]:
    """How another public file is read: as the pool, in the sheet of the same name if it has one."""
    how = {key: value for key, value in draft.source.items() if key != "sheet"} | {"source": name}
    sheet = draft.source.get("sheet")
    return how | {"sheet": sheet} if sheet is not None and _in_sheet(name, str(sheet), root)[0] == sheet else how
