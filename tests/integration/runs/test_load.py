"""The load benchmark, small: real sessions over TLS, several to a process, one of them too slow."""

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
    assert {name: check["met"] for name, check in result["targets"].items()} == {
        "coordinator_peak_memory_bytes": True,
        "sessions_lost": True,
        "round_s_with_a_slow_party": True,
    }
