"""`collegium student fit | evaluate`: from issued labels to a classifier that is measured."""

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from collegium.coordinator.cli.options import AsJson, Device
from collegium.coordinator.cli.student_use_cli import ReadAs, app, read_as, settings_named
from collegium.coordinator.run.label_set import student_quality
from collegium.coordinator.run.run_folder import read_labels, read_run
from collegium.coordinator.settings.run_config import load_public
from collegium.data import array_spec, data_root, load
from collegium.errors import ConfigurationError, DataError, PoolMismatch, StorageError
from collegium.privacy.analysis.evaluation import share_right

DataRoot = Annotated[
    Path | None,
    typer.Option("--data-root", help="Folder of data files; by default COLLEGIUM_DATA."),
]
Threads = Annotated[int, typer.Option(min=1, help="The number of threads on the CPU.")]


@app.command(epilog="Example: collegium student fit runs/first --method supervised --seed 3")
def fit(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    method: Annotated[str | None, typer.Option(help="The student's method; by default the run's own.")] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="A setting of the method, as name=value; may be repeated.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write; by default student-METHOD.safetensors in the run."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the student's random choices.")] = 0,
    root: DataRoot = None,
    device: Device = "auto",
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Fit a student on a run's labels.csv and pool; the labels are paid for already."""
    from collegium.coordinator.report.model_card import write_model_card
    from collegium.coordinator.students import fit_student

    if output is not None and not output.parent.is_dir():
        raise StorageError(f"there is no folder {output.parent} for the student; make it, or change --output")
    if not run.is_dir():
        raise StorageError(f"{run} is no folder of a run")
    record = read_run(run)
    config = record.config
    public = load_public(config, data_root(root))
    if array_spec(public.pool.x).sha256 != record.pool.sha256:
        origin = "drawn from the task" if config.pool is None else f"read from {config.pool.source}"
        raise PoolMismatch(f"the pool {origin} is not the one that {run} was labelled on")
    rows = read_labels(run / "labels.csv", config.task.label_columns)
    labels = [(index, label) for index, label in rows if label is not None]
    chosen = method or config.student.method
    known = dict(config.student.options) if chosen == config.student.method else {}
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"fitting {chosen}", total=None)
        student = fit_student(
            chosen,
            public.pool.x,
            np.array([index for index, _ in labels], dtype=np.int64),
            np.array([label for _, label in labels], dtype=np.int64),
            config.task,
            seed=seed,
            device=device,
            threads=threads,
            options=_options(option or [], known),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    target = output or run / f"student-{chosen}.safetensors"
    student.save(target)
    result: dict[str, Any] = {"student": str(target), "method": chosen, "labels": len(labels)}
    quality = None
    if public.holdout is not None and public.holdout.y is not None:
        quality = student_quality(student, public.holdout.x, public.holdout.y, config.task)
        result |= quality.model_dump()
    result["model_card"] = str(write_model_card(target, config.task, chosen, quality, record))
    _show(result, as_json)


@app.command(epilog="Example: collegium student evaluate runs/first/student.safetensors digits --start 1500")
def evaluate(
    student: Annotated[Path, typer.Argument(help="The file of a student, such as student.safetensors.")],
    source: Annotated[str, typer.Argument(help="A named public data set, or a file with labels.")],
    split: Annotated[str, typer.Option(help="The part of a named data set: train, test or all.")] = "all",
    start: Annotated[int, typer.Option(min=0, help="The first record to use.")] = 0,
    stop: Annotated[int | None, typer.Option(min=1, help="The record to stop before.")] = None,
    label: Annotated[str | None, typer.Option(help="The column that holds the class.")] = None,
    settings: ReadAs = None,
    root: DataRoot = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure a student on labelled data."""
    from collegium.coordinator.students.published import load_student

    model = load_student(student, device=device).student
    with settings_named(settings):
        data = read_as(settings, source, split=split, start=start, stop=stop, label=label)
        examples = load(data, model.task, data_root=data_root(root))
    if examples.y is None:
        raise DataError(f"{source} has no labels; name their column with --label")
    quality = student_quality(model, examples.x, examples.y, model.task)
    _show({"student": str(student)} | quality.model_dump(), as_json)


def _options(given: list[str], options: dict[str, Any]) -> dict[str, Any]:
    """``options`` with every ``name=value`` of ``given``, read as JSON where it is and as text otherwise."""
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"--option wants name=value; got {text!r}")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def _show(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result))
        return
    typer.echo(f"student   {result['student']}")
    if "labels" in result:
        typer.echo(f"labels    {result['labels']}")
        typer.echo(f"card      {result['model_card']}")
    if "accuracy" not in result:
        return
    right = share_right(result["accuracy"], result["inputs"])
    typer.echo(f"accuracy  {right.value:.4f} ({right.low:.4f} to {right.high:.4f}) of {result['inputs']} inputs")
    if (area := result.get("auroc")) is not None:
        typer.echo(f"AUROC     {area['value']:.4f} ({area['low']:.4f} to {area['high']:.4f})")
    table = Table("class", "inputs", "accuracy")
    for row in result["per_class"]:
        table.add_row(
            row["class_name"], str(row["inputs"]), "–" if row["accuracy"] is None else f"{row['accuracy']:.4f}"
        )
    Console(highlight=False).print(table)
