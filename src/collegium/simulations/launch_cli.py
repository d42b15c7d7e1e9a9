"""`collegium launch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def launch(
    config: Annotated[Path, typer.Argument(help="The configuration, a TOML file such as examples/mnist-8.toml.")],
    run: Annotated[Path | None, typer.Option(help="The run's folder; by default runs/NAME.")] = None,
    data_root: Annotated[Path | None, typer.Option(help="Folder of data files; by default COLLEGIUM_DATA.")] = None,
    queries: Annotated[int | None, typer.Option(min=1, help="How many queries to ask.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of all randomness, noise too: not private.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print run.json at the end instead of a table.")] = False,
) -> None:
    """Run a coordinator and real party processes on this machine, over mutual TLS.

    Run it again after an interruption, and it goes on where it stopped.

    Example: collegium launch examples/mnist-8.toml --data-root ~/data
    """
    from collegium.data import data_root as find_data_root
    from collegium.settings import read_config
    from collegium.simulations.config import SimulationConfig, with_changes

    settings = with_changes(read_config(config, SimulationConfig), queries=queries, seed=seed)
    folder = run or Path("runs") / settings.name
    run_and_show(settings, folder, find_data_root(data_root), as_json=as_json)


def run_and_show(settings: object, folder: Path, data_root: Path | None, *, as_json: bool) -> None:
    """Launch, with progress, and print the closing table or run.json."""
    from rich.console import Console

    from collegium.coordinator.run.run_folder import run_json
    from collegium.simulations.config import SimulationConfig
    from collegium.simulations.launcher import launch as run_it
    from collegium.simulations.prepared import prepare_run
    from collegium.simulations.progress import RunProgress
    from collegium.simulations.summary import print_summary

    assert isinstance(settings, SimulationConfig)
    console = Console(stderr=as_json)
    prepared = prepare_run(settings, folder, data_root=data_root)
    console.print(f"Starting {len(prepared.cohort.members)} party processes", highlight=False)
    with RunProgress(console) as progress:
        result = run_it(prepared, progress)
    if as_json:
        typer.echo(run_json(result, indent=1))
    else:
        print_summary(result, folder, console)
