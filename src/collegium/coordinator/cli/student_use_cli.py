"""`collegium student predict | calibrate | drift | export`: a finished student in use, on inputs of whoever uses it."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from collegium.coordinator.cli.options import AsJson, Device
from collegium.data import DataSource, load
from collegium.errors import ConfigurationError, DataError
from collegium.extras import optional_import
from collegium.settings import read_toml, validate_config
from collegium.whole_files import replacing

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from collegium.models.calibrated import CalibratedStudent
    from collegium.models.students import Student

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Fit a student from issued labels, and use it.")

ReadAs = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A TOML file whose section data says how to read the inputs (separator, encoding, sheet, decimal, "
        "thousands, dates, scale, rename, values, absent), such as party.toml.",
    ),
]
StudentFile = Annotated[Path, typer.Argument(help="The file of a student, such as student.safetensors.")]
InputsFile = Annotated[Path, typer.Argument(help="A .csv, .parquet, .xlsx or .npz file, or a folder of images.")]
_HOW_IT_IS_WRITTEN = ("separator", "encoding", "sheet", "decimal", "thousands", "dates", "scale")
_READING = (*_HOW_IT_IS_WRITTEN, "rename", "values", "absent", "classes", "unlabelled")
_PARTS = 5
_CHANCE = 0.01


@app.command(
    epilog="Examples: collegium student predict student.safetensors new.csv --id patient -o predictions.csv; "
    "collegium student predict student.safetensors scans/ -o predictions.parquet"
)
def predict(
    student: StudentFile,
    inputs: InputsFile,
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

    The inputs are checked by the task that the student's file holds: the columns of a table, the size of an image. The
    columns clipped and outside_pool say which rows the student has not met the like of.
    """
    from collegium.coordinator.run.run_record import REHEARSAL
    from collegium.coordinator.students.published import load_student, without_formulas
    from collegium.models.students import is_rehearsed

    ending = ".csv" if output is None else output.suffix.lower()
    if ending not in (".csv", ".parquet"):
        raise ConfigurationError(f"cannot write predictions to {output}: its name must end in .csv or .parquet")
    model = load_student(student, device=device)
    with settings_named(settings):
        source = read_as(settings, inputs, unknown="missing" if unknown_as_missing else "refuse")
        table = model.predict_source(source, id_column or ())
    said = [*([REHEARSAL] if is_rehearsed(student) else []), *_said_of_unusual(table)]
    if ending == ".csv":
        table = without_formulas(table)
    if output is None:
        typer.echo(table.to_csv(index=False), nl=False)
        typer.echo("\n".join(said), err=True, nl=bool(said))
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
    typer.echo("\n".join([f"{len(table)} predictions in {output}{counted}", *said]))


@app.command(
    epilog="Examples: collegium student calibrate student.safetensors ward.csv --label diagnosis "
    "-o own.safetensors; the same with --positive malignant --sensitivity 0.95, or with --positive malignant --cost 20"
)
def calibrate(
    student: StudentFile,
    labelled: Annotated[Path, typer.Argument(help="Labelled records of the place where the student is used.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The student to write.", show_default=False)],
    label: Annotated[str, typer.Option(help="The column that holds the class.")] = "y",
    positive: Annotated[
        str | None, typer.Option(metavar="CLASS", help="The class that is named from a threshold on.")
    ] = None,
    sensitivity: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="The threshold finds this share of the records of --positive."),
    ] = None,
    cost: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="The threshold for a record of --positive that is missed costing as much as so many false alarms.",
        ),
    ] = None,
    settings: ReadAs = None,
    device: Device = "auto",
) -> None:
    """Fit a student's probabilities to a few labelled records of yours, and choose from when on a class is named.

    Ten records suffice to begin with, a hundred are better. The student that is written tells of these records, which ε
    does not protect.
    """
    from collegium.coordinator.students.published import load_student
    from collegium.models.calibrated import calibrated

    if (positive is None) != (sensitivity is None and cost is None) or None not in (sensitivity, cost):
        raise ConfigurationError("a threshold needs --positive CLASS and either --sensitivity or --cost")
    model = load_student(student, device=device).student
    if positive is not None and positive not in model.task.classes:
        raise ConfigurationError(
            f"the student has no class {positive!r}: --positive is one of {', '.join(model.task.classes)}"
        )
    with settings_named(settings):
        examples = load(read_as(settings, labelled, label=label), model.task, data_root=None)
        y = examples.labels()
    made = calibrated(model, examples.x, y)
    typer.echo(f"records     {len(y)} of {labelled}")
    before, after = log_losses(made.student, examples.x, y)
    typer.echo(f"log loss    {before:.3f} before, {after:.3f} after, on records that took no part in the fit")
    if after > before:
        typer.echo("            the calibration does not help here: use the student as it is, or label more records")
    if positive is not None:
        made, told = with_cut(made, examples.x, y, positive, sensitivity, cost)
        typer.echo(f"threshold   {told}")
    made.save(output)
    typer.echo(f"student     {output}; keep it where these records may be seen: ε does not protect them")


def log_losses(student: "Student", x: "NDArray[Any]", y: "NDArray[np.int64]") -> tuple[float, float]:
    """The mean log loss of a student before and after calibration, each record by a fit on the other parts of five."""
    from collegium.models.calibrated import calibration, raised

    shares = np.maximum(student.probabilities(x), 1e-4)
    part = np.random.default_rng(0).permutation(len(y)) % _PARTS
    after = np.empty_like(shares)
    for number in range(_PARTS):
        held = part == number
        after[held] = raised(np.log(shares[held]), *calibration(shares[~held], y[~held]))
    own = np.arange(len(y)), y
    return float(-np.log(shares[own]).mean()), float(-np.log(np.maximum(after[own], 1e-12)).mean())


def with_cut(
    made: "CalibratedStudent",
    x: "NDArray[Any]",
    y: "NDArray[np.int64]",
    positive: str,
    sensitivity: float | None,
    cost: float | None,
) -> tuple["CalibratedStudent", str]:
    """The student with the threshold that ``sensitivity`` or ``cost`` asks for, and what it does on these records.

    Raises DataError where no record is of the class.
    """
    number = made.task.classes.index(positive)
    shares = np.sort(made.probabilities(x)[y == number, number])[::-1]
    if not len(shares):
        raise DataError(f"no labelled record is of the class {positive}: add some")
    if cost is not None:
        least = 1.0 / (1.0 + cost)
    else:
        assert sensitivity is not None
        least = float(shares[max(1, math.ceil(sensitivity * len(shares) - 1e-9)) - 1])
    cut = replace(made, cut=(number, least))
    named = cut.predict(x) == number
    found, others = int(named[y == number].sum()), int((y != number).sum())
    return cut, (
        f"{positive} is named from a probability of {least:.3f} on: finds {found} of {len(shares)} of these records, "
        f"with {int(named[y != number].sum())} false alarms among {others}"
    )


@app.command(epilog="Example: collegium student drift student.safetensors pool.csv new.csv")
def drift(
    student: StudentFile,
    pool: Annotated[Path, typer.Argument(help="The pool that the student learned from, or a part of it.")],
    inputs: InputsFile,
    settings: ReadAs = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Compare new inputs with the pool: which columns, and which of the student's answers, are no longer alike."""
    from collegium.coordinator.students.drift import drift as compared
    from collegium.coordinator.students.published import load_student
    from collegium.data.loading.loading import load_inputs

    model = load_student(student, device=device)
    with settings_named(settings):
        known = load_inputs(read_as(None, pool, unknown="missing"), model.task)[0]
        new = load_inputs(read_as(settings, inputs, unknown="missing"), model.task)[0]
    found = compared(model.student, known, new)
    if as_json:
        typer.echo(json.dumps({"inputs": len(new), "pool": len(known), "compared": found.to_dict("records")}))
        return
    table = Table("compared", "distance", "p-value", "")
    for row in found.itertuples():
        table.add_row(str(row.what), f"{row.distance:.3f}", f"{row.p_value:.2g}", "differs" if row.differs else "")
    Console(highlight=False).print(table)
    differing = found["what"][found["differs"]].tolist()
    told = f"differ from the pool: {', '.join(differing)}" if differing else "are like the pool as far as can be told"
    typer.echo(f"{len(new)} inputs {told}")


@app.command(epilog="Example: collegium student export student.safetensors --onnx student.onnx --inputs pool.csv")
def export(
    student: StudentFile,
    onnx: Annotated[Path, typer.Option(help="The ONNX file to write.", show_default=False)],
    inputs: Annotated[
        Path | None, typer.Option(help="Inputs to compare on: a file or a folder of images; by default drawn ones.")
    ] = None,
    settings: ReadAs = None,
) -> None:
    """Write a student as an ONNX file that takes raw inputs, after ONNX Runtime gave the same probabilities."""
    from collegium.coordinator.students.published import load_student
    from collegium.data.loading.loading import load_inputs

    model = load_student(student, device="cpu")
    with optional_import("writing ONNX files"):
        from collegium_onnx import export_onnx
    raw = None
    if inputs is not None:
        with settings_named(settings):
            raw = load_inputs(read_as(settings, inputs, unknown="missing"), model.task)[2]
    compared, difference = export_onnx(model.student, onnx, raw)
    on = "drawn inputs" if inputs is None else f"inputs of {inputs}"
    typer.echo(f"{onnx} gives the student's probabilities on {compared} {on} (largest difference {difference:.1g})")


def _said_of_unusual(table: "pd.DataFrame") -> list[str]:
    """A line for the rows that were clipped, and one for those outside the pool, where there are any."""
    said, rows = [], len(table)
    if "clipped" in table and (clipped := int((table["clipped"] != "").sum())):
        per_column = Counter(name for names in table["clipped"] for name in names.split("; ") if name)
        columns = ", ".join(f"{name} in {count}" for name, count in per_column.most_common(5))
        said.append(
            f"CLIPPED: {clipped} of {rows} rows have a value outside the task's range, taken for its end: {columns}; "
            "are the units those of the task?"
        )
    if "outside_pool" in table and (outside := int(table["outside_pool"].sum())):
        said.append(
            f"OUTSIDE THE POOL: {outside} of {rows} rows are unlike what the student learned from (about "
            f"{_CHANCE * rows:.0f} would be by chance)"
        )
    return said


def read_as(settings: Path | None, inputs: Path | str, **given: object) -> DataSource:
    """The inputs as a source, to be read in the way that the section ``data`` of a TOML file says."""
    how = {} if settings is None else read_toml(settings)[0].get("data", {})
    values = {name: how[name] for name in _READING if name in how} | {"source": str(inputs)} | given
    return validate_config(values, DataSource, "options" if settings is None else str(settings))


@contextmanager
def settings_named(settings: Path | None) -> Iterator[None]:
    """Advice about settings names where they are written: whoever uses a student has no ``source`` of a party."""
    try:
        yield
    except DataError as error:
        where = f"below [data] in {settings}" if settings else "below [data] in a TOML file that --settings names"
        told = str(error).replace("beside source", where).replace('; in Python unknown="missing"', "")
        raise type(error)(told) from error
