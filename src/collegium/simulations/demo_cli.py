"""`collegium demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def demo(
    run: Annotated[Path, typer.Option(help="The folder of the run.")] = Path("runs/demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print run.json at the end instead of a table.")] = False,
) -> None:
    """Run five institutions as processes: they label public digits together, and a student learns from the labels.

    Nothing is downloaded. Run it again, and it finds everything done.

    Example: collegium demo --run runs/my-demo
    """
    from importlib.resources import as_file, files

    from collegium.settings import read_config
    from collegium.simulations.config import SimulationConfig
    from collegium.simulations.launch_cli import run_and_show

    with as_file(files("collegium.simulations") / "digits.toml") as path:
        settings = read_config(path, SimulationConfig)
    run_and_show(settings, run, None, as_json=as_json)
