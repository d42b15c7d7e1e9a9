"""One made consortium over NVFlare's simulator and over our own sessions: the same labels, and what each costs.

Its people's files are written as docs/nvflare.md shows them, and a seed, so that two runs can be compared.
NVFlare is imported after our sessions, which allow TLS 1.3 alone only where they load gRPC first.
"""

import functools
import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.run_record import RunRecord, reached
from collegium.coordinator.settings.run_config import AUTO
from collegium.errors import Unreachable
from collegium.settings import read_config, toml_value
from collegium.simulations.cohort import PreparedRun, prepare_run
from collegium.simulations.config import SimulationConfig
from collegium.simulations.launcher import launch
from collegium.whole_files import make_folder, write_whole
from collegium_nvflare.allowed import allow
from collegium_nvflare.job import agreed_policy, write_job
from collegium_nvflare.own_folder import SERVER, VARIABLE

NAME = "clinics"
SEED = 0
"""Of the parties' noise; the coordinator, which has no seed over NVFlare, takes 0 where no noise is drawn."""
RECORDS_EACH, POOL = 150, 300

SETTINGS = """\
name = "clinics"
{own}
[pool]
source = "pool.csv"

[budget]
epsilon = 4.0

[sums]
rounds = {rounds}

[votes]
quorum = 0.7
deadline_s = {deadline_s}

[task]
classes = ["well", "ill"]

[task.inputs]
kind = "table"
columns = [
  {{ name = "age", kind = "number", low = 0.0, high = 100.0 }},
  {{ name = "pressure", kind = "number", low = 0.0, high = 100.0 }},
  {{ name = "glucose", kind = "number", low = 0.0, high = 100.0 }},
]
"""
SESSIONS = """\
seed = 0

[private]
source = "records.csv"
label = "outcome"

[partition]
parties = {parties}
"""
FEDERATION = """
[consortium]
address = "localhost:7443"
enrolment = "localhost:7444"
parties = {names}
folder = "consortium"
"""


def made_records(seed: int, count: int) -> pd.DataFrame:
    """Rows of a table and their class, which follows from two of its columns."""
    values = np.random.default_rng(seed).uniform(0, 100, (count, 3)).round(2)
    frame = pd.DataFrame(values, columns=["age", "pressure", "glucose"])
    return frame.assign(outcome=np.where(values[:, 0] + values[:, 2] > 100, "ill", "well"))


@dataclass(frozen=True)
class Cost:
    """What a run came to, and what it took.

    Parameters
    ----------
    labels_sha256, student_sha256 : of the files that it wrote.
    labels : how many inputs of the pool have one.
    wall_s, cpu_s : of the whole command, with the start of its processes.
    sums_s : of the sums over all parties alone.
    """

    labels_sha256: str
    student_sha256: str
    labels: int
    wall_s: float
    cpu_s: float
    sums_s: float


@dataclass(frozen=True)
class Trial:
    """The files of a consortium below ``folder``, and the two ways to run it."""

    folder: Path
    prepared: PreparedRun

    @classmethod
    def make(cls, folder: Path, *, parties: int = 8, deadline_s: float = 60.0, rounds: int | str = AUTO) -> "Trial":
        """Write what its people write; StorageError where it cannot be written."""
        make_folder(folder)
        made_records(0, parties * RECORDS_EACH).to_csv(folder / "records.csv", index=False)
        made_records(1, POOL).drop(columns="outcome").to_csv(folder / "pool.csv", index=False)
        sessions = folder / "sessions.toml"
        settings = functools.partial(SETTINGS.format, deadline_s=deadline_s, rounds=toml_value(rounds))
        write_whole(sessions, settings(own=SESSIONS.format(parties=parties)))
        config = read_config(sessions, SimulationConfig)
        trial = cls(folder, prepare_run(config, folder / "sessions", data_root=folder))
        federation = FEDERATION.format(names=toml_value(list(trial.sites)))
        write_whole(trial.consortium, settings(own=federation))
        trial._write_sites()
        return trial

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.prepared.cohort)

    @property
    def consortium(self) -> Path:
        return self.folder / "consortium.toml"

    @property
    def own(self) -> str:
        """Where each site keeps what is its own, as `own_folder.VARIABLE` says it."""
        return str(self.folder / "sites" / "{site}")

    @property
    def run(self) -> RunFolder:
        """What the server keeps of the run over NVFlare."""
        return RunFolder(self.folder / "sites" / SERVER / "consortium" / "run")

    @property
    def workspace(self) -> Path:
        """NVFlare's."""
        return self.folder / "workspace"

    def policy_of(self, site: str) -> Path:
        return self.folder / "sites" / site / "policy.toml"

    def job(self) -> Path:
        """Write the job; returns its folder."""
        return write_job(self.consortium, self.folder / "jobs")

    def start(self) -> "subprocess.Popen[bytes]":
        """``nvflare simulator`` on the job, with a process for every site; what it says is in ``simulator.log``."""
        job = self.job()
        allow(self.workspace)
        command = [sys.executable, "-m", "nvflare.cli", "simulator", str(job), "-w", str(self.workspace)]
        with (self.folder / "simulator.log").open("wb") as log:
            return subprocess.Popen(
                [*command, "-t", str(len(self.sites))],
                cwd=self.folder,
                env=os.environ | {VARIABLE: self.own},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def over_nvflare(self) -> Cost:
        """Run it over NVFlare's simulator; Unreachable where that fails."""

        def simulator() -> RunRecord:
            status, record = self.start().wait(), self.run.read()
            if status or record is None:
                raise Unreachable(f"nvflare simulator ended with {status}: {self.folder / 'simulator.log'} says why")
            return record

        return _cost(simulator, self.run)

    def over_sessions(self) -> Cost:
        """Run it with a process for every party over mutual TLS."""
        return _cost(functools.partial(launch, self.prepared), RunFolder(self.prepared.folder))

    def _write_sites(self) -> None:
        agreed, _ = agreed_policy(self.consortium)
        for member in self.prepared.cohort:
            file = self.policy_of(member.name).with_name("party.toml")
            make_folder(file.parent)
            lines = [
                f"parties = {toml_value(list(self.sites))}",
                f"noise_seed = {SEED}",
                "[data]",
                f"source = {toml_value(member.source.source)}",
                "one_row_each = true",
            ]
            write_whole(file, "\n".join(lines) + "\n")
            write_whole(self.policy_of(member.name), agreed + "seeded_noise = true\n")


def compared(parties: int, repeats: int) -> dict[str, Any]:
    """The same consortium both ways, ``repeats`` times in turn, each time in a folder of its own."""
    runs: dict[str, list[Cost]] = {"own sessions": [], "NVFlare's simulator": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="collegium-nvflare-") as place:
            trial = Trial.make(Path(place) / "trial", parties=parties)
            runs["own sessions"].append(trial.over_sessions())
            runs["NVFlare's simulator"].append(trial.over_nvflare())
    every = [cost for costs in runs.values() for cost in costs]
    same = len({(cost.labels_sha256, cost.student_sha256) for cost in every}) == 1
    cells = {over: [asdict(cost) for cost in costs] for over, costs in runs.items()}
    return {"parties": parties, "nvflare": version("nvflare"), "same_labels_and_student": same, "runs": cells}


def shown(result: dict[str, Any]) -> str:
    """The result as a table, each figure the median of the repeats."""
    lines = [f"{'':<22}{'all, s':>10}{'CPU, s':>10}{'sums, s':>10}{'labels':>10}"]
    for over, costs in result["runs"].items():
        row = [median(cost[name] for cost in costs) for name in ("wall_s", "cpu_s", "sums_s")]
        lines.append(f"{over:<22}" + "".join(f"{value:>10.1f}" for value in row) + f"{costs[0]['labels']:>10}")
    same = "the same to the bit" if result["same_labels_and_student"] else "NOT the same"
    lines.append(f"{result['parties']} parties, NVFlare {result['nvflare']}; labels and student are {same}")
    return "\n".join(lines)


def _cost(run: Callable[[], RunRecord], folder: RunFolder) -> Cost:
    began_s, before_s = time.monotonic(), _cpu_s()
    record = run()
    return Cost(
        hashlib.sha256(folder.labels_csv.read_bytes()).hexdigest(),
        hashlib.sha256(folder.student.read_bytes()).hexdigest(),
        reached(record.labels).answered,
        round(time.monotonic() - began_s, 2),
        round(_cpu_s() - before_s, 2),
        round(sum(one.seconds for one in record.rounds), 2),
    )


def _cpu_s() -> float:
    """Of this process and of all that it waited for."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
