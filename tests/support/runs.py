"""Small runs on scikit-learn's digits, and what they left."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collegium_reproduction.teacher_votes import teacher_votes

from collegium.coordinator.rounds.rounds import OnReply
from collegium.coordinator.run.run_folder import read_labels
from collegium.coordinator.run.run_record import PartyFailure, RunRecord, reached
from collegium.privacy.ledger.entry import Charge
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.messages import Request
from collegium.protocol.replies import ReplyBody
from collegium.protocol.requests import RequestBody
from collegium.protocol.secure_sum import Phase
from collegium.settings import validate_config
from collegium.simulations.cohort import PreparedRun, prepare_run, virtual_party
from collegium.simulations.config import SimulationConfig
from collegium.simulations.simulate import coordinator_of
from support.absent import absent
from support.copied import POSSIBLE, launch_copies

if POSSIBLE:
    launch_copies()

TINY: dict[str, Any] = {
    "name": "tiny",
    "seed": 3,
    "task": {"classes": [str(digit) for digit in range(10)], "inputs": {"kind": "image", "height": 8, "width": 8}},
    "private": {"source": "digits", "split": "all", "shuffle_seed": 0, "stop": 600},
    "pool": {"source": "digits", "split": "all", "shuffle_seed": 0, "start": 1200, "stop": 1300},
    "holdout": {"source": "digits", "split": "all", "shuffle_seed": 0, "start": 1500},
    "partition": {"kind": "iid", "parties": 3},
    "teachers": {"kind": "linear", "per_party": 2, "options": {"steps": 40}},
    "mechanism": {"name": "gnmax", "parameters": {"sigma": 2.0}},
    "budget": {"epsilon": 60.0},
    "queries": {"count": 12, "batch": 5},
    "student": {"method": "supervised", "options": {"steps": 2}},
}
"""Three parties with two linear teachers each, twelve queries in three rounds."""

FORESTS: dict[str, Any] = {"kind": "random-forest", "options": {"trees": 5}}
"""Teachers for whom a party's process need not load torch."""


def values(**sections: Any) -> dict[str, Any]:
    """TINY with some keys changed: a mapping changes keys of its section, anything else takes the key's place."""
    changed = dict(TINY)
    for key, value in sections.items():
        known = changed.get(key)
        changed[key] = known | value if isinstance(value, Mapping) and isinstance(known, dict) else value
    return changed


def but_for_time(record: RunRecord) -> RunRecord:
    """The record without the moments at which charges were made."""
    timeless = replace(reached(record.privacy), from_utc=None, until_utc=None)
    return record.model_copy(update={"privacy": timeless})


def tiny(**sections: Any) -> SimulationConfig:
    return validate_config(values(**sections), SimulationConfig, "test")


def write_config(path: Path, **sections: Any) -> Path:
    """The same as a TOML file."""
    path.write_text("\n".join(f"{key} = {toml(value)}" for key, value in values(**sections).items()) + "\n")
    return path


def toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, (str, Path)) else str(value)


class InProcess:
    """`Parties` without any transport: the same Party objects, asked one after the other."""

    def __init__(self, run: PreparedRun) -> None:
        self._run_id = run.config.name
        self._parties = {member.name: virtual_party(run.folder, index) for index, member in enumerate(run.cohort)}
        self._asked = 0

    def names(self) -> list[str]:
        return sorted(self._parties)

    def ask(
        self, requests: Mapping[str, RequestBody], *, timeout_s: float, on_reply: OnReply | None = None
    ) -> dict[str, ReplyBody]:
        replies = {}
        for name, body in requests.items():
            self._asked += 1
            replies[name] = self._parties[name].handle(Request(f"r{self._asked}", self._run_id, body)).body
            if on_reply is not None:
                on_reply(name, replies[name])
        return replies


def run_in_process(
    config: SimulationConfig, folder: Path, data_root: Path | None = None, missing: tuple[Phase, int] | None = None
) -> RunRecord:
    """The whole run in this process; its record. One party is ``missing`` in a phase of the sum of that number."""
    prepared = prepare_run(config, folder, data_root=data_root)
    parties = InProcess(prepared)
    if missing is not None:
        absent(parties, parties.names()[0], *missing)
    return coordinator_of(prepared, parties, None).run()


ANSI = re.compile(r"\x1b\[")


@dataclass(frozen=True)
class Paid:
    """What a run's ledger says: the queries charged so far and the labels given out."""

    queries: int
    charges: int
    labels: Mapping[str, int]
    epsilon: float
    head: str


def paid(folder: Path) -> Paid:
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        charges = [entry.content for entry in ledger.entries() if isinstance(entry.content, Charge)]
        return Paid(
            sum(charge.queries for charge in charges),
            len(charges),
            ledger.labels(),
            ledger.epsilon(),
            str(ledger.head()),
        )


def histograms(run: PreparedRun) -> list[list[int]]:
    """The votes of the run's teachers for its queries, in the order of labels.csv."""
    asked = [index for index, _ in read_labels(run.folder / "labels.csv")]
    votes: list[list[int]] = teacher_votes(run, run.public.pool.x[asked]).tolist()
    return votes


def labels_csv(folder: Path) -> str:
    return (folder / "labels.csv").read_text()


def failures(run: RunRecord) -> dict[str, list[PartyFailure]]:
    """Who failed and how, by party."""
    return {name: party.failures for name, party in run.parties.items() if party.failures}
