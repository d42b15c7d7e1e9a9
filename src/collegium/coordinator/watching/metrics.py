"""A snapshot of the consortium as Prometheus metrics.

There are few names and few labels: errors are labelled by their code, units by their name; no label names a party.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class SnapshotMetrics(Collector):
    """Every metric of a snapshot, as `Snapshots` makes it, that has a sample. For a registry of its own."""

    def __init__(self, snapshot: Callable[[], Mapping[str, Any]]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        return [metric for metric in _metrics(self._snapshot()) if metric.samples]


def _metrics(snapshot: Mapping[str, Any]) -> Iterable[Metric]:
    privacy, parties = snapshot["privacy"], snapshot["parties"].values()
    days = [party["certificate_days_left"] for party in parties if party["certificate_days_left"] is not None]

    def family(kind: Any, name: str, text: str, value: Any, label: str = "") -> Metric:
        """One value, or with a ``label`` one for each of its values; None has no sample."""
        if not label:
            return kind(f"collegium_{name}", text, value)  # type: ignore[no-any-return]
        made: Metric = kind(f"collegium_{name}", text, labels=[label])
        for key, one in sorted(value.items()):
            if one is not None:
                made.add_metric([key], one)  # type: ignore[attr-defined]
        return made

    gauge, counter = partial(family, GaugeMetricFamily), partial(family, CounterMetricFamily)

    yield gauge("parties_expected", "Parties that are enrolled or may still enrol.", snapshot["expected"])
    yield gauge("parties_connected", "Parties that are connected now.", snapshot["connected"])
    yield gauge("parties_quorum", "Parties that a round needs.", snapshot["quorum"])
    yield gauge("phase", "1 for the phase that the run is in now.", {snapshot["phase"]["step"]: 1}, "phase")
    yield gauge("study_info", "1 for the study that is served.", {snapshot["study"] or "own": 1}, "study")
    yield gauge("study_done", "How much of the study is done, from 0 to 1.", snapshot["share_done"])
    left = snapshot["phase"]["seconds_left"]
    yield gauge("phase_seconds_left", "Seconds to the end of the phase at its present pace.", left)
    yield gauge("queries", "Inputs that the run labels.", snapshot["queries"])
    yield counter("labels_issued", "Labels in the ledger.", privacy["labels"])
    yield counter("abstentions", "Queries left without a label.", privacy["abstentions"])
    for key, text in (
        ("spent", "Privacy charged so far, for one unit."),
        ("left", "Privacy left of the budget."),
        ("budget", "The budget."),
    ):
        yield gauge(f"epsilon_{key}", text, {unit: held[key] for unit, held in privacy["units"].items()}, "unit")
    seconds = snapshot["round_seconds"]
    yield HistogramMetricFamily(
        "collegium_round_seconds",
        "How long rounds took.",
        buckets=[*seconds["at_most"].items(), ("+Inf", seconds["count"])],
        sum_value=seconds["sum"],
    )
    yield counter("dropouts", "Parties left out of a round, by the reason.", snapshot["dropouts"], "code")
    refused = snapshot["refused_connections"]
    yield counter("refusals", "Connections refused since the start, by the reason.", refused, "code")
    yield counter("disconnections", "Connections lost since the start.", snapshot["disconnections"])
    yield counter("protocol_violations", "Breaches of the protocol since the start.", snapshot["protocol_violations"])
    yield gauge(
        "certificate_days_left", "Days until the first of the parties' certificates expires.", min(days, default=None)
    )
    started = datetime.fromisoformat(snapshot["started"]).timestamp()
    yield gauge("start_time_seconds", "When this process started, in seconds since 1970.", started)
