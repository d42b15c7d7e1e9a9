"""Progress and the closing table, at a terminal and piped."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

from rich.console import Console
from support.run_records import privacy, run_record

from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.run.surroundings import Progress
from collegium.simulations.progress import RunProgress, closing_rows, print_summary


def piped() -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=80), text


def record(**changes: Any) -> RunRecord:
    failed = {"birch": ("ready", "round 1", "unreachable"), "cedar": ("deadline", "preparation", "deadline")}
    parties: dict[str, Any] = {"ash": {"status": "ready"}}
    for name, (status, when, outcome) in failed.items():
        parties[name] = {"status": status, "failures": [{"when": when, "outcome": outcome}]}
    known = {
        "name": "oaks",
        "state": "finished",
        "labels": labels(answered=18, quality=quality(0.5)),
        "parties": parties,
        "student": {"method": "supervised", "fitted_from": "", "quality": quality(0.9876)},
    }
    return run_record(**({"privacy": privacy(1.234, 5.678)} | known | changes))


def labels(**changes: Any) -> dict[str, Any]:
    return {"asked": 20, "abstained": 0, "left_out": 0, "stopped": None, "per_class": []} | changes


def quality(accuracy: float) -> dict[str, Any]:
    return {"inputs": 100, "accuracy": accuracy, "per_class": []}


def test_piped_progress_is_a_line_per_tenth() -> None:
    console, text = piped()
    with RunProgress(console) as progress:
        for done in range(1, 101):
            progress(Progress("votes", done, 100))
    lines = text.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[0] == "votes in: 1 of 100" and lines[-1] == "votes in: 100 of 100"


def test_piped_progress_has_no_control_characters() -> None:
    console, text = piped()
    with RunProgress(console) as progress:
        progress(Progress("fit", 1, 5))
    assert text.getvalue() == "teachers fitted: 1 of 5\n"


def test_a_terminal_gets_one_bar_per_step() -> None:
    text = io.StringIO()
    console = Console(file=text, width=80, force_terminal=True)
    with RunProgress(console) as progress:
        progress(Progress("fit", 1, 5))
        progress(Progress("votes", 2, 5))
        progress(Progress("fit", 5, 5))
    shown = text.getvalue()
    assert "teachers fitted" in shown and "5/5" in shown and "2/5" in shown


def test_the_closing_table_has_every_figure() -> None:
    rows = dict(closing_rows(record(baseline={"method": "supervised", "records": 100, "accuracy": 0.99})))
    assert rows == {
        "parties": "2 of 3 ready",
        "queries": "20",
        "answered": "18",
        "ε, one record": "1.234 (δ = 1e-05)",
        "ε, one party": "5.678 (δ = 1e-05)",
        "label accuracy": "50.00 %",
        "student accuracy": "98.76 %",
        "non-private baseline": "99.00 %",
    }


def test_what_was_not_measured_is_a_dash_and_why_it_stopped_is_said() -> None:
    rows = dict(closing_rows(record(labels=labels(answered=3, left_out=17, stopped="0.9 of 1 is spent"), student=None)))
    assert rows["label accuracy"] == rows["student accuracy"] == rows["non-private baseline"] == "–"
    assert rows["stopped"] == "0.9 of 1 is spent"


def test_an_infinite_epsilon_is_shown() -> None:
    rows = dict(closing_rows(record(privacy=privacy(math.inf, math.inf))))
    assert rows["ε, one record"] == rows["ε, one party"] == "∞ (δ = 1e-05)"


def test_who_failed_and_how_is_printed_and_where_the_report_is() -> None:
    console, text = piped()
    print_summary(record(cautions=["Not private."]), Path("runs/oaks"), console)
    shown = text.getvalue()
    assert "birch, round 1: unreachable\n" in shown
    assert "cedar, preparation: deadline\n" in shown
    assert "Caution: Not private.\n" in shown
    assert "Report: runs/oaks/report.html\n" in shown
    assert shown.endswith("Use it: collegium student predict runs/oaks/student.safetensors NEW -o predictions.csv\n")
    assert "\x1b" not in shown


def test_what_a_party_said_cannot_paint_the_terminal() -> None:
    parties = {"ash": {"status": "x", "failures": [{"when": "round 1", "outcome": "data: [red]\x1b[31mhello[/red]"}]}}
    text = io.StringIO()
    print_summary(record(parties=parties), Path("r"), Console(file=text, width=80, force_terminal=True))
    assert "[red]" in text.getvalue() and "\x1b[31mhello" not in text.getvalue()
