"""The model card beside a student: what it takes and gives, how good it is, what ε means, how to check and use it.

It is Markdown with the front matter that Hugging Face reads.
"""

from datetime import timedelta
from pathlib import Path

from collegium.coordinator.report.page import promises_of, rendered, templates
from collegium.coordinator.run.label_set import Quality
from collegium.coordinator.run.run_record import RunRecord
from collegium.data.numbers import EPOCH
from collegium.data.task import Task
from collegium.whole_files import write_whole

FEW_LABELS = 3
"""A class with fewer issued labels is called weak."""


def card_path(student: Path) -> Path:
    """Where the card of a student's file lies: ``MODEL_CARD.md`` for ``student.safetensors``, else with its name."""
    return student.with_name("MODEL_CARD.md" if student.stem == "student" else f"{student.stem}-MODEL_CARD.md")


def write_model_card(student: Path, task: Task, method: str, quality: Quality | None, run: RunRecord) -> Path:
    """Write the card of a student beside its file.

    Parameters
    ----------
    student : Path
        The student's file.
    method : str
        How it learned.
    quality : Quality or None
        On public inputs that it did not learn from; None where it was not measured.
    run : RunRecord
        The run that its labels come from.

    Returns
    -------
    The card's path. StorageError if it cannot be written.
    """
    templates("coordinator.report").filters.update(cell=_cell, day=lambda days: EPOCH + timedelta(days=days))
    quality = quality if quality is not None and quality.accuracy is not None else None
    own = student.stem == "student"  # what the parties measured is the run's own student
    text = rendered(
        "coordinator.report",
        "model_card.md.j2",
        name=run.name,
        file=student.name,
        kind="image" if task.inputs.kind == "image" else "tabular",
        method=method,
        task=task,
        quality=quality,
        constant=quality.constant if quality is not None else None,
        weak=weak_classes(quality, run),
        measured=run.measured if own else None,
        run=run,
        taught=run.taught,
        promises=[] if run.charged is None else promises_of(run.charged, run.record_is),
    )
    path = card_path(student)
    write_whole(path, text)
    return path


def weak_classes(quality: Quality | None, run: RunRecord) -> list[tuple[str, str]]:
    """The classes that the student knows badly, each with the reason."""
    weak = {}
    for row in [] if run.labels is None else run.labels.per_class:
        if row.labels < FEW_LABELS:
            weak[row.class_name] = f"learned from {row.labels or 'no'} label{'' if row.labels == 1 else 's'}"
    if run.measured is not None:
        weak |= {name: f"right in {recall}" for name, recall in run.measured.weak}
    if quality is not None:
        weak |= {row.class_name: f"right in {row.accuracy:.0%}" for row in quality.weak}
    return list(weak.items())


def _cell(text: str) -> str:
    """A text from the task as it stands, where Markdown would read parts of it as its own signs."""
    return "".join(f"\\{sign}" if sign in "|*_`<[]\\" else " " if sign in "\r\n" else sign for sign in text)
