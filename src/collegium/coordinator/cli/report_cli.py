"""`collegium report`: render a run's page again, from its run.json; its ledger, where it is there, is checked first."""

from pathlib import Path
from typing import Annotated

import typer

from collegium.coordinator.report.page import write_report
from collegium.coordinator.run.run_folder import ledger_of, read_run
from collegium.privacy.analysis.ledger_report import charged_epsilons
from collegium.privacy.ledger.ledger import Ledger

app = typer.Typer(add_completion=False, help="Write the report of a run as one self-contained HTML page.")


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
