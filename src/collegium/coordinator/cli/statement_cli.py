"""`collegium statement`: one signed page for a board, and the check of one that was filed."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from collegium.clock import utc_now
from collegium.coordinator.cli.ledger_cli import public_key_of
from collegium.coordinator.report.registry import registry_yaml
from collegium.coordinator.report.statement import check_statement, facts_of, render, statement_of
from collegium.whole_files import write_whole
from collegium_accounting.terminal import epsilon_text

app = typer.Typer(add_completion=False, help="Write, or verify, the signed page about a run that a board files.")


@app.command(epilog="Example: collegium statement runs/first --output statement.html")
def statement(
    run: Annotated[Path, typer.Argument(help="The folder of a run, where the coordinator's keys are.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write; a page goes to the run's statement.html by default."),
    ] = None,
    verify: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Verify this statement, a page or JSON, against the ledger.")
    ] = None,
    public_key: Annotated[
        str | None,
        typer.Option(help="With --verify: the coordinator's certificate (.pem), or its key of 64 hex digits."),
    ] = None,
    shape: Annotated[
        Literal["page", "registry"],
        typer.Option("--format", help="The page, or a record (YAML) of the registry of deployments that OpenDP keeps."),
    ] = "page",
    as_json: Annotated[bool, typer.Option("--json", help="Print the signed statement as JSON.")] = False,
) -> None:
    """State what was asked, of whom, since when, what it cost in privacy, and how to check it; signed.

    Every figure comes from the ledger's entries, which are verified first.
    """
    if verify is not None:
        key = None if public_key is None else public_key_of(public_key)
        held = check_statement(run, verify, key)
        if as_json:
            typer.echo(json.dumps(held, ensure_ascii=False))
            return
        spent = held["facts"]["ledger"]
        for one in spent["promises"]:
            typer.echo(f"ε = {epsilon_text(float(one['epsilon']))} for one {one['unit']} ({one['adjacency']})")
        typer.echo(f"it says what the ledger says up to entry {spent['head']}")
        if held["signature"] is None:
            typer.echo("not signed: neither is the ledger")
        elif key is None:
            typer.echo(f"signed by {spent['public_key']}, as the ledger itself states: compare --public-key")
        else:
            typer.echo(f"signed by the given key {spent['public_key']}")
        return
    if shape == "registry":
        record = registry_yaml(facts_of(run, utc_now().isoformat(timespec="seconds")))
        if output is None:
            typer.echo(record, nl=False)
        else:
            write_whole(output, record)
        return
    made = statement_of(run, utc_now().isoformat(timespec="seconds"))
    if as_json:
        typer.echo(json.dumps(made, ensure_ascii=False))
        return
    target = output or run / "statement.html"
    write_whole(target, render(made))
    typer.echo(str(target))
