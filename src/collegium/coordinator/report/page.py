"""The report: one HTML page made from run.json alone."""

import math
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from collegium.coordinator.report.statement_words import worth_of_delta
from collegium.coordinator.run.label_set import Quality
from collegium.coordinator.run.run_folder import plain
from collegium.coordinator.run.run_record import (
    SAME_AGAIN,
    BaselineRecord,
    LabelsRecord,
    PartyRecord,
    RoundRecord,
    RunRecord,
)
from collegium.privacy.analysis.evaluation import Measures
from collegium.privacy.analysis.ledger_report import LedgerReport
from collegium.whole_files import write_whole
from collegium_accounting.analysis.epsilons import value_of
from collegium_accounting.terminal import epsilon_text

_HERE = files("collegium.coordinator.report")
LOOK = _HERE.joinpath("look.css").read_text(encoding="utf-8")
"""Colours, type and tables of every page."""
STYLE = LOOK + _HERE.joinpath("report.css").read_text(encoding="utf-8")
LONGEST_TEXT = 300
LARGEST_TOLD = math.log(1e6)
"""The largest ε that is told as a factor."""
_GRADES = (
    (0.5, "a very strong guarantee", "very strongly", "good"),
    (1.0, "a strong guarantee", "strongly", "good"),
    (3.0, "a moderate guarantee", "moderately", "fair"),
    (8.0, "a weak guarantee", "weakly", "bad"),
    (math.inf, "hardly any guarantee", "hardly", "bad"),
)
"""Up to which ε: what it is called, how it protects, and the colour of its line; as in docs/choosing-noise.md."""
_WEAK_CLASS = 0.5
"""A class of which the student gets a smaller share right is named in the verdict."""
_MOST_CLASSES = 12
"""Up to so many classes a confusion matrix is drawn."""


def write_report(run: RunRecord, path: Path) -> None:
    """Render ``run`` to ``path``; StorageError when it cannot be written."""
    write_whole(path, render(run))


def render(run: RunRecord) -> str:
    """The page as text."""
    privacy = run.privacy if run.privacy is not None and run.privacy.from_utc is not None else None
    student = None if run.student is None else run.student.quality
    promises = [] if privacy is None else promises_of(privacy, run.record_is)
    return (
        templates("coordinator.report")
        .get_template("report.html.j2")
        .render(
            style=STYLE,
            run=run,
            asked=plain(run.asked),
            labels=run.labels,
            student=run.student,
            student_quality=student,
            baseline=run.baseline,
            privacy=privacy,
            unit_is=run.record_is if privacy is None or privacy.terms.unit == "record" else privacy.terms.unit,
            parties=_parties(run.parties),
            promises=promises,
            verdict=_verdict(run, promises, student),
            evaluation=run.evaluation,
            delta_words=_delta_words(privacy),
            on_scale=[
                (f"one {one['unit_is']}", one["epsilon"]) for one in promises if one["epsilon"] not in ("inf", math.inf)
            ],
            limits=[limit for limit, *_ in _GRADES[:-1]],
            confusion=None if student is None or len(student.per_class) > _MOST_CLASSES else student.confusion,
            mistakes=_mistakes(student),
            rounds=_rounds(run.rounds),
            period="" if privacy is None else _period(privacy),
            spent=[] if privacy is None else [point for point in privacy.by_queries if math.isfinite(point[1])],
            per_class=_per_class(run.labels),
            label_accuracy=_accuracies(None if run.labels is None else run.labels.quality),
            student_accuracy=_accuracies(student),
            compared=_compared(student, run.baseline),
        )
    )


def _delta_words(privacy: LedgerReport | None) -> str:
    return "" if privacy is None else worth_of_delta(privacy.delta, adaptive=privacy.adaptive, values=privacy.values)


@cache
def templates(package: str) -> Environment:
    """The templates in the folder of ``collegium.<package>``; whatever they show is escaped, except in Markdown."""
    environment = Environment(
        loader=PackageLoader(f"collegium.{package}", "."),
        autoescape=lambda name: name is None or not name.endswith(".md.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        epsilon=lambda value: epsilon_text(float(value)),
        number=number,
        percent=_percent,
        printed=printed,
        value=value_of,
        log10=math.log10,
    )
    environment.globals["ticks"] = ticks
    return environment


def promises_of(privacy: LedgerReport, record_is: str) -> list[dict[str, Any]]:
    """What may be promised to whom, the budget's own unit first: a name, ε, and its meaning in words.

    ``record_is`` : what one record is, see `RunRecord.record_is`.
    """
    promises = []
    for name in dict.fromkeys((privacy.terms.unit, "record", "party")):
        if name not in privacy.units:
            continue
        epsilon = privacy.units[name].epsilon
        whose = record_is if name == "record" else "institution"
        promises.append({"unit": name, "unit_is": whose, "epsilon": epsilon, "means": plain_epsilon(epsilon)})
    return promises


def _verdict(run: RunRecord, promises: list[dict[str, Any]], student: Quality | None) -> list[tuple[str, str, str]]:
    """Of persons or rows, institutions and the model: the subject, one sentence, and its colour."""
    lines = [] if run.refused is None else [("This run", f"is not published: {run.refused}.", "bad")]
    if run.labels is not None and run.labels.stopped == SAME_AGAIN:
        lines.append(("This student", f"is no new one: {SAME_AGAIN}.", "bad"))
    if run.groups is not None and run.groups.why is not None:
        lines.append(("Groups", f"{run.groups.why}.", "bad"))
    whose = "Persons" if run.record_is == "person" else "Rows (a person may have several)"
    for unit, subject in (("record", whose), ("party", "Institutions")):
        epsilon = next((one["epsilon"] for one in promises if one["unit"] == unit), None)
        if not run.private:
            lines.append((subject, "not protected: the noise can be computed again.", "bad"))
        elif epsilon is None:
            lines.append((subject, "nothing is promised.", "bad" if promises else "fair"))
        else:
            _, _, how, colour = next(grade for grade in _GRADES if float(epsilon) <= grade[0])
            lines.append((subject, f"{how} protected, ε = {epsilon_text(float(epsilon))}.", colour))
    measured = None if run.evaluation is None else run.evaluation.measures
    if run.refused is not None:
        measured = student = None
    on_model = _verdict_on_model(student) if measured is None or student is not None else _verdict_measured(measured)
    if (check := run.pool_check) is not None:
        colour = "fair" if check.found is None or check.found.p_value is None else "good"
        lines.append(("The pool", str(check), "bad" if check.found is not None and check.found.flagged else colour))
    return [*lines, ("The model", *on_model)]


def _verdict_measured(measured: Measures) -> tuple[str, str]:
    """On the model, from what the institutions measured on their own records."""
    if measured.accuracy is None or measured.constant is None:
        return "its quality drowned in the noise of the measurement: spend more ε on it.", "fair"
    always = f"always answering “{measured.constant_class}” ({_percent(measured.constant.value)})"
    text = f"right for {measured.accuracy} of the institutions' own records"
    if not measured.better_than_constant:
        return f"{text}: not shown to be better than {always}.", "bad"
    pairs = [(name, found) for name, found in zip(measured.classes, measured.recall, strict=True) if found is not None]
    weak = [f"“{name}” {_percent(found.value)}" for name, found in pairs if found.value < _WEAK_CLASS]
    told = f" Weak classes: {', '.join(weak[:3])}." if weak else ""
    return f"{text}; {always} is worse.{told}", "fair" if weak else "good"


def _verdict_on_model(student: Quality | None) -> tuple[str, str]:
    if student is None or student.accuracy is None:
        return "its quality was not measured.", "fair"
    text, colour = f"right for {_percent(student.accuracy)} of {student.inputs} held-out inputs", "good"
    if student.constant is not None:
        answer, share = student.constant
        error = math.sqrt(max(share * (1.0 - share), 1e-9) / student.inputs)
        better = (student.accuracy - share) / error
        if better < 2.0:
            text += f": no better than always answering “{answer}” ({_percent(share)})"
            colour = "bad"
        else:
            text += f"; always answering “{answer}” would be right for {_percent(share)}"
    weak = [row for row in student.per_class if row.accuracy is not None and row.accuracy < _WEAK_CLASS]
    if weak:
        told = ", ".join(f"“{row.class_name}” {_percent(row.accuracy)}" for row in weak[:3])
        more = f" and {len(weak) - 3} more classes" if len(weak) > 3 else ""
        text, colour = f"{text}. Weak classes: {told}{more}", "bad" if colour == "bad" else "fair"
    return text + ".", colour


def _mistakes(student: Quality | None) -> list[tuple[str, str, int]]:
    """The most frequent mistakes of the student: true class, answer, inputs."""
    if student is None or student.confusion is None:
        return []
    names = [row.class_name for row in student.per_class]
    found = [
        (names[true], names[given], inputs)
        for true, row in enumerate(student.confusion)
        for given, inputs in enumerate(row)
        if inputs and true != given
    ]
    return sorted(found, key=lambda one: -one[2])[:5]


def _rounds(rounds: list[RoundRecord]) -> list[dict[str, Any]]:
    """Rounds in their order; those in a row that went alike are one row, with their mean duration."""
    rows: list[dict[str, Any]] = []
    for one in rounds:
        alike = one.model_dump(include={"queries", "asked", "answered", "teachers", "failed"})
        if rows and rows[-1]["alike"] == alike:
            rows[-1]["last"], rows[-1]["seconds"] = one.round, rows[-1]["seconds"] + one.seconds
        else:
            rows.append({"alike": alike, "first": one.round, "last": one.round, "seconds": one.seconds})
    return rows


def _period(privacy: LedgerReport) -> str:
    """The days on which labels were paid for; empty where that is not known."""
    begun, ended = ((at or "")[:10] for at in (privacy.from_utc, privacy.until_utc))
    return begun if begun == ended else f"{begun} to {ended}"


def _parties(parties: dict[str, PartyRecord]) -> list[dict[str, Any]]:
    """Those that failed first, so that nobody overlooks them; equal failures of a party gathered."""
    rows = []
    for name, party in parties.items():
        by_outcome: dict[str, list[str]] = {}
        for failure in party.failures:
            by_outcome.setdefault(failure.outcome, []).append(failure.when)
        failures = [{"outcome": outcome, "when": ", ".join(when)} for outcome, when in by_outcome.items()]
        rows.append({"name": name, **party.model_dump(), "failures": failures})
    return sorted(rows, key=lambda row: (not row["failures"], natural(row["name"])))


def natural(name: str) -> list[tuple[int, str]]:
    """A key that puts party-2 before party-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _per_class(labels: LabelsRecord | None) -> list[tuple[str, float, str]]:
    """The bars of the labels issued per class; none where there are no labels."""
    rows = [] if labels is None else labels.per_class
    most = max((row.labels for row in rows), default=0)
    return [(row.class_name, row.labels / most, str(row.labels)) for row in rows] if most else []


def _accuracies(quality: Quality | None) -> list[tuple[str, float | None, str]]:
    rows = [] if quality is None else quality.per_class
    return [(row.class_name, row.accuracy, f"{_percent(row.accuracy)} of {row.inputs}") for row in rows]


def _compared(student: Quality | None, baseline: BaselineRecord | None) -> list[tuple[str, float, str]]:
    shown = [
        ("student", None if student is None else student.accuracy),
        ("non-private", None if baseline is None else baseline.accuracy),
    ]
    return [(name, value, _percent(value)) for name, value in shown if value is not None]


def ticks(highest: float) -> list[float]:
    """From 0 to at least ``highest`` in 3 to 6 round steps: the marks of an axis."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / 5
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * scale for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * scale >= rough * (1 - 1e-9))
    return [number * step for number in range(math.ceil(highest / step - 1e-9) + 1)]


def printed(text: str) -> str:
    """A text from elsewhere, cut to `LONGEST_TEXT` characters."""
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def number(value: Any) -> str:
    """A figure with three to four significant digits, or without decimals; infinity and absence in words."""
    if value is None:
        return "–"
    if value in ("inf", math.inf):
        return "∞"
    if isinstance(value, float):
        if 1e4 <= abs(value) < 1e7:
            return f"{value:,.0f}"
        text = f"{value:.3g}" if abs(value) < 1e-3 or abs(value) >= 1e7 else f"{value:.4g}"
        return re.sub(r"e([+-])0+", r"e\1", text).replace("e+", "e")
    return str(value)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def plain_epsilon(value: Any) -> str:
    """What ε means to someone who has to decide, without flattering it."""
    if value in ("inf", math.inf):
        return "There is no guarantee."
    epsilon = float(value)
    if epsilon > LARGEST_TOLD:
        return "All that is promised is a factor beyond a million: in practice no guarantee."
    grade = next(words for limit, words, *_ in _GRADES if epsilon <= limit)
    factor = math.exp(epsilon)
    times = f"{factor:.2f}" if factor < 10 else f"{factor:,.0f}"
    return f"No outcome became more than {times} times as likely or unlikely: {grade}."
