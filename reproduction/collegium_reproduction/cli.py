"""`collegium reproduce`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)

RESULTS = Path("docs/research/results")
RUNS = Path("runs")


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="The name of an experiment. --list prints all.")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    again: Annotated[
        bool,
        typer.Option("--check", help="Compute kept results again where no training is needed, and compare."),
    ] = False,
    page: Annotated[bool, typer.Option(help="Only write the page of all results and its pictures.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="The number of repetitions, with the seeds 0, 1, …")] = 3,
    student: Annotated[bool, typer.Option(help="Also fit students in experiments that do not need them.")] = False,
    run: Annotated[Path | None, typer.Option(help="Folder of its runs; by default runs/NAME.")] = None,
    ensembles: Annotated[Path, typer.Option(help="Folder of fitted ensembles' votes, shared by experiments.")] = RUNS
    / "ensembles",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that fit teachers; one per core.")] = None,
    device: Annotated[str, typer.Option(help="The device that computes networks: auto, cpu, cuda, …")] = "auto",
    results: Annotated[Path, typer.Option(help="The folder of the results' JSON files and pictures.")] = RESULTS,
    data_root: Annotated[Path | None, typer.Option(help="Folder of data files; by default COLLEGIUM_DATA.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results, or the list, as JSON.")] = False,
) -> None:
    """Measure a table or figure of the papers again, ours beside theirs.

    Examples:

      collegium reproduce --list

      collegium reproduce pate-figure-2 --seeds 3 --data-root ~/data

      collegium reproduce --check
    """
    import json

    from rich.console import Console

    from collegium.data import data_root as find_data_root
    from collegium.errors import ConfigurationError
    from collegium.simulations.progress import RunProgress
    from collegium_reproduction.experiments import EXPERIMENTS
    from collegium_reproduction.experiments.base import Setting, save_results
    from collegium_reproduction.experiments.figures import save_figures
    from collegium_reproduction.experiments.making import make
    from collegium_reproduction.experiments.results_page import render_results

    if list_them:
        _list(as_json)
        return
    if name not in EXPERIMENTS and not page and not (again and name is None):
        raise ConfigurationError(f"there is no experiment {name!r}; there are: {', '.join(sorted(EXPERIMENTS))}")
    if again:
        _check([name] if name else sorted(EXPERIMENTS), results, data_root, workers, as_json)
        return
    if not page:
        assert name is not None
        with RunProgress(Console(stderr=True)) as progress:
            setting = Setting(
                run or RUNS / name,
                find_data_root(data_root),
                range(seeds),
                lambda line: typer.echo(line, err=True),
                progress,
                ensembles,
                workers or len(os.sched_getaffinity(0)),
                student,
                device,
            )
            measured = make(EXPERIMENTS[name], setting)
        save_results(results, name, measured)
        typer.echo(json.dumps(measured, indent=1) if as_json else EXPERIMENTS[name].render(measured))
    save_figures(results)
    results.with_suffix(".md").write_text(render_results(results), encoding="utf-8")


def _check(names: Sequence[str], results: Path, data_root: Path | None, workers: int | None, as_json: bool) -> None:
    """Compare, print a line for each experiment, and end with status 1 where a figure differs."""
    import json
    import tempfile
    from dataclasses import asdict

    from collegium.data import data_root as find_data_root
    from collegium_reproduction.experiments import EXPERIMENTS
    from collegium_reproduction.experiments.base import MADE, Setting
    from collegium_reproduction.experiments.checking import check, read_results

    found = []
    for name in names:
        kept = read_results(results, name)
        if kept is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            setting = Setting(
                Path(folder),
                find_data_root(data_root),
                kept.get(MADE, {}).get("seeds", [0]),
                lambda line: None,
                ensembles=Path(folder) / "ensembles",
                workers=workers or len(os.sched_getaffinity(0)),
            )
            checked = check(EXPERIMENTS[name], kept, setting)
        found.append(checked)
        if as_json:
            continue
        typer.echo(
            f"{name}: {checked.skipped}"
            if checked.skipped
            else f"{name}: {checked.compared - len(checked.differences)} of {checked.compared} figures are the same"
        )
        for one in checked.differences:
            typer.echo(f"  {one.place}: kept {one.kept!r}, now {one.now!r}")
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=1))
    if any(one.differences for one in found):
        raise typer.Exit(1)


def _list(as_json: bool) -> None:
    import json

    from rich.console import Console
    from rich.table import Column, Table

    from collegium_reproduction.experiments import EXPERIMENTS

    rows = [
        {"name": name, "title": one.title, "source": one.source, "data": one.data, "slow": one.slow}
        for name, one in sorted(EXPERIMENTS.items())
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table(Column("name", no_wrap=True), "what", "paper", "data", "slow", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(str(row[key]) for key in ("name", "title", "source", "data")), "slow" if row["slow"] else "")
    Console().print(table)
