"""`collegium student fit | evaluate`: learn again from a run's labels, and measure a student on any data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from collegium.coordinator.config import RunConfig
from collegium.coordinator.evaluation import prediction_quality
from collegium.coordinator.public_data import load_public
from collegium.coordinator.run_folder import read_labels, read_run
from collegium.protocol.errors import ConfigurationError, DataError, PoolMismatch, StorageError
from collegium.protocol.inputs import DataSource, array_spec, data_root, load
from collegium.protocol.toml_files import validate_config

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Fit or evaluate a student from issued labels.")

DataRoot = Annotated[
    Path | None,
    typer.Option("--data-root", help="Folder with data files; COLLEGIUM_DATA in the environment otherwise."),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads for the CPU.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command(epilog="Example: collegium student fit runs/first --method supervised --seed 3")
def fit(
    run: Annotated[Path, typer.Argument(help="The folder of a run that has issued labels.")],
    method: Annotated[str | None, typer.Option(help="How to learn; the run's own method otherwise.")] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="A setting of the method, as name=value; may be repeated.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where it goes; student-METHOD.safetensors in the run otherwise."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes the student's random choices.")] = 0,
    root: DataRoot = None,
    device: Device = "auto",
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Fit a student on a run's labels.csv and pool. Labels are paid for already: this costs no privacy."""
    from collegium.coordinator.students import fit_student

    if not run.is_dir():
        raise StorageError(f"{run} is no folder of a run")
    record = read_run(run)
    asked = {key: value for key, value in record["asked"].items() if key in RunConfig.model_fields}
    config = validate_config(asked, RunConfig, str(run / "run.json"))
    public = load_public(config, data_root(root))
    if array_spec(public.pool.x).sha256 != record["pool"]["sha256"]:
        raise PoolMismatch(f"the pool read from {config.pool.source} is not the one that {run} was labelled on")
    labels = [(index, label) for index, label in read_labels(run / "labels.csv") if label is not None]
    chosen = method or config.student.method
    options = _options(option or [], dict(config.student.options) if chosen == config.student.method else {})
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
            options=options,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    target = output or run / f"student-{chosen}.safetensors"
    student.save(target)
    result: dict[str, Any] = {"student": str(target), "method": chosen, "labels": len(labels)}
    if public.holdout is not None and public.holdout.y is not None:
        result |= prediction_quality(student.predict(public.holdout.x), public.holdout.y, config.task.classes)
    _show(result, as_json)


@app.command(epilog="Example: collegium student evaluate runs/first/student.safetensors digits --start 1500")
def evaluate(
    student: Annotated[Path, typer.Argument(help="A student.safetensors.")],
    source: Annotated[str, typer.Argument(help="A named public set, or a file with labels.")],
    split: Annotated[str, typer.Option(help="train, test or all.")] = "all",
    start: Annotated[int, typer.Option(min=0, help="First record.")] = 0,
    stop: Annotated[int | None, typer.Option(min=1, help="Record after the last.")] = None,
    label: Annotated[str | None, typer.Option(help="The column of the class.")] = None,
    root: DataRoot = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure a student on labelled data."""
    from collegium.coordinator.students import load_student

    if not student.is_file():
        raise StorageError(f"no student at {student}; give the path of a student.safetensors")
    model = load_student(student, device=device)
    values = {"source": source, "split": split, "start": start, "stop": stop, "label": label}
    examples = load(validate_config(values, DataSource, "options"), model.task, data_root=data_root(root))
    if examples.y is None:
        raise DataError(f"{source} has no labels; name their column with --label")
    _show(
        {"student": str(student)} | prediction_quality(model.predict(examples.x), examples.y, model.task.classes),
        as_json,
    )


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
    if "accuracy" not in result:
        return
    typer.echo(f"accuracy  {result['accuracy']:.4f} of {result['inputs']} inputs")
    table = Table("class", "inputs", "accuracy")
    for row in result["per_class"]:
        table.add_row(row["class"], str(row["inputs"]), "–" if row["accuracy"] is None else f"{row['accuracy']:.4f}")
    Console(highlight=False).print(table)
