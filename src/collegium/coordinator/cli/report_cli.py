"""`collegium report`: render a run's page again, from its run.json alone."""

from pathlib import Path
from typing import Annotated

import typer

from collegium.coordinator.report.page import write_report
from collegium.coordinator.run.run_folder import read_run

app = typer.Typer(add_completion=False, help="Write the report of a run as one self-contained HTML page.")


@app.command(epilog="Example: collegium report runs/first --output first.html")
def report(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or its run.json.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; by default report.html beside run.json.")
    ] = None,
) -> None:
    """Render the report of a run, finished or not."""
    record = read_run(run)
    target = output or (run if run.is_dir() else run.parent) / "report.html"
    write_report(record, target)
    typer.echo(str(target))
