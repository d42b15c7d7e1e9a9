"""What one coordinator bears: real sessions over TLS, masked rounds, beside Flower's simulation engine.

``python -m benchmarks.load --parties 250 --queries 1000 --json`` prints one JSON object: for one coordinator process
and hosts of many parties' sessions each, the seconds, CPU, peak memory and bytes of one masked round; with ``--flower
N`` the same round by N virtual parties on Flower's engine. The teachers are constants, so that nothing but the protocol
is measured, and the pool is at the parties already. ``--slow 1`` has a party answer only after the deadline;
``--connect-only 1000`` has so many sessions connect and stay, without a round.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.load_processes import CONNECT_S, COORDINATOR, HOST, coordinate, host, in_process, simulate_on_flower
from collegium.coordinator.settings.run_config import QueriesConfig
from collegium.errors import CollegiumError
from collegium.protocol.certificates import Authority
from collegium.protocol.identities import issue_kit
from collegium.settings import validate_config
from collegium.simulations.cohort import PreparedRun, prepare_run
from collegium.simulations.config import SimulationConfig

CLASSES = 10
RECORDS_PER_PARTY = 4
SIDE = 8
MEMORY_LIMIT_BYTES = 10**9
_RUN_S = 1800.0


def configuration(folder: Path, parties: int, queries: int, deadline_s: float) -> SimulationConfig:
    """A run over images of noise: the teachers do not look at them."""
    random = np.random.default_rng(parties)
    for name, count in (("private", parties * RECORDS_PER_PARTY), ("pool", queries)):
        x = random.integers(0, 256, (count, SIDE, SIDE, 1), dtype=np.uint8)
        np.savez(folder / f"{name}.npz", allow_pickle=False, x=x, y=np.arange(count) % CLASSES)
    settings = {
        "name": "load",
        "task": {
            "classes": [str(number) for number in range(CLASSES)],
            "inputs": {"kind": "image", "height": SIDE, "width": SIDE},
        },
        "private": {"source": str(folder / "private.npz")},
        "pool": {"source": str(folder / "pool.npz")},
        "partition": {"kind": "iid", "parties": parties},
        "teachers": {"kind": "constant"},
        "votes": {"mode": "masked", "deadline_s": deadline_s},
        "mechanism": {"name": "gnmax", "parameters": {"sigma": 40.0}},
        "budget": {"epsilon": 50.0, "bound": "classic"},  # no game is played: it would take longer than the round
        "queries": QueriesConfig(count=queries, batch=queries).model_dump(exclude_none=True),
        "engine": {"device": "cpu"},
    }
    return validate_config(settings, SimulationConfig, "benchmarks.load")


def prepare(base: Path, parties: int, queries: int, deadline_s: float, *, certificates: bool) -> PreparedRun:
    """A run's folder under ``base``, with certificates where sessions are to be real."""
    run = prepare_run(configuration(base, parties, queries, deadline_s), base / "run", data_root=None)
    if certificates:
        authority = Authority.create(run.config.name)
        issue_kit(authority, run.folder / COORDINATOR, "coordinator", "coordinator", hosts=[HOST])
        for member in run.cohort:
            issue_kit(authority, member.credentials, member.name, "party")
    return run


class Processes:
    """Children that are gone when the block ends, however it ends."""

    def __init__(self) -> None:
        self._context = get_context("spawn")
        self._stack = ExitStack()

    def start(self, work: Callable[..., None], *arguments: Any) -> tuple[int, Connection]:
        """Start a role; its process id and our end of its pipe."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=in_process, args=(work, theirs, *arguments))
        process.start()
        theirs.close()
        self._stack.callback(ours.close)
        self._stack.callback(process.join)
        self._stack.callback(process.terminate)
        assert process.pid is not None
        return process.pid, ours

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def hear(pipe: Connection, timeout_s: float) -> Any:
    """What a role says next; raises the error that it ended with."""
    if not pipe.poll(timeout_s):
        raise TimeoutError(f"a process of the benchmark said nothing for {timeout_s:g} s")
    said = pipe.recv()
    if isinstance(said, Exception):
        raise said
    return said


def over_grpc(
    parties: int, queries: int, *, hosts: int, slow: int = 0, deadline_s: float, hold_s: float | None = None
) -> dict[str, Any]:
    """Real sessions over TLS: one round, or with ``hold_s`` none but so many seconds of being connected."""
    with tempfile.TemporaryDirectory(prefix="collegium-load-") as base, Processes() as processes:
        run = prepare(Path(base), parties, queries, deadline_s, certificates=True)
        _, coordinator = processes.start(coordinate, run.folder)
        port = hear(coordinator, CONNECT_S)
        started = [
            processes.start(
                host, run.folder, port, list(range(number, parties, hosts)), slow, 3 * deadline_s if slow else 0.0
            )
            for number in range(hosts)
        ]
        coordinator.send(([pid for pid, _ in started], hold_s))
        result: dict[str, Any] = hear(coordinator, CONNECT_S + _RUN_S)
        ends = [end for _, pipe in started for end in hear(pipe, CONNECT_S)]
        result["farewells"] = ends.count("farewell")
    asked = {"parties": parties, "queries": queries, "classes": CLASSES, "slow": slow, "deadline_s": deadline_s}
    return {**asked, "party_processes": hosts, **result}


def over_flower(parties: int, queries: int, deadline_s: float) -> dict[str, Any]:
    """The same round by virtual parties on Flower's simulation engine."""
    with tempfile.TemporaryDirectory(prefix="collegium-load-") as base, Processes() as processes:
        run = prepare(Path(base), parties, queries, deadline_s, certificates=False)
        _, pipe = processes.start(simulate_on_flower, run.folder)
        return {"parties": parties, "queries": queries, "classes": CLASSES, **hear(pipe, _RUN_S)}


def targets(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each promise beside what was measured."""
    ours = result["grpc"]
    memory = ours["coordinator_peak_memory_bytes"]
    checks = {
        "coordinator_peak_memory_bytes": {
            "value": memory,
            "limit": MEMORY_LIMIT_BYTES,
            "met": memory < MEMORY_LIMIT_BYTES,
        },
        "sessions_lost": {"value": ours["sessions_lost"], "limit": 0, "met": ours["sessions_lost"] == 0},
    }
    if "holding" in ours:
        here, wanted = ours["holding"]["connected"], ours["parties"]
        checks["connected_at_the_end"] = {"value": here, "limit": wanted, "met": here == wanted}
    if ours["slow"]:
        # A party that is too slow for one phase is not waited for in the others.
        seconds, limit = ours["round"]["seconds"], 2 * ours["deadline_s"]
        checks["round_s_with_a_slow_party"] = {"value": seconds, "limit": limit, "met": seconds < limit}
    return checks


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--parties", type=int, default=250, help="sessions of the round")
    parser.add_argument("--queries", type=int, default=1000, help="queries of the round")
    parser.add_argument("--party-processes", type=int, default=2, help="processes that share the sessions")
    parser.add_argument("--slow", type=int, default=0, help="parties that answer after three deadlines only")
    parser.add_argument("--deadline", type=float, default=300.0, help="seconds that each phase of the round may take")
    parser.add_argument("--connect-only", type=int, metavar="N", help="N sessions connect and stay; no round")
    parser.add_argument("--hold", type=float, default=60.0, help="with --connect-only: for so many seconds")
    parser.add_argument(
        "--flower", type=int, default=0, metavar="N", help="the same round by N parties on Flower; 0: not"
    )
    chosen = parser.parse_args()
    parties, hold_s = chosen.parties, None
    if chosen.connect_only is not None:
        parties, hold_s = chosen.connect_only, chosen.hold
    if min(parties, chosen.flower or 3) < 3 or chosen.queries < 1 or chosen.party_processes < 1 or chosen.deadline <= 0:
        parser.error("a masked sum needs 3 parties; queries, processes and the deadline must be above 0")
    machine = {"processor": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
    result: dict[str, Any] = {"machine": machine | {"load_average": os.getloadavg()[0]}}
    result["grpc"] = over_grpc(
        parties,
        chosen.queries,
        hosts=chosen.party_processes,
        slow=chosen.slow,
        deadline_s=chosen.deadline,
        hold_s=hold_s,
    )
    if chosen.flower:
        try:
            result["flower_simulation"] = over_flower(chosen.flower, chosen.queries, chosen.deadline)
        except CollegiumError as error:  # what was measured over gRPC is still worth printing
            result["flower_simulation"] = {"parties": chosen.flower, "failed": str(error)}
    result["targets"] = targets(result)
    if chosen.json:
        print(json.dumps(result, indent=2))
        return
    for name in ("grpc", "flower_simulation"):
        for key, value in result.get(name, {}).items():
            print(f"{name}.{key}: {value}")
    for name, check in result["targets"].items():
        print(f"{name}: {check['value']:.6g} against {check['limit']:g}: {'met' if check['met'] else 'MISSED'}")


if __name__ == "__main__":
    main()
