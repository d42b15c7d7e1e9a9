"""What a run shows: one bar per step at a terminal, plain lines where output is piped, and the closing table."""

import math
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from collegium.coordinator.run.run_record import RunRecord, reached
from collegium.coordinator.run.surroundings import Progress as Step
from collegium.logs import printable
from collegium_accounting.terminal import epsilon_text

_TITLES = {
    "describe": "parties present",
    "hold_pool": "pool, MB at parties",
    "fit": "teachers fitted",
    "votes": "votes in",
    "labels": "labels issued",
    "pretraining": "pretraining's steps",
    "networks": "networks' steps",
    "student": "student's steps",
    "pool_check": "pool compared",
    "evaluation": "measured by parties",
    "baseline": "baseline's steps",
    "report": "report written",
    "canaries": "canaries looked at",
}

_MEGABYTE = 1_000_000


class RunProgress:
    """Shows steps as they come; a context manager. Safe to call from another thread than the console's."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tasks: dict[str, TaskID] = {}
        self._shown_tenths: dict[str, int] = {}
        self._bars = Progress(
            TextColumn("{task.description:<20}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> "RunProgress":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, step: Step) -> None:
        title = _TITLES.get(step.step, step.step)
        if step.step == "hold_pool":
            step = Step(step.step, math.ceil(step.done / _MEGABYTE), math.ceil(step.total / _MEGABYTE))
        if self._console.is_terminal:
            if step.step not in self._tasks:
                self._tasks[step.step] = self._bars.add_task(title, total=step.total)
            self._bars.update(self._tasks[step.step], completed=step.done, total=step.total)
            return
        tenths = 10 * step.done // max(1, step.total)
        if self._shown_tenths.get(step.step) != tenths:
            self._shown_tenths[step.step] = tenths
            self._console.print(f"{title}: {step.done} of {step.total}", highlight=False)


def closing_rows(run: RunRecord) -> list[tuple[str, str]]:
    """The rows of the table: pairs of a name and a value."""
    labels, privacy = reached(run.labels), reached(run.privacy)
    ready = sum(party.status == "ready" for party in run.parties.values())
    rows = [
        ("parties", f"{ready} of {len(run.parties)} ready"),
        ("queries", str(labels.asked)),
        ("answered", str(labels.answered)),
        *(
            (f"ε, one {name}", f"{epsilon_text(privacy.units[name])} (δ = {privacy.delta:g})")
            for name in ("record", "party")
            if name in privacy.units
        ),
        ("label accuracy", percent(run.label_accuracy)),
        ("student accuracy", percent(run.student_accuracy)),
        *([("on the parties' records", str(run.measured.accuracy or "drowned in noise"))] if run.measured else []),
        ("non-private baseline", percent(None if run.baseline is None else run.baseline.accuracy)),
    ]
    if labels.stopped:
        rows.append(("stopped" if labels.left_out else "note", labels.stopped))
    return rows


def print_summary(run: RunRecord, folder: Path, console: Console) -> None:
    """Print the closing table, who failed and how, cautions, and where the files are."""
    table = Table(title=f"{run.name}: {run.state}", show_header=False, title_justify="left")
    for name, value in closing_rows(run):
        table.add_row(name, value)
    console.print(table)
    for name, party in sorted(run.parties.items()):
        for failure in party.failures:
            console.print(printable(f"{name}, {failure.when}: {failure.outcome}"), highlight=False, markup=False)
    for caution in run.cautions:
        console.print(f"Caution: {caution}", highlight=False)
    if run.pool_check is not None:
        console.print(f"Pool check: {run.pool_check}", highlight=False, markup=False)
    console.print(f"Report: {folder / 'report.html'}", highlight=False, markup=False, soft_wrap=True)
    if run.student is not None:
        use = f"Use it: collegium student predict {folder / 'student.safetensors'} NEW -o predictions.csv"
        console.print(use, highlight=False, markup=False, soft_wrap=True)


def percent(fraction: float | None) -> str:
    """A share as people read it; a dash where it is not known."""
    return "–" if fraction is None else f"{100 * fraction:.2f} %"
