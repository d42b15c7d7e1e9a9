"""The closing table of a run."""

import math
from pathlib import Path

from rich.console import Console
from rich.table import Table

from collegium.coordinator.run.run_record import RunRecord, reached


def closing_rows(run: RunRecord) -> list[tuple[str, str]]:
    """The rows of the table: pairs of a name and a value."""
    labels, privacy = reached(run.labels), reached(run.privacy)
    ready = sum(party.status == "ready" for party in run.parties.values())
    rows = [
        ("parties", f"{ready} of {len(run.parties)} ready"),
        ("queries", str(labels.asked)),
        ("answered", str(labels.answered)),
        *(
            (f"ε, one {name}", f"{_epsilon(privacy.units[name].charged.epsilon)} (δ = {privacy.delta:g})")
            for name in ("record", "party")
            if name in privacy.units
        ),
        ("label accuracy", _percent(run.label_accuracy)),
        ("student accuracy", _percent(run.student_accuracy)),
        ("non-private baseline", _percent(None if run.baseline is None else run.baseline.accuracy)),
    ]
    if labels.stopped:
        rows.append(("stopped", labels.stopped))
    return rows


def print_summary(run: RunRecord, folder: Path, console: Console) -> None:
    """Print the closing table, who failed and how, cautions, and where the files are."""
    table = Table(title=f"{run.name}: {run.state}", show_header=False, title_justify="left")
    for name, value in closing_rows(run):
        table.add_row(name, value)
    console.print(table)
    for name, party in sorted(run.parties.items()):
        for failure in party.failures:
            console.print(_printable(f"{name}, {failure.when}: {failure.outcome}"), highlight=False, markup=False)
    for caution in run.cautions:
        console.print(f"Caution: {caution}", highlight=False)
    console.print(f"Report: {folder / 'report.html'}", highlight=False, markup=False, soft_wrap=True)


def _epsilon(epsilon: float) -> str:
    return f"{epsilon:.2f}" if math.isfinite(epsilon) else "∞"


def _printable(text: str) -> str:
    """A text from a party, without characters that control a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _percent(fraction: float | None) -> str:
    return "–" if fraction is None else f"{100 * fraction:.2f} %"
