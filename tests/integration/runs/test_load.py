"""The load benchmark, small: real sessions over TLS, several to a process, one of them too slow; and the default."""

from __future__ import annotations

import json
from pathlib import Path

from support.processes import output_of, start

ROOT = Path(__file__).resolve().parents[3]
PARTIES, QUERIES, CLASSES, DEADLINE_S = 5, 20, 10, 15


def test_a_slow_party_costs_the_others_one_deadline_and_the_bytes_are_counted() -> None:
    typed = f"--parties {PARTIES} --queries {QUERIES} --slow 1 --deadline {DEADLINE_S} --json"
    result = json.loads(output_of(start("-m", "benchmarks.load", *typed.split(), folder=ROOT)))
    ours = result["grpc"]
    round_ = ours["round"]
    assert round_["answered"] == PARTIES - 1 and round_["labels"] == QUERIES
    assert round_["last_votes_s"] < DEADLINE_S <= round_["seconds"]
    # A masked vector has 2 bytes a count at the least.
    assert round_["bytes_received"] > 2 * QUERIES * CLASSES * (PARTIES - 1)
    assert round_["bytes_sent"] > 0 and min(round_["cpu_s"].values()) > 0
    assert ours["farewells"] == PARTIES
    assert {name: check["met"] for name, check in result["targets"]["grpc"].items()} == {
        "coordinator_peak_memory_bytes": True,
        "sessions_lost": True,
        "round_s_with_a_slow_party": True,
    }


def test_the_default_is_measured_question_by_question() -> None:
    typed = f"--parties {PARTIES} --queries 0 --class-sums 200 --rounds 2 --json"
    result = json.loads(output_of(start("-m", "benchmarks.load", *typed.split(), folder=ROOT)))
    ours = result["class_sums"]
    ready, *asked = ours["questions"]
    assert ready["name"] == "ready"
    assert [one["name"] for one in asked] == ["coverage", "class-sums", "class-sums", "evaluation"]
    assert all(one["answered"] == PARTIES for one in asked)
    # The masked vectors of a sum of 200 entries have 8 bytes each.
    assert all(one["bytes_received"] > 8 * 200 * PARTIES for one in asked if one["name"] == "class-sums")
    assert ours["sessions_lost"] == 0 and ours["farewells"] == PARTIES
    assert result["flower_secagg_plus"]["coordinator_cpu_s"] > 0
