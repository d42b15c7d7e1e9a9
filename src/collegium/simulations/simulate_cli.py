"""`collegium simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def simulate(
    config: Annotated[Path, typer.Argument(help="The configuration, a TOML file such as examples/mnist-250.toml.")],
    run: Annotated[Path | None, typer.Option(help="The run's folder; by default runs/NAME.")] = None,
    data_root: Annotated[Path | None, typer.Option(help="Folder of data files; by default COLLEGIUM_DATA.")] = None,
    queries: Annotated[int | None, typer.Option(min=1, help="How many queries to ask.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of all randomness, noise too: not private.")] = None,
    prepare_only: Annotated[
        bool, typer.Option("--prepare-only", help="Only prepare the folder, for `flwr run .`.")
    ] = False,
    deployment: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Only prepare, for Flower's SuperLink at this address and SuperNodes."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print run.json at the end instead of a table.")] = False,
) -> None:
    """Run many virtual parties on Flower's simulation engine.

    Run it again, and it goes on where it stopped: fitted teachers, labels and charges are kept. With more queries, only
    the new ones are asked and paid for.

    Examples:

      collegium simulate examples/mnist-250.toml --data-root ~/data

      collegium simulate examples/mnist-250.toml --queries 1000 --run runs/long

      collegium simulate examples/mnist-8.toml --deployment localhost:9443
    """
    from rich.console import Console

    from collegium.coordinator.run.run_folder import run_json
    from collegium.data import data_root as find_data_root
    from collegium.settings import read_config
    from collegium.simulations.config import SimulationConfig, with_changes
    from collegium.simulations.prepared import prepare_run
    from collegium.simulations.progress import RunProgress
    from collegium.simulations.simulate import simulate as run_it
    from collegium.simulations.summary import print_summary

    settings = with_changes(read_config(config, SimulationConfig), queries=queries, seed=seed)
    folder = run or Path("runs") / settings.name
    console = Console(stderr=as_json)
    prepared = prepare_run(settings, folder, data_root=find_data_root(data_root))
    if prepare_only:
        typer.echo(flwr_command(prepared.folder, len(prepared.cohort.members)))
        return
    if deployment is not None:
        from collegium.simulations.flower_deployment import write_deployment

        typer.echo("Start these, in this order, each in a terminal of its own; end the servers with Ctrl-C:")
        for script in write_deployment(prepared, deployment):
            typer.echo(f"  {script}")
        return
    console.print(f"Starting {len(prepared.cohort.members)} virtual parties", highlight=False)
    with RunProgress(console) as progress:
        result = run_it(prepared, progress)
    if as_json:
        typer.echo(run_json(result, indent=1))
    else:
        print_summary(result, folder, console)


def flwr_command(folder: Path, parties: int) -> str:
    """The lines to type, in the root of a checkout, to run what was prepared in ``folder`` by Flower's own command."""
    from shlex import quote

    from collegium.simulations.flower_env import flower_settings

    exports = " ".join(f"{name}={quote(value)}" for name, value in flower_settings(folder).items())
    run_config = quote(f'folder="{folder}"')
    federation = quote(f"num-supernodes={parties} client-resources-num-cpus=1")
    return f"export {exports}\nflwr run . --stream --run-config {run_config} --federation-config {federation}"
