"""The report: one HTML page made from run.json alone."""

import math
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

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
from collegium.privacy.analysis.ledger_report import LedgerReport
from collegium.settings import toml_value
from collegium.whole_files import write_whole
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
_MOST_CLASSES = 12
"""Up to so many classes a confusion matrix is drawn."""


def write_report(run: RunRecord, path: Path) -> None:
    """Render ``run`` to ``path``; StorageError when it cannot be written."""
    write_whole(path, render(run))


def render(run: RunRecord) -> str:
    """The page as text."""
    privacy = run.charged
    student = None if run.student is None else run.student.quality
    promises = [] if privacy is None else promises_of(privacy, run.record_is)
    return rendered(
        "coordinator.report",
        "report.html.j2",
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
        same_again=SAME_AGAIN,
        evaluation=run.evaluation,
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


@cache
def templates(package: str) -> Environment:
    """The templates in the folder of ``collegium.<package>``; what pages and pictures show is escaped."""
    environment = Environment(
        loader=PackageLoader(f"collegium.{package}", "."),
        autoescape=lambda name: name is None or name.endswith((".html.j2", ".svg.j2")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        epsilon=lambda value: epsilon_text(float(value)),
        number=number,
        percent=_percent,
        printed=printed,
        log10=math.log10,
        toml=toml_value,
    )
    environment.globals["ticks"] = ticks
    return environment


def rendered(package: str, name: str, /, *shown: Mapping[str, Any], **further: Any) -> str:
    """The text of the template called ``name`` in the folder of ``collegium.<package>``, which shows these."""
    return templates(package).get_template(name).render(*shown, **further)


def promises_of(privacy: LedgerReport, record_is: str) -> list[dict[str, Any]]:
    """What may be promised to whom, the budget's own unit first: a name, ε, and its meaning in words and as a colour.

    ``record_is`` : what one record is, see `RunRecord.record_is`.
    """
    promises = []
    for name in dict.fromkeys((privacy.terms.unit, "record", "party")):
        if name not in privacy.units:
            continue
        epsilon = privacy.units[name]
        whose = record_is if name == "record" else "institution"
        _, _, how, colour = next(grade for grade in _GRADES if float(epsilon) <= grade[0])
        promise = {"unit": name, "unit_is": whose, "epsilon": epsilon, "means": plain_epsilon(epsilon)}
        promises.append(promise | {"how": how, "colour": colour})
    return promises


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
