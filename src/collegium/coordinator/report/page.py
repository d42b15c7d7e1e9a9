"""What the page shows, taken from run.json: research figures only where they are asked for."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from collegium.coordinator.report import charts
from collegium.coordinator.run.run_folder import write_whole

_TEMPLATE = "report.html.j2"
_HERE = files("collegium.coordinator.report")
LOOK = _HERE.joinpath("look.css").read_text(encoding="utf-8")
"""Colours, type and tables of every page."""
STYLE = LOOK + _HERE.joinpath("report.css").read_text(encoding="utf-8")
LONGEST_TEXT = 300
LARGEST_TOLD = math.log(1e6)
"""The largest ε that is told as a factor."""
_GRADES = (
    (0.5, "a very strong guarantee"),
    (1.0, "a strong guarantee"),
    (3.0, "a moderate guarantee"),
    (8.0, "a weak guarantee"),
    (math.inf, "hardly any guarantee"),
)


def write_report(run: Mapping[str, Any], path: Path, *, research: bool = False) -> None:
    """Render ``run`` to ``path``; StorageError when it cannot be written."""
    write_whole(path, render(run, research=research))


def render(run: Mapping[str, Any], *, research: bool = False) -> str:
    """The page as text.

    Parameters
    ----------
    run : what run.json holds.
    research : also show ``research_only``, marked as private. Without it nothing of it is on the page.
    """
    environment = Environment(
        loader=PackageLoader("collegium.coordinator.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, percent=_percent, printed=printed)
    shown = {key: value for key, value in run.items() if key != "research_only"}
    extra = run.get("research_only") if research else None
    labels, student, baseline = (shown.get(key) or {} for key in ("labels", "student", "baseline"))
    return environment.get_template(_TEMPLATE).render(
        style=STYLE,
        run=shown,
        labels=labels,
        student=student,
        baseline=baseline,
        privacy=shown["privacy"],
        parties=_parties(shown.get("parties", {})),
        headline=_headline(shown["privacy"]),
        promises=_promises(shown["privacy"]),
        period=_period(shown["privacy"]),
        epsilon_chart=_epsilon_chart(shown["privacy"]),
        class_chart=_class_chart(labels),
        quality_chart=_quality_chart(labels),
        student_chart=_accuracy_chart(student, "Accuracy of the student per class"),
        comparison_chart=_comparison_chart(student, baseline, extra),
        research=extra,
        gap_chart=_gap_chart(extra),
    )


def _headline(privacy: Mapping[str, Any]) -> Any:
    """The ε that may be claimed, by the ledger's entries alone; None before any charge."""
    if "units" not in privacy:
        return None
    return privacy["guarantee"]


def _promises(privacy: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What may be promised to whom, the budget's own unit first: a name, ε, and its meaning in words."""
    if "units" not in privacy:
        return []
    held = [name for name in (privacy["unit"], "record", "party") if name in privacy["units"]]
    promises = []
    for name in dict.fromkeys(held):
        own = name == privacy["unit"]
        # Where charges depend on answers, only the budget's unit has a filter that kept it.
        if privacy["adaptive"] and not own:
            continue
        epsilon = _headline(privacy) if own else privacy["units"][name]["wide"]["epsilon"]
        promises.append({"unit": name, "epsilon": epsilon, "means": _plain_epsilon(epsilon)})
    return promises


def _period(privacy: Mapping[str, Any]) -> str:
    """The days on which labels were paid for; empty where that is not known."""
    begun, ended = (str(privacy.get(key) or "")[:10] for key in ("from_utc", "until_utc"))
    return begun if begun == ended else f"{begun} to {ended}"


def _parties(parties: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those that failed first, so that nobody overlooks them; equal failures of a party gathered."""
    rows = []
    for name, party in parties.items():
        by_outcome: dict[str, list[str]] = {}
        for failure in party["failures"]:
            by_outcome.setdefault(failure["outcome"], []).append(failure["when"])
        failures = [{"outcome": outcome, "when": ", ".join(when)} for outcome, when in by_outcome.items()]
        rows.append({"name": name, **party, "failures": failures})
    return sorted(rows, key=lambda row: (not row["failures"], natural(row["name"])))


def natural(name: str) -> list[tuple[int, str]]:
    """A key that puts party-2 before party-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _epsilon_chart(privacy: Mapping[str, Any]) -> str:
    points = [(float(x), float(y)) for x, y in privacy.get("by_queries", [])]
    return charts.line_chart(
        points, title="ε against queries", x_label="queries asked", y_label="ε", limit=privacy["budget"]
    )


def _class_chart(labels: Mapping[str, Any]) -> str:
    per_class = labels.get("per_class", [])
    most = max((row["labels"] for row in per_class), default=0)
    if not most:
        return ""
    return charts.bar_chart(
        [(row["class"], row["labels"] / most, str(row["labels"])) for row in per_class], title="Labels issued per class"
    )


def _quality_chart(labels: Mapping[str, Any]) -> str:
    return _accuracy_chart(labels.get("quality", {}), "Share of right labels per true class")


def _accuracy_chart(quality: Mapping[str, Any], title: str) -> str:
    rows = quality.get("per_class", [])
    bars = [(row["class"], row["accuracy"], f"{_percent(row['accuracy'])} of {row['inputs']}") for row in rows]
    return charts.bar_chart(bars, title=title)


def _comparison_chart(
    student: Mapping[str, Any], baseline: Mapping[str, Any], research: Mapping[str, Any] | None
) -> str:
    rows: list[tuple[str, float | None]] = []
    if research and "teacher_accuracy_mean" in research:
        rows.append(("mean teacher", research["teacher_accuracy_mean"]))
    if student.get("accuracy") is not None:
        rows.append(("student", student["accuracy"]))
    if baseline.get("accuracy") is not None:
        rows.append(("non-private", baseline["accuracy"]))
    if not rows:
        return ""
    return charts.bar_chart([(name, value, _percent(value)) for name, value in rows], title="Accuracy compared")


def _gap_chart(research: Mapping[str, Any] | None) -> str:
    if not research:
        return ""
    gaps = research["gap_histogram"]
    return charts.histogram(
        gaps["edges"],
        gaps["queries"],
        title="Gap between the top two classes",
        x_label="gap, share of the teachers",
        y_label="queries",
    )


def printed(text: str) -> str:
    """At most so much of a text that came from elsewhere as a page bears."""
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def number(value: Any) -> str:
    """A figure with three to four significant digits; infinity and absence in words."""
    if value is None:
        return "–"
    if value in ("inf", math.inf):
        return "∞"
    if isinstance(value, float):
        text = f"{value:.3g}" if abs(value) < 1e-3 or abs(value) >= 1e4 else f"{value:.4g}"
        return re.sub(r"e([+-])0+", r"e\1", text).replace("e+", "e")
    return str(value)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _plain_epsilon(value: Any) -> str:
    """What ε means to someone who has to decide, without flattering it."""
    if value in ("inf", math.inf):
        return "There is no guarantee."
    epsilon = float(value)
    if epsilon > LARGEST_TOLD:
        return "All that is promised is a factor beyond a million: in practice no guarantee."
    grade = next(words for limit, words in _GRADES if epsilon <= limit)
    factor = math.exp(epsilon)
    times = f"{factor:.2f}" if factor < 10 else f"{factor:,.0f}"
    return f"No outcome became more than {times} times as likely or unlikely: {grade}."
