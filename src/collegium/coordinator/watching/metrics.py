"""A snapshot in Prometheus's text format, version 0.0.4.

Names and labels stay few: errors by their code, units by their name, no label per party.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Sample:
    value: float
    labels: Mapping[str, str] | None = None
    suffix: str = ""


@dataclass(frozen=True)
class Family:
    """A metric: what it counts, and its samples."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: tuple[Sample, ...]


def exposition(snapshot: Mapping[str, Any]) -> str:
    """What ``/metrics`` answers."""
    return "".join(_written(family) for family in families(snapshot) if family.samples)


def families(snapshot: Mapping[str, Any]) -> list[Family]:
    """Every metric of a snapshot."""
    privacy, parties = snapshot["privacy"], snapshot["parties"].values()
    days = [party["certificate_days_left"] for party in parties if party["certificate_days_left"] is not None]

    def gauge(name: str, text: str, value: float | None) -> Family:
        return Family(name, "gauge", text, () if value is None else (Sample(value),))

    def counter(name: str, text: str, value: float) -> Family:
        return Family(name, "counter", text, (Sample(value),))

    def counted(name: str, text: str, by_code: Mapping[str, int]) -> Family:
        return Family(name, "counter", text, tuple(_labelled("code", by_code)))

    def epsilon(name: str, text: str, key: str) -> Family:
        held = {unit: figures[key] for unit, figures in privacy["units"].items() if figures[key] is not None}
        return Family(name, "gauge", text, tuple(_labelled("unit", held)))

    return [
        gauge("collegium_parties_expected", "Parties that are enrolled or may still enrol.", snapshot["expected"]),
        gauge("collegium_parties_connected", "Parties that are connected now.", snapshot["connected"]),
        gauge("collegium_parties_quorum", "Parties that a round needs.", snapshot["quorum"]),
        Family(
            "collegium_phase",
            "gauge",
            "1 for what goes on now.",
            (Sample(1, {"phase": snapshot["phase"]["step"]}),),
        ),
        gauge("collegium_queries", "Queries that the run asks.", snapshot["queries"]),
        counter("collegium_labels_issued_total", "Labels in the ledger.", privacy["labels"]),
        counter("collegium_abstentions_total", "Queries left without a label.", privacy["abstentions"]),
        epsilon("collegium_epsilon_spent", "Privacy charged so far, for one unit.", "spent"),
        epsilon("collegium_epsilon_left", "Privacy left of the budget.", "left"),
        epsilon("collegium_epsilon_budget", "The budget.", "budget"),
        _rounds(snapshot["round_seconds"]),
        counted("collegium_dropouts_total", "Parties left out of a round, by why.", snapshot["dropouts"]),
        counted(
            "collegium_refusals_total", "Connections refused since the start, by why.", snapshot["refused_connections"]
        ),
        counter("collegium_disconnections_total", "Connections lost since the start.", snapshot["disconnections"]),
        counter(
            "collegium_protocol_violations_total",
            "Breaches of the protocol since the start.",
            snapshot["protocol_violations"],
        ),
        Family("collegium_jobs", "gauge", "Jobs in the queue, by state.", tuple(_jobs(snapshot["jobs"]))),
        gauge(
            "collegium_certificate_days_left",
            "Days until the first of the parties' certificates expires.",
            min(days, default=None),
        ),
        gauge(
            "collegium_start_time_seconds",
            "When this process started, in seconds since 1970.",
            datetime.fromisoformat(snapshot["started"]).timestamp(),
        ),
    ]


def _rounds(seconds: Mapping[str, Any]) -> Family:
    buckets = [Sample(count, {"le": limit}, "_bucket") for limit, count in seconds["at_most"].items()]
    rest = (
        Sample(seconds["count"], {"le": "+Inf"}, "_bucket"),
        Sample(seconds["sum"], suffix="_sum"),
        Sample(seconds["count"], suffix="_count"),
    )
    return Family("collegium_round_seconds", "histogram", "How long rounds took, those of jobs too.", (*buckets, *rest))


def _jobs(jobs: Iterable[Mapping[str, Any]]) -> Iterable[Sample]:
    counts: dict[str, int] = {}
    for job in jobs:
        counts[str(job["state"])] = counts.get(str(job["state"]), 0) + 1
    return _labelled("state", counts)


def _labelled(label: str, values: Mapping[str, float]) -> Iterable[Sample]:
    return (Sample(value, {label: name}) for name, value in sorted(values.items()))


def _written(family: Family) -> str:
    lines = [f"# HELP {family.name} {_escaped(family.help)}", f"# TYPE {family.name} {family.kind}"]
    for sample in family.samples:
        labels = ",".join(f'{name}="{_quoted(value)}"' for name, value in (sample.labels or {}).items())
        lines.append(f"{family.name}{sample.suffix}{f'{{{labels}}}' if labels else ''} {_number(sample.value)}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
