"""`collegium report | statement`: a run's page, rendered again, and a signed one for a board, or the check of that."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from collegium.clock import utc_now
from collegium.coordinator.cli.ledger_cli import public_key_of
from collegium.coordinator.report.page import write_report
from collegium.coordinator.report.registry import registry_yaml
from collegium.coordinator.report.statement import check_statement, facts_of, render, statement_of
from collegium.coordinator.run.run_folder import ledger_of, read_run
from collegium.privacy.analysis.ledger_report import charged_epsilons
from collegium.privacy.ledger.ledger import Ledger
from collegium.whole_files import write_whole
from collegium_accounting.terminal import epsilon_text

app = typer.Typer(add_completion=False)


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


@app.command(epilog="Example: collegium report runs/first --output first.html")
def report(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or its run.json.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; by default report.html beside run.json.")
    ] = None,
) -> None:
    """Render the report of a run, finished or not.

    Where the ledger of the run is there, every charge is computed again from its mechanism. A lower one is refused.
    """
    record, folder = read_run(run), run if run.is_dir() else run.parent
    if (ledger := ledger_of(folder)).exists():
        with Ledger.read(ledger) as held:
            charged_epsilons(held)
    target = output or folder / "report.html"
    write_report(record, target)
    typer.echo(str(target))
