"""A consortium of NVFlare's sites on this machine: made records, the files that its people write, and the job."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from collegium_nvflare.job import write_job

from collegium.settings import toml_value

SITES = tuple(f"site-{number}" for number in range(1, 9))
COLUMNS = ("age", "pressure", "glucose")
SEED = 0
"""Of the parties' noise. The coordinator has none, and takes 0 for what is no noise."""

CONSORTIUM = """\
name = "clinics"

[consortium]
address = "localhost:7443"
enrolment = "localhost:7444"
parties = {sites}
folder = "consortium"

[pool]
source = "pool.csv"

[budget]
epsilon = 8.0

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


def records_of(number: int, count: int = 150) -> pd.DataFrame:
    """Rows of one site, with their class."""
    values = np.random.default_rng(number).uniform(0, 100, (count, len(COLUMNS)))
    frame = pd.DataFrame(values.round(2), columns=list(COLUMNS))
    return frame.assign(outcome=np.where(values[:, 0] + values[:, 2] > 100, "ill", "well"))


@dataclass
class Scene:
    """The files of a consortium below ``folder``, and the commands of NVFlare on them."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, *, deadline_s: float = 60.0) -> Scene:
        scene = cls(folder)
        records_of(99, 200)[list(COLUMNS)].to_csv(folder / "pool.csv", index=False)
        scene.consortium.write_text(CONSORTIUM.format(sites=toml_value(list(SITES)), deadline_s=deadline_s))
        collegium("nvflare", "policy", str(scene.consortium), "-o", str(folder / "policy.toml"))
        for number, site in enumerate(SITES):
            scene.write_site(site, number)
        return scene

    @property
    def consortium(self) -> Path:
        return self.folder / "consortium.toml"

    @property
    def run(self) -> Path:
        return self.folder / "server" / "consortium" / "run"

    def write_site(self, site: str, number: int) -> None:
        """What an institution writes, and a seed, so that two runs can be compared."""
        own = self.folder / "sites" / site
        own.mkdir(parents=True)
        records_of(number).to_csv(own / "records.csv", index=False)
        lines = [
            f"parties = {toml_value(list(SITES))}",
            f"noise_seed = {SEED}",
            "[data]",
            f"source = {toml_value(str(own / 'records.csv'))}",
            'label = "outcome"',
            "one_row_each = true",
        ]
        (own / "party.toml").write_text("\n".join(lines) + "\n")
        shutil.copyfile(self.folder / "policy.toml", own / "policy.toml")
        self.add_to_policy(site, "seeded_noise = true")

    def add_to_policy(self, site: str, line: str) -> None:
        with (self.folder / "sites" / site / "policy.toml").open("a") as file:
            file.write(line + "\n")

    def job(self) -> Path:
        party_file = str(self.folder / "sites" / "{site}" / "party.toml")
        place = str(self.folder / "server")
        return write_job(self.consortium, self.folder / "jobs", place=place, party_file=party_file)

    def simulate(self, job: Path) -> subprocess.CompletedProcess[str]:
        """Run ``nvflare simulator`` on the job, with a process for every site."""
        workspace = self.folder / "workspace"
        collegium("nvflare", "allow", str(workspace))
        command = [
            sys.executable,
            "-m",
            "nvflare.cli",
            "simulator",
            str(job),
            "-w",
            str(workspace),
            "-t",
            str(len(SITES)),
        ]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=280)

    def record(self) -> dict[str, object]:
        """run.json."""
        content: dict[str, object] = json.loads((self.run / "run.json").read_text())
        return content


def collegium(*arguments: str) -> str:
    """What the command `collegium` prints; AssertionError where it fails."""
    done = subprocess.run([sys.executable, "-m", "collegium", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
