"""`collegium student fit | evaluate | predict | export`: from issued labels to a classifier in use."""

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from collegium.coordinator.run.label_set import student_quality
from collegium.coordinator.run.run_folder import read_labels, read_run
from collegium.coordinator.settings.run_config import load_public
from collegium.data import DataSource, array_spec, data_root, load
from collegium.errors import ConfigurationError, DataError, PoolMismatch, StorageError
from collegium.extras import optional_import
from collegium.settings import read_toml, validate_config
from collegium.whole_files import replacing

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Fit a student from issued labels, and use it.")

DataRoot = Annotated[
    Path | None,
    typer.Option("--data-root", help="Folder of data files; by default COLLEGIUM_DATA."),
]
Device = Annotated[str, typer.Option(help="The device that computes: auto, cpu or cuda.")]
Threads = Annotated[int, typer.Option(min=1, help="The number of threads on the CPU.")]
ReadAs = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A TOML file whose [data] says how to read the inputs (separator, encoding, decimal, rename, values, "
        "absent), such as party.toml.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


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
        raise PoolMismatch(f"the pool read from {config.pool.source} is not the one that {run} was labelled on")
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
    root: DataRoot = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure a student on labelled data."""
    from collegium.coordinator.students.published import load_student

    model = load_student(student, device=device).student
    values = {"source": source, "split": split, "start": start, "stop": stop, "label": label}
    examples = load(validate_config(values, DataSource, "options"), model.task, data_root=data_root(root))
    if examples.y is None:
        raise DataError(f"{source} has no labels; name their column with --label")
    quality = student_quality(model, examples.x, examples.y, model.task)
    _show({"student": str(student)} | quality.model_dump(), as_json)


@app.command(
    epilog="Examples: collegium student predict student.safetensors new.csv --id patient -o predictions.csv; "
    "collegium student predict student.safetensors scans/ -o predictions.parquet"
)
def predict(
    student: Annotated[Path, typer.Argument(help="The file of a student, such as student.safetensors.")],
    inputs: Annotated[Path, typer.Argument(help="A .csv, .parquet or .npz file, or a folder of images.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The .csv or .parquet file to write; by default the terminal.")
    ] = None,
    id_column: Annotated[
        list[str] | None, typer.Option("--id", metavar="COLUMN", help="A column to pass on; may be repeated.")
    ] = None,
    unknown_as_missing: Annotated[
        bool, typer.Option(help="Take a category that the task does not know for a missing value.")
    ] = False,
    settings: ReadAs = None,
    device: Device = "auto",
) -> None:
    """Predict the classes of new inputs: a row for each, with the class and the probability of every class.

    The inputs are checked by the task that the student's file holds: the columns of a table, the size of an image.
    """
    from collegium.coordinator.students.published import load_student, without_formulas

    ending = ".csv" if output is None else output.suffix.lower()
    if ending not in (".csv", ".parquet"):
        raise ConfigurationError(f"cannot write predictions to {output}: its name must end in .csv or .parquet")
    model = load_student(student, device=device)
    source = _read_as(settings, inputs, "missing" if unknown_as_missing else "refuse")
    table = model.predict_source(source, id_column or ())
    if ending == ".csv":
        table = without_formulas(table)
    if output is None:
        typer.echo(table.to_csv(index=False), nl=False)
        return
    with replacing(output, "write") as beside, optional_import(f"writing {output.name}"):
        if ending == ".csv":
            table.to_csv(beside, index=False)
        else:
            table.to_parquet(beside, index=False)
    counted = (
        ""
        if model.task.multilabel
        else ": " + ", ".join(f"{count} {name}" for name, count in table["prediction"].value_counts().items())
    )
    typer.echo(f"{len(table)} predictions in {output}{counted}")


@app.command(epilog="Example: collegium student export student.safetensors --onnx student.onnx --inputs pool.csv")
def export(
    student: Annotated[Path, typer.Argument(help="The file of a student, such as student.safetensors.")],
    onnx: Annotated[Path, typer.Option(help="The ONNX file to write.", show_default=False)],
    inputs: Annotated[
        Path | None, typer.Option(help="Inputs to compare on: a file or a folder of images; by default drawn ones.")
    ] = None,
    settings: ReadAs = None,
) -> None:
    """Write a student as an ONNX file that takes raw inputs, after ONNX Runtime gave the same probabilities."""
    from collegium.coordinator.students.published import load_student
    from collegium.data.loading.loading import raw_inputs

    model = load_student(student, device="cpu")
    with optional_import("writing ONNX files"):
        from collegium.coordinator.students.onnx_export import export_onnx
    raw = None if inputs is None else raw_inputs(_read_as(settings, inputs, "missing"), model.task)
    compared, difference = export_onnx(model.student, onnx, raw)
    on = "drawn inputs" if inputs is None else f"inputs of {inputs}"
    typer.echo(f"{onnx} gives the student's probabilities on {compared} {on} (largest difference {difference:.1g})")


def _read_as(settings: Path | None, inputs: Path, unknown: str) -> DataSource:
    """The inputs as a source, to be read in the way that the section ``data`` of a TOML file says."""
    how = {} if settings is None else read_toml(settings)[0].get("data", {})
    kept = {
        name: how[name] for name in ("separator", "encoding", "decimal", "rename", "values", "absent") if name in how
    }
    values = kept | {"source": str(inputs), "unknown": unknown}
    return validate_config(values, DataSource, "options" if settings is None else str(settings))


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
    typer.echo(f"accuracy  {result['accuracy']:.4f} of {result['inputs']} inputs")
    if (area := result.get("auroc")) is not None:
        typer.echo(f"AUROC     {area['value']:.4f} ({area['low']:.4f} to {area['high']:.4f})")
    table = Table("class", "inputs", "accuracy")
    for row in result["per_class"]:
        table.add_row(
            row["class_name"], str(row["inputs"]), "–" if row["accuracy"] is None else f"{row['accuracy']:.4f}"
        )
    Console(highlight=False).print(table)
