"""Three small tasks, one for each kind of inputs, with nothing said but what a user must say."""

from __future__ import annotations

import csv
import gc
import os
import signal
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import collegium as cg
from collegium.coordinator.rounds.rounds import OnReply
from collegium.coordinator.run.coordinator import CoordinatorRun, Reach, Storage
from collegium.coordinator.run.run_folder import read_labels, read_run
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.settings.run_config import PublicData, load_public
from collegium.data import Examples, load
from collegium.protocol.replies import ReplyBody
from collegium.protocol.requests import Ask, RequestBody, SecureSumStep
from collegium.settings import validate_config
from collegium.simulations.cohort import Cohort, prepare
from collegium.simulations.config import SimulationConfig
from collegium_accounting.mechanisms.class_sums import MOST_ROUNDS
from support.runs import labels_csv, paid, toml

KINDS = ("image", "table", "vector")
MODES = ("masked+noised", "clear")
CLASSES = ("ash", "birch", "oak")
RECORDS, POOL, PARTIES, SEED = 300, 45, 3, 5
EPSILON = 1.5
"""What a user has to say. So many records of classes that lie apart are enough for it."""
SUMS = {"image": 2, "table": MOST_ROUNDS, "vector": MOST_ROUNDS}
"""How many class sums the default asks for."""
INPUTS: Mapping[str, dict[str, Any]] = {
    "image": {"kind": "image", "height": 8, "width": 8},
    "table": {
        "kind": "table",
        "columns": [
            {"kind": "number", "name": "length", "low": -6.0, "high": 6.0},
            {"kind": "number", "name": "width", "low": -6.0, "high": 6.0},
        ],
    },
    "vector": {"kind": "vector", "size": 32},
}
TASKS: Mapping[str, dict[str, Any]] = {
    kind: {"classes": list(CLASSES), "inputs": inputs} for kind, inputs in INPUTS.items()
}


def brief(kind: str) -> dict[str, Any]:
    """The usual student, whose networks learn from images in a few steps: nothing is asked, kept or paid in between."""
    return {"student": {"method": "kernel", "options": {"steps": 4}}} if kind == "image" else {}


@dataclass(frozen=True)
class Files:
    """What institutions and the consortium have on their disks: ``private`` records, a public ``pool``."""

    private: Path
    pool: Path


def write_files(kind: str, folder: Path, records: int = RECORDS) -> Files:
    """Made-up records of three classes that lie apart; images and vectors as .npz, tables as .csv."""
    generator = np.random.default_rng(7)
    labels = np.arange(records + POOL) % len(CLASSES)
    width = 64 if kind == "image" else 32
    values = generator.normal(0.0, 2.0, (len(CLASSES), width))[labels] + generator.normal(
        0.0, 0.6, (len(labels), width)
    )
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"private": slice(records), "pool": slice(records, None)}
    if kind == "table":
        for name, part in parts.items():
            with (folder / f"{name}.csv").open("w", newline="") as file:
                rows = csv.writer(file)
                rows.writerow(["length", "width", *(["tree"] if name == "private" else [])])
                named = [[CLASSES[label]] if name == "private" else [] for label in labels[part]]
                rows.writerows([[*row, *label] for row, label in zip(values[part, :2].tolist(), named, strict=True)])
        return Files(folder / "private.csv", folder / "pool.csv")
    x = np.clip(values * 30 + 128, 0, 255).astype("u1").reshape(-1, 8, 8) if kind == "image" else values.astype("f4")
    np.savez(folder / "private.npz", x=x[parts["private"]], y=labels[parts["private"]])
    np.savez(folder / "pool.npz", x=x[parts["pool"]])
    return Files(folder / "private.npz", folder / "pool.npz")


def settings(kind: str, files: Files, mode: str = MODES[0], **others: Any) -> dict[str, Any]:
    """A configuration of `simulate` and `launch`: what a user must give, and the mode where it is not the usual one."""
    label = {"label": "tree"} if kind == "table" else {}
    asked = {
        "name": "local",
        "task": TASKS[kind],
        "private": {"source": str(files.private), **label},
        "pool": {"source": str(files.pool)},
        "partition": {"kind": "iid", "parties": PARTIES},
        "budget": {"epsilon": EPSILON},
    }
    return asked | ({} if mode == MODES[0] else {"votes": {"mode": mode}}) | others


def config_of(kind: str, files: Files, mode: str = MODES[0], **others: Any) -> SimulationConfig:
    """The same, read."""
    return validate_config(settings(kind, files, mode, **others), SimulationConfig, "test")


def write_config(path: Path, asked: Mapping[str, Any]) -> Path:
    """The same as a TOML file."""
    path.write_text("".join(f"{key} = {toml(value)}\n" for key, value in asked.items()))
    return path


def dealt(config: SimulationConfig, folder: Path) -> dict[str, tuple[Any, Any]]:
    """The records of each institution as a simulation deals them."""
    cohort: Cohort = prepare(config, folder, data_root=None)[0]
    held: dict[str, Examples] = {one.name: load(one.source, config.task, data_root=None) for one in cohort}
    return {name: (examples.x, examples.y) for name, examples in held.items()}


def pool_of(config: SimulationConfig) -> Any:
    """The pool's inputs, or those that are drawn in place of a pool."""
    return load_public(config, None).pool.x


def phase_of(body: RequestBody) -> str:
    """What a request asks for: the kind of a question, the phase of a secure sum, or the request's own name."""
    if isinstance(body, SecureSumStep):
        return str(body.message.WhichOneof("phase"))
    return type(body.question if isinstance(body, Ask) else body).__name__


class MortalParties(cg.LocalParties):
    """Institutions whose process kills itself before they are asked for something, such as ``("mask_input", 1)``.

    The number says how often they were asked for it before.
    """

    def __init__(self, *given: Any, dies_before: tuple[str, int] | None = None, **named: Any) -> None:
        super().__init__(*given, **named)
        self._dies_before, self.asked = dies_before, list[str]()

    def ask(
        self, requests: Mapping[str, RequestBody], *, timeout_s: float, on_reply: OnReply | None = None
    ) -> dict[str, ReplyBody]:
        """See `Parties.ask`."""
        for body in [*requests.values()][:1]:
            phase = phase_of(body)
            if self._dies_before == (phase, self.asked.count(phase)):
                os.kill(os.getpid(), signal.SIGKILL)
            self.asked.append(phase)
        return super().ask(requests, timeout_s=timeout_s, on_reply=on_reply)


@dataclass(frozen=True)
class Case:
    """A task's files and records, and where its run and its institutions keep theirs."""

    config: SimulationConfig
    records: Mapping[str, tuple[Any, Any]]
    folder: Path
    policy: cg.PolicyConfig | None
    """What every institution agrees to; None for what a `Party` has without one."""

    def parties(self, dies_before: tuple[str, int] | None = None) -> MortalParties:
        return MortalParties(
            self.records,
            self.config.task,
            policy=self.policy,
            folder=self.folder / "parties",
            seed=self.config.seed,
            dies_before=dies_before,
        )

    def run(self, parties: MortalParties | None = None) -> RunRecord:
        parties, public = parties or self.parties(), PublicData(Examples(pool_of(self.config)))
        reach = Reach(parties, signing_keys=parties.signing_keys)
        return CoordinatorRun(self.config, reach, Storage(self.folder / "run"), public=public).run()

    def done(self) -> tuple[str, str | None, int, int, float]:
        """Labels, why some or a sum are missing, and what they cost."""
        spent = paid(self.folder / "run")
        missing = read_run(self.folder / "run").labels.stopped
        return labels_csv(self.folder / "run"), missing, spent.queries, spent.charges, spent.epsilon


def case(kind: str, mode: str, folder: Path, policy: cg.PolicyConfig | None = None, **others: Any) -> Case:
    """A task with fresh files below ``folder``; in the clear with a policy that agrees to that, unless one is given."""
    config = config_of(kind, write_files(kind, folder / "files"), mode, **({"seed": SEED} | others))
    if mode == "clear" and policy is None:
        policy = cg.PolicyConfig(sum_modes=("clear",), queries=1000, epsilon=8.0)
    return Case(config, dealt(config, folder / "dealt"), folder, policy)


def right(run: Path) -> float:
    """The share of the pool that a run labelled as `write_files` made it."""
    held = dict(read_labels(run / "labels.csv"))
    return sum(held.get(row) == (RECORDS + row) % len(CLASSES) for row in range(POOL)) / POOL


def killed(does: Callable[[], object]) -> bool:
    """Do something in a process like this one; whether it was killed meanwhile."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: those of the tests hold nothing
        child = os.fork()
    if child == 0:
        gc.disable()  # a channel of gRPC that is collected here waits for threads that are the other process's
        try:
            does()
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed or status == 0, status
    return killed
