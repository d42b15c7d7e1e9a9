"""``python -m benchmarks.chaos --faults 500 --seed 1 --json``: runs under faults, and whether each kept its promises.

A run is a consortium of real processes (``collegium coordinator serve`` and ``collegium party serve``) that labels its
pool by masked sums, a proxy between each party and the coordinator. Tens of faults hit each run; processes live through
them, or are started again where they were killed. Some runs cannot get every label: the budget or the parties' policies
allow less, or too many parties are killed for good. These have to stop cleanly. The exit status is 1 when anything was
violated.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchmarks.chaos.consortium import Consortium, needed_of
from benchmarks.chaos.faults import MIX, Fault, Kind, faults
from benchmarks.chaos.judging import judge, left_processes
from benchmarks.chaos.outcome import Outcome
from benchmarks.chaos.scenario import Scenario
from benchmarks.chaos.stop_conditions import StopCondition, stop_conditions
from collegium.errors import CollegiumError


def one_run(  # noqa: PLR0913 -- each is an option of the command
    folder: Path,
    seed: int,
    stop_condition: StopCondition,
    *,
    names: Sequence[str],
    queries: int,
    deadline_s: float,
    wanted: int,
    mix: dict[Kind, int] = MIX,
) -> Outcome:
    """One run in ``folder``, which must not exist, with up to ``wanted`` faults."""
    scene = Consortium(folder, stop_condition, seed=seed, names=names, queries=queries, deadline_s=deadline_s)
    scenario = Scenario(scene, faults(seed, names, deadline_s, mix), wanted=wanted)
    with scene:
        outcome = scenario.play()
        outcome.violations += left_processes(str(folder), set()) if outcome.state != "hung" else []
    try:
        outcome.violations += judge(scene, outcome)
    except CollegiumError as error:
        outcome.violations.append(f"{type(error).__name__}: {error}")
    return outcome


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=500, help="how many faults have to hit")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parties", type=int, default=4)
    parser.add_argument("--per-run", type=int, default=60, help="most faults that hit one run")
    parser.add_argument("--queries", type=int, default=300, help="per run, two in a round")
    parser.add_argument("--deadline", type=float, default=5.0, metavar="SECONDS", help="of a request to the parties")
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS", help="begin no run after this")
    parser.add_argument("--folder", type=Path, help="keep the runs here; otherwise those in which all was well go")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args(arguments)
    names = tuple(f"party-{number + 1}" for number in range(asked.parties))
    conditions = stop_conditions(asked.seed, names, needed_of(asked.parties))
    base = asked.folder or Path(tempfile.mkdtemp(prefix="chaos-"))
    began_s, outcomes = time.monotonic(), list[Outcome]()
    hit: Counter[str] = Counter()
    while hit.total() < asked.faults and time.monotonic() - began_s < asked.limit:
        number = len(outcomes)
        wanted = min(asked.per_run, asked.faults - hit.total())
        folder = base / f"run-{number + 1}"
        outcome = one_run(
            folder,
            1000 * asked.seed + number,
            next(conditions),
            names=names,
            queries=asked.queries,
            deadline_s=asked.deadline,
            wanted=wanted,
        )
        outcomes.append(outcome)
        hit += outcome.faults
        print(_line(number + 1, outcome), file=sys.stderr, flush=True)
    result = summary(outcomes, asked.seed)
    if asked.folder is None and not result["violations"]:
        import shutil

        shutil.rmtree(base)
    elif result["violations"]:
        print(f"the runs are kept in {base}", file=sys.stderr)
    print(json.dumps(result, indent=1) if asked.json else table(result))
    return 1 if result["violations"] else 0


def summary(outcomes: list[Outcome], seed: int) -> dict[str, Any]:
    """What is printed with ``--json``."""
    hit: Counter[str] = sum((outcome.faults for outcome in outcomes), Counter())
    runs = []
    for outcome in outcomes:
        run = {field.name: getattr(outcome, field.name) for field in fields(outcome) if field.name != "labels_seen"}
        runs.append(run | {"seconds": round(outcome.seconds, 1)})
    return {
        "seed": seed,
        "mix_percent": dict(MIX),
        "faults": hit.total(),
        "faults_by_kind": {kind: hit[kind] for kind in MIX},
        "runs": len(outcomes),
        "outcomes": dict(Counter(f"{outcome.stop_condition}: {outcome.state}" for outcome in outcomes)),
        "clean_stops": sum(len(outcome.clean_stops) for outcome in outcomes),
        "labels": sum(outcome.labels for outcome in outcomes),
        "queries_charged": sum(outcome.queries_charged for outcome in outcomes),
        "coordinator_processes": sum(outcome.lives for outcome in outcomes),
        "seconds": round(sum(outcome.seconds for outcome in outcomes), 1),
        "violations": [f"run {at + 1}: {text}" for at, outcome in enumerate(outcomes) for text in outcome.violations],
        "by_run": runs,
    }


def table(result: dict[str, Any]) -> str:
    lines = [f"{kind:<32}{number:>6}" for kind, number in result["faults_by_kind"].items()]
    lines += [f"{'faults':<32}{result['faults']:>6}", ""]
    for what in ("runs", "outcomes", "clean_stops", "labels", "queries_charged", "coordinator_processes", "seconds"):
        lines.append(f"{what.replace('_', ' '):<32}{result[what]!s:>6}")
    lines += ["", *(result["violations"] or ["nothing was violated"])]
    return "\n".join(lines)


def _line(number: int, outcome: Outcome) -> str:
    paid = f"{outcome.labels} labels, {outcome.queries_charged} charged, {outcome.rounds} rounds"
    what = f"{outcome.stop_condition}: {outcome.state}, {paid}"
    told = (
        f"run {number}: {outcome.faults.total()} faults, {what}, {outcome.lives} coordinators, {outcome.seconds:.0f} s"
    )
    return "\n  ".join([told, *outcome.clean_stops, *(f"VIOLATED {text}" for text in outcome.violations)])


__all__ = ["Fault", "main", "one_run", "summary"]

if __name__ == "__main__":
    sys.exit(main())
