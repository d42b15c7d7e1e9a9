"""The closing table of a run, from what run.json says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_NONE = "–"


def closing_rows(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the table says: pairs of a name and a value."""
    labels, privacy = run["labels"], run["privacy"]
    units = privacy["units"]
    delta = privacy["delta"]
    rows = [
        ("parties", f"{_standing(run)} of {len(run['parties'])} ready"),
        ("queries", str(labels["asked"])),
        ("answered", str(labels["answered"])),
        ("ε, one record", f"{units['record']['wide']['epsilon']:.2f} (δ = {delta:g})"),
        ("ε, one party", f"{units['party']['wide']['epsilon']:.2f} (δ = {delta:g})"),
        ("label accuracy", _percent(labels.get("quality", {}).get("accuracy"))),
        ("student accuracy", _percent(run.get("student", {}).get("accuracy"))),
        ("non-private baseline", _percent(run.get("baseline", {}).get("accuracy"))),
    ]
    if labels["stopped"]:
        rows.append(("stopped", labels["stopped"]))
    return rows


def print_summary(run: Mapping[str, Any], folder: Path, console: Console) -> None:
    """Print the closing table, who failed and how, cautions, and where the files are."""
    table = Table(title=f"{run['name']}: {run['state']}", show_header=False, title_justify="left")
    for name, value in closing_rows(run):
        table.add_row(name, value)
    console.print(table)
    for name, party in sorted(run["parties"].items()):
        for failure in party["failures"]:
            console.print(f"{name}, {failure['when']}: {failure['outcome']}", highlight=False)
    for caution in run["cautions"]:
        console.print(f"Caution: {caution}", highlight=False)
    console.print(f"Report: {folder / 'report.html'}", highlight=False, soft_wrap=True)


def _standing(run: Mapping[str, Any]) -> int:
    return sum(party["standing"] == "ready" for party in run["parties"].values())


def _percent(fraction: float | None) -> str:
    return _NONE if fraction is None else f"{100 * fraction:.2f} %"
