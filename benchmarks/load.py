"""What one coordinator bears: real sessions over TLS, rounds of votes and of class sums, beside Flower.

``python -m benchmarks.load --parties 250 --queries 1000 --json`` prints one JSON object: for one coordinator process
and hosts of many parties' sessions each, the seconds, CPU, peak memory and bytes of one masked round; with ``--flower
N`` the same round by N virtual parties on Flower's engine. The teachers are constants, so that nothing but the protocol
is measured, and the pool is at the parties already.

``--class-sums 50000`` adds the default: a pool check, eight rounds of class sums of so many entries and an evaluation,
of parties with four records each; and the CPU that Flower's own SecAgg+ takes for as many sums. ``--queries 0`` leaves
out the votes.

``--slow 1`` has a party answer only after the deadline; ``--connect-only 1000`` has so many sessions connect and stay,
without a round.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import secure_sum
from benchmarks.load_processes import CONNECT_S, COORDINATOR, HOST, coordinate, host, in_process, simulate_on_flower
from collegium.coordinator.settings.run_config import QueriesConfig
from collegium.errors import CollegiumError
from collegium.protocol.certificates import Authority
from collegium.protocol.identities import issue_kit
from collegium.settings import validate_config
from collegium.simulations.cohort import PreparedRun, prepare_run
from collegium.simulations.config import SimulationConfig

CLASSES = 10
LANDMARKS = 1000
"""Of class sums, at most: longer sums have more classes, from `CLASSES` on."""
RECORDS_PER_PARTY = 4
SIDE = 8
MEMORY_LIMIT_BYTES, MEMORY_LIMIT_OF_SUMS_BYTES = 10**9, 1_500_000_000
SECONDS = {(250, 50_000, 8): 90.0, (1000, 50_000, 8): 600.0}
"""What class sums may take, by parties, entries and rounds."""
_RUN_S = 5400.0


@dataclass(frozen=True)
class Workload:
    """What is asked of how many parties.

    Parameters
    ----------
    queries : of one round of votes; 0 for class sums.
    length : entries of a class sum, about; see `LANDMARKS`.
    rounds : of class sums; a pool check comes before them and an evaluation after.
    groups : of parties that are summed by themselves, in class sums and counts.
    deadline_s : for each exchange of messages.
    """

    parties: int
    queries: int = 0
    length: int = 0
    rounds: int = 8
    groups: int = 1
    deadline_s: float = 300.0

    @property
    def classes(self) -> int:
        return CLASSES if self.queries else max(CLASSES, self.length // LANDMARKS)

    def configuration(self, folder: Path) -> SimulationConfig:
        """A run over noise, with little for a party to compute."""
        random, shape = np.random.default_rng(self.parties), (SIDE, SIDE, 1) if self.queries else (SIDE,)
        landmarks = self.length // self.classes - 1
        inputs = self.queries or max(100, 2 * landmarks)
        for name, count in (("private", self.parties * RECORDS_PER_PARTY), ("pool", inputs)):
            x = random.integers(0, 256, (count, *shape), dtype=np.uint8)
            y = np.arange(count) % self.classes
            np.savez(folder / f"{name}.npz", allow_pickle=False, x=x if self.queries else x / np.float32(256), y=y)
        settings: dict[str, Any] = {
            "name": "load",
            "task": {"classes": [str(number) for number in range(self.classes)]},
            "private": {"source": str(folder / "private.npz")},
            "pool": {"source": str(folder / "pool.npz")},
            "partition": {"kind": "iid", "parties": self.parties},
            "queries": QueriesConfig(count=inputs, batch=inputs).model_dump(exclude_none=True),
            "engine": {"device": "cpu"},
        }
        if self.queries:  # the teachers do not look at the images, and no game is played: it would take longer
            settings["task"]["inputs"] = {"kind": "image", "height": SIDE, "width": SIDE}
            settings["teachers"] = {"kind": "constant"}
            settings["votes"] = {"mode": "masked", "deadline_s": self.deadline_s}
            settings["mechanism"] = {"name": "gnmax", "parameters": {"sigma": 40.0}}
            settings["budget"] = {"epsilon": 50.0, "bound": "classic"}
        else:
            settings["task"]["inputs"] = {"kind": "vector", "size": SIDE}
            settings["votes"] = {"groups": self.groups, "deadline_s": self.deadline_s}
            settings["budget"] = {"epsilon": 1.0, "records_per_party": 1000}
            settings["sums"] = {"landmarks": landmarks, "rounds": self.rounds}
            settings["pool_check"] = settings["evaluation"] = {}
        return validate_config(settings, SimulationConfig, "benchmarks.load")


def prepare(base: Path, asked: Workload, *, certificates: bool) -> PreparedRun:
    """A run's folder under ``base``, with certificates where sessions are to be real."""
    run = prepare_run(asked.configuration(base), base / "run", data_root=None)
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


def over_grpc(asked: Workload, *, hosts: int, slow: int = 0, hold_s: float | None = None) -> dict[str, Any]:
    """Real sessions over TLS: one run, or with ``hold_s`` none but so many seconds of being connected."""
    with tempfile.TemporaryDirectory(prefix="collegium-load-") as base, Processes() as processes:
        run = prepare(Path(base), asked, certificates=True)
        _, coordinator = processes.start(coordinate, run.folder)
        port, late_s = hear(coordinator, CONNECT_S), 3 * asked.deadline_s if slow else 0.0
        started = [
            processes.start(host, run.folder, port, list(range(number, asked.parties, hosts)), slow, late_s)
            for number in range(hosts)
        ]
        coordinator.send(([pid for pid, _ in started], hold_s))
        result: dict[str, Any] = hear(coordinator, CONNECT_S + _RUN_S)
        ends = [end for _, pipe in started for end in hear(pipe, CONNECT_S)]
        result["farewells"] = ends.count("farewell")
    return {**asdict(asked), "classes": asked.classes, "slow": slow, "party_processes": hosts, **result}


def over_flower(asked: Workload) -> dict[str, Any]:
    """The same round by virtual parties on Flower's simulation engine."""
    with tempfile.TemporaryDirectory(prefix="collegium-load-") as base, Processes() as processes:
        run = prepare(Path(base), asked, certificates=False)
        _, pipe = processes.start(simulate_on_flower, run.folder)
        return {**asdict(asked), "classes": asked.classes, **hear(pipe, _RUN_S)}


def secagg_plus(asked: Workload) -> dict[str, Any]:
    """CPU seconds of the coordinator for as many sums by Flower's SecAgg+, whose own primitives are timed.

    Nobody drops out, as in our run; the seconds for some owners of secrets are scaled to all.
    """
    one = secure_sum.measure_flower(5, 0.0, asked.length)
    scale = asked.rounds * asked.parties / one["parties"]
    return one | {"parties": asked.parties, "sums": asked.rounds, "coordinator_cpu_s": one["coordinator_cpu_s"] * scale}


def targets(ours: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each promise beside what was measured."""
    values: dict[str, tuple[float, float]] = {
        "coordinator_peak_memory_bytes": (
            ours["coordinator_peak_memory_bytes"],
            MEMORY_LIMIT_BYTES if ours["queries"] else MEMORY_LIMIT_OF_SUMS_BYTES,
        ),
        "sessions_lost": (ours["sessions_lost"], 1),
    }
    if ours["slow"]:
        # A party that is too slow for one phase is not waited for in the others.
        values["round_s_with_a_slow_party"] = ours["round"]["seconds"], 2 * ours["deadline_s"]
    if (asked := (ours["parties"], ours["length"], ours["rounds"])) in SECONDS:
        values["seconds"] = ours["seconds"], SECONDS[asked]
    checks = {name: {"value": own, "limit": limit, "met": own < limit} for name, (own, limit) in values.items()}
    if "holding" in ours:
        here, wanted = ours["holding"]["connected"], ours["parties"]
        checks["connected_at_the_end"] = {"value": here, "limit": wanted, "met": here == wanted}
    return checks


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--parties", type=int, default=250, help="sessions of the round")
    parser.add_argument("--queries", type=int, default=1000, help="queries of the round of votes; 0: no votes")
    parser.add_argument("--class-sums", type=int, default=0, metavar="N", help="the default, with sums of N entries")
    parser.add_argument("--rounds", type=int, default=8, help="of class sums")
    parser.add_argument("--groups", type=int, default=1, help="of parties in class sums")
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
    if min(parties, chosen.flower or 3) < 3 or chosen.party_processes < 1 or chosen.deadline <= 0:
        parser.error("a masked sum needs 3 parties; processes and the deadline must be above 0")
    if not (chosen.queries >= 1 or chosen.class_sums) or 0 < chosen.class_sums < 10 * CLASSES:
        parser.error(f"ask for 1 query or more, or for class sums of {10 * CLASSES} entries or more")
    votes = Workload(parties, queries=chosen.queries, deadline_s=chosen.deadline)
    about = chosen.class_sums, chosen.rounds, chosen.groups, chosen.deadline
    report(chosen, votes if chosen.queries else None, Workload(parties, 0, *about), hold_s)


def report(chosen: argparse.Namespace, votes: Workload | None, sums: Workload, hold_s: float | None) -> None:
    """Run what was asked for, and print it."""
    machine = {"processor": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
    result: dict[str, Any] = {"machine": machine | {"load_average": os.getloadavg()[0]}}
    if votes is not None:
        result["grpc"] = over_grpc(votes, hosts=chosen.party_processes, slow=chosen.slow, hold_s=hold_s)
    if sums.length:
        result["class_sums"] = over_grpc(sums, hosts=chosen.party_processes)
        result["flower_secagg_plus"] = secagg_plus(sums)
    if votes is not None and chosen.flower:
        try:
            result["flower_simulation"] = over_flower(replace(votes, parties=chosen.flower))
        except CollegiumError as error:  # what was measured over gRPC is still worth printing
            result["flower_simulation"] = {"parties": chosen.flower, "failed": str(error)}
    result["targets"] = {name: targets(result[name]) for name in ("grpc", "class_sums") if name in result}
    if chosen.json:
        print(json.dumps(result, indent=2))
        return
    for name in ("grpc", "class_sums", "flower_secagg_plus", "flower_simulation"):
        for key, value in result.get(name, {}).items():
            print(f"{name}.{key}: {value}")
    for run, checks in result["targets"].items():
        for name, check in checks.items():
            verdict = "met" if check["met"] else "MISSED"
            print(f"{run}.{name}: {check['value']:.6g} against {check['limit']:g}: {verdict}")


if __name__ == "__main__":
    main()
