"""The closing table of a run, from what run.json says."""

from __future__ import annotations

import math
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
        *(
            (f"ε, one {name}", f"{_epsilon(units[name])} (δ = {delta:g})")
            for name in ("record", "party")
            if name in units
        ),
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
            console.print(_printable(f"{name}, {failure['when']}: {failure['outcome']}"), highlight=False, markup=False)
    for caution in run["cautions"]:
        console.print(f"Caution: {caution}", highlight=False)
    console.print(f"Report: {folder / 'report.html'}", highlight=False, markup=False, soft_wrap=True)


def _standing(run: Mapping[str, Any]) -> int:
    return sum(party["standing"] == "ready" for party in run["parties"].values())


def _epsilon(unit: Mapping[str, Any]) -> str:
    epsilon = float(unit["wide"]["epsilon"])  # run.json holds the word "inf" where there is no guarantee
    return f"{epsilon:.2f}" if math.isfinite(epsilon) else "∞"


def _printable(text: str) -> str:
    """What a party sent, without what would steer the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _percent(fraction: float | None) -> str:
    return _NONE if fraction is None else f"{100 * fraction:.2f} %"
