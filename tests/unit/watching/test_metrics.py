"""Metrics: the exposition format to the letter, and the numbers of the snapshot."""

from __future__ import annotations

import re
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.snapshots import exposition, snapshot

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
NUMBER = r"[-+]?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|Inf|NaN)"
LINE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? ({NUMBER})")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}


def check_strictly(text: str) -> None:
    """Each family once, HELP and TYPE first, its samples together and none of them twice; a line feed at the end."""
    assert text.endswith("\n") and "\n\n" not in text and "\r" not in text
    kinds: dict[str, str] = {}
    current, seen = "", set()
    for line in text.splitlines():
        if comment := re.fullmatch(rf"# HELP ({NAME}) (?:[^\\\n]|\\\\|\\n)+", line):
            current = comment[1]
            assert current not in kinds, f"{current} begins twice"
        elif comment := re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge|histogram)", line):
            assert comment[1] == current and current not in kinds
            kinds[current] = comment[2]
        else:
            sample = LINE.fullmatch(line)
            assert sample is not None, line
            assert sample[1] in {current + suffix for suffix in SUFFIXES[kinds[current]]}, line
            assert (sample[1], sample[2]) not in seen, line
            seen.add((sample[1], sample[2]))
    assert {name for name, kind in kinds.items() if kind == "counter"} == {
        name for name in kinds if name.endswith("_total")
    }


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What an independent reader finds."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_text_keeps_to_the_format() -> None:
    check_strictly(exposition(snapshot()))


@pytest.mark.parametrize(
    "broken",
    [
        'a{b="c"d} 1\n',
        "# HELP a b\n# TYPE a counter\na 1\n",
        "# HELP a b\n# TYPE a gauge\na 1\na 1\n",
        "# HELP a b\n# TYPE a gauge\nb 1\n",
        "# HELP a b\n# TYPE a gauge\na 1,5\n",
        "# HELP a b\n# TYPE a gauge\na 1",
    ],
)
def test_a_breach_of_the_format_would_be_found(broken: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        check_strictly(broken)


def test_a_prometheus_reads_the_snapshots_numbers() -> None:
    found = samples(exposition(snapshot()))
    expected: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {
        ("collegium_parties_expected", ()): 5,
        ("collegium_parties_connected", ()): 3,
        ("collegium_labels_issued_total", ()): 12,
        ("collegium_abstentions_total", ()): 1,
        ("collegium_epsilon_spent", (("unit", "record"),)): 1.5123456,
        ("collegium_epsilon_spent", (("unit", "party"),)): 41.3,
        ("collegium_epsilon_left", (("unit", "record"),)): 1.9876544,
        ("collegium_round_seconds_sum", ()): 7.25,
        ("collegium_round_seconds_count", ()): 3,
        ("collegium_round_seconds_bucket", (("le", "1"),)): 0,
        ("collegium_round_seconds_bucket", (("le", "+Inf"),)): 3,
        ("collegium_dropouts_total", (("code", "deadline"),)): 2,
        ("collegium_refusals_total", (("code", "identity"),)): 4,
        ("collegium_disconnections_total", ()): 1,
        ("collegium_phase", (("phase", "votes"),)): 1,
        ("collegium_certificate_days_left", ()): 301,
        ("collegium_start_time_seconds", ()): 1772344800,
    }
    assert expected.items() <= found.items()
    # Only the unit that has a budget has anything left of it.
    assert ("collegium_epsilon_left", (("unit", "party"),)) not in found


def test_no_label_names_a_party() -> None:
    assert "clinic" not in exposition(snapshot())


def test_labels_that_hold_quotes_and_infinite_values_are_written_as_the_format_has_them() -> None:
    awkward = 'a "b" \\ c\nd'
    shown = snapshot()
    shown["privacy"] |= {"units": {awkward: {"spent": float("inf"), "left": None, "budget": None}}}
    text = exposition(shown)
    check_strictly(text)
    assert samples(text)["collegium_epsilon_spent", (("unit", awkward),)] == float("inf")


def test_a_consortium_that_has_not_begun_has_metrics_too() -> None:
    nothing: dict[str, Any] = snapshot()
    nothing["privacy"] |= {"units": {}, "labels": 0}
    nothing["round_seconds"] = {"count": 0, "sum": 0, "last": None, "at_most": {"1": 0}}
    nothing |= {"dropouts": {}, "refused_connections": {}, "parties": {}}
    text = exposition(nothing)
    check_strictly(text)
    assert "epsilon" not in text
    assert samples(text)["collegium_labels_issued_total", ()] == 0
