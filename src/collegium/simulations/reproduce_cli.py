"""`collegium reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)

RESULTS = Path("docs/results")


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="An experiment; see --list.")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    page: Annotated[bool, typer.Option(help="Only write the page of all results beside their folder.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions, with the seeds 0, 1, …")] = 3,
    run: Annotated[Path | None, typer.Option(help="Folder of its runs; runs/NAME by default.")] = None,
    results: Annotated[Path, typer.Option(help="Folder of the results' JSON files.")] = RESULTS,
    data_root: Annotated[Path | None, typer.Option(help="Folder of the data files; else COLLEGIUM_DATA.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Measure a table or figure of the papers again, ours beside theirs.

    Examples:

      collegium reproduce --list

      collegium reproduce pate-mnist --seeds 3 --data-root ~/data
    """
    import json

    from rich.console import Console

    from collegium.protocol.errors import ConfigurationError
    from collegium.protocol.inputs import data_root as find_data_root
    from collegium.simulations.experiments import EXPERIMENTS, render_results
    from collegium.simulations.experiments.base import Setting, save_results
    from collegium.simulations.progress import RunProgress

    if list_them:
        for known, experiment in EXPERIMENTS.items():
            typer.echo(f"{known:<16}{experiment.title} ({experiment.source})")
        return
    if not page:
        if name not in EXPERIMENTS:
            raise ConfigurationError(f"there is no experiment {name!r}; there are: {', '.join(EXPERIMENTS)}")
        with RunProgress(Console(stderr=True)) as progress:
            setting = Setting(
                run or Path("runs") / name,
                find_data_root(data_root),
                range(seeds),
                lambda line: typer.echo(line, err=True),
                progress,
            )
            measured = EXPERIMENTS[name].run(setting)
        save_results(results, name, measured)
        typer.echo(json.dumps(measured, indent=1) if as_json else EXPERIMENTS[name].render(measured))
    results.with_suffix(".md").write_text(render_results(results), encoding="utf-8")
