"""The folder of one run: what lies where, written so that an interruption leaves either the old or the new file."""

import csv
import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from collegium.coordinator.run.run_record import RUN_FORMAT, RunRecord
from collegium.data.several_labels import held_in, numbers_of
from collegium.errors import StorageError
from collegium.settings import first_mistake
from collegium.whole_files import exclusive, read_whole, storing, write_whole

ONE_LABEL = ("label",)


class RunFolder:
    """A run's files below ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_json = path / "run.json"
        self.ledger = path / "ledger.sqlite"
        self.labels_csv = path / "labels.csv"
        self.student = path / "student.safetensors"
        self.report = path / "report.html"
        self.learned = path / "learned"
        """Networks from public data and released labels, kept by what they were made from. May be deleted."""

    def prepare(self) -> None:
        """Make the folder and try to write in it; StorageError before any work is done otherwise."""
        probe = self.path / f".probe-{os.getpid()}"
        with storing(f"write to the run folder {self.path}", "; choose another or fix its permissions"):
            self.path.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(b"")
            probe.unlink()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes off this run; StorageError when one is at it. A lock dies with its process."""
        with exclusive(self.path / ".lock", f"another process is running in {self.path}; wait for it or stop it"):
            yield

    def read(self) -> RunRecord | None:
        """The record in run.json, or None where there is none yet; see `read_run` for errors."""
        return read_run(self.run_json) if self.run_json.exists() else None

    def write(self, record: RunRecord) -> None:
        """Replace run.json."""
        write_whole(self.run_json, run_json(record, indent=1) + "\n")

    def write_labels(self, labels: Sequence[tuple[int, int | None]], columns: Sequence[str] = ONE_LABEL) -> None:
        """Replace labels.csv: a row per asked input of the pool, the label empty where none was given.

        ``columns`` are the task's `label_columns`; of several, each holds one bit of the label's number.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("index", *columns))
        writer.writerows((index, *_cells(label, len(columns))) for index, label in labels)
        write_whole(self.labels_csv, text.getvalue())


def ledger_of(folder: Path) -> Path:
    """The file in which the charges of the run in ``folder`` are: there, or in the consortium's folder around it."""
    places = (folder, folder.parent, folder.parent.parent)  # a run of a consortium lies there, or in studies there
    return next((found for place in places if (found := RunFolder(place).ledger).exists()), RunFolder(folder).ledger)


def read_labels(path: Path, columns: Sequence[str] = ONE_LABEL) -> list[tuple[int, int | None]]:
    """The rows of a labels.csv of these columns; StorageError when it cannot be read or holds something else."""
    try:
        text = io.StringIO(read_whole(path).decode(), newline="")
        return [
            (int(row["index"]), _label([row[column] for column in columns])) for row in csv.DictReader(text, restval="")
        ]
    except (KeyError, ValueError, csv.Error) as error:
        wanted = ",".join(("index", *columns))
        raise StorageError(f"{path} is no labels file: it needs the columns {wanted} with whole numbers") from error


def _cells(label: int | None, columns: int) -> list[int | str]:
    if label is None:
        return [""] * columns
    return [label] if columns == 1 else held_in(np.array(label), columns).tolist()


def _label(cells: Sequence[str]) -> int | None:
    if not any(cells):
        return None
    return int(cells[0]) if len(cells) == 1 else int(numbers_of([int(cell) for cell in cells]))


def read_run(path: Path) -> RunRecord:
    """The record in the run.json at ``path`` (a file, or the folder that holds it).

    Raises
    ------
    StorageError
        If the file cannot be read, is of another version of Collegium, or is damaged.
    """
    file = path / "run.json" if path.is_dir() else path
    mend = "restore it from a copy, or start the run in a new folder"
    try:
        held = json.loads(read_whole(file, "; name the folder of a run"))
    except ValueError as error:
        raise StorageError(f"{file} is not valid JSON; {mend}") from error
    if not isinstance(held, dict) or held.get("format") != RUN_FORMAT:
        raise StorageError(
            f"{file} is not a run of this version of Collegium (format {RUN_FORMAT}); "
            "read it with the version that wrote it, or start the run in a new folder"
        )
    try:
        return RunRecord.model_validate(held)
    except ValidationError as error:
        raise StorageError(f"{file} is damaged at {first_mistake(error)}; {mend}") from error


def run_json(record: RunRecord, indent: int | None = None) -> str:
    """The record as JSON, in which the words ``inf`` and ``nan`` stand for such numbers."""
    held = plain(record.model_dump(mode="json"))
    return json.dumps(held, indent=indent, allow_nan=False, ensure_ascii=False)


def plain(value: Any) -> Any:
    """``value`` in JSON's own types: numpy scalars and arrays unpacked, infinities as the text ``inf``."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value
