"""A consortium in a folder of its own: its task, whose right labels are known, and its processes.

Inputs lie in three far corners of a square, so that every teacher votes for the right one and noise cannot change it
(18 votes or more against 0 at σ = 1: less than 1e-30). Whatever a fault does, a label is then the truth or wrong.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from benchmarks.chaos.stop_conditions import StopCondition
from benchmarks.chaos.tcp_proxy import Proxies, Proxy
from collegium.clock import utc_now
from collegium.coordinator.cli.provision_cli import provision
from collegium.coordinator.rounds.rounds import quorum_count
from collegium.coordinator.settings.consortium import ConsortiumConfig, ConsortiumFolder, read_consortium
from collegium.errors import Unreachable
from collegium.parties.config import OwnRecords
from collegium.parties.enrolment import enrol
from collegium.protocol.enrolment import new_code
from collegium.protocol.identities import load_authority
from collegium.protocol.secure_sum.plan import SMALLEST_SUM
from collegium_accounting.renyi import WIDE_ORDERS, RenyiCurve

CLASSES = ("low", "right", "high")
_ROUNDING = 1e-12
_CORNERS = np.array([[10.0, 10.0], [90.0, 10.0], [10.0, 90.0]])
RECORDS, PER_PARTY, SIGMA, DELTA = 180, 6, 1.0, 1e-5
QUORUM = 0.7
AMPLE_EPSILON = 1e5
REPEATED = 0.2
"""Share of the pool's inputs that are there a second time."""

JSON_LOG = ("--log-format", "json")

CONFIG = """\
name = "chaos"
seed = {seed}
pool = {{ source = "pool.csv" }}
teachers = {{ kind = "random-forest", per_party = {per_party}, options = {{ trees = 3 }} }}
mechanism = {{ name = "gnmax", parameters = {{ sigma = {sigma} }} }}
budget = {{ epsilon = {epsilon!r}, delta = {delta}, bound = "classic" }}
queries = {{ count = {queries}, batch = 2 }}
student = {{ method = "random-forest", options = {{ trees = 5 }} }}

[votes]
mode = "masked"
quorum = {quorum}
deadline_s = {deadline_s}
fit_deadline_s = 120

[consortium]
address = "localhost:{sessions}"
enrolment = "localhost:{enrolment}"
parties = {parties}
folder = "consortium"

[task]
classes = ["low", "right", "high"]

[task.inputs]
kind = "table"
columns = [
    {{ kind = "number", name = "a", low = 0, high = 100 }},
    {{ kind = "number", name = "b", low = 0, high = 100 }},
]
"""


@dataclass
class Process:
    """A command of ours that runs, and the file with everything that it said on standard error."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    ended_by_us: bool = False

    def last_line(self) -> str:
        return (self.last_words() or [""])[-1]

    def last_words(self) -> list[str]:
        """The lines after the last one that is for a program."""
        lines = self._lines()
        at = max((at for at, line in enumerate(lines) if line.startswith("{")), default=-1)
        return lines[at + 1 :]

    def last_event(self) -> str | None:
        """The event of the last line, where that is one for a program."""
        with suppress(ValueError, IndexError):
            return str(json.loads(self._lines()[-1]).get("event"))
        return None

    def _lines(self) -> list[str]:
        return self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()

    def signal(self, number: int) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(number)

    def kill(self) -> None:
        self.ended_by_us = True
        self.signal(signal.SIGKILL)
        self.popen.wait()


@dataclass(frozen=True)
class Heard:
    """A line of the coordinator's log, or its end (``event`` is then ``end``)."""

    event: str
    fields: dict[str, Any] = field(default_factory=dict)
    life: int = 0
    """Which of the coordinator's processes said it, counted from 1."""


class Consortium:
    """Makes the folder's files; starts, watches and ends the processes; its end ends all of them, come what may."""

    def __init__(
        self,
        folder: Path,
        stop_condition: StopCondition,
        *,
        seed: int,
        names: Sequence[str],
        queries: int,
        deadline_s: float,
    ) -> None:
        self.folder, self.names, self.stop_condition = folder, tuple(names), stop_condition
        self.scratch = folder / "tmp"
        self.scratch.mkdir(parents=True)
        self.proxies = Proxies()
        self.proxy: dict[str, Proxy] = {}
        self.parties: dict[str, Process] = {}
        self.coordinator: Process | None = None
        self.heard: queue.SimpleQueue[Heard] = queue.SimpleQueue()
        self.lives = 0
        self._listeners: list[threading.Thread] = []
        self.truth = self._write_data(np.random.default_rng(seed), queries)
        self.allowed = round(stop_condition.share * (queries - _repeated(queries)))
        """Labels after which the run is bound to end, where it is."""
        sessions, enrolment = _free_ports(2)
        path = folder / "consortium.toml"
        path.write_text(
            CONFIG.format(
                seed=seed,
                per_party=PER_PARTY,
                sigma=SIGMA,
                delta=DELTA,
                epsilon=epsilon_of(self.allowed) if stop_condition.kind == "budget spent" else AMPLE_EPSILON,
                quorum=QUORUM,
                queries=queries,
                deadline_s=deadline_s,
                sessions=sessions,
                enrolment=enrolment,
                parties=json.dumps(self.names),
            ),
            encoding="utf-8",
        )
        with _quiet():
            provision(path)
        self.path = path
        self.config: ConsortiumConfig = read_consortium(path)
        self.kept = ConsortiumFolder(self.config.consortium.folder)
        self._port = sessions

    def _write_data(self, draw: np.random.Generator, queries: int) -> list[int]:
        """Write every party's records and the pool; the right class of each of the pool's inputs."""

        def rows(number: int) -> tuple[Any, Any]:
            classes = draw.integers(0, 3, size=number)
            return classes, np.round(_CORNERS[classes] + draw.uniform(-5, 5, size=(number, 2)), 6)

        for name in self.names:
            classes, points = rows(RECORDS)
            (self.folder / name).mkdir()
            lines = [f"{a},{b},{CLASSES[number]}" for number, (a, b) in zip(classes, points, strict=True)]
            (self.folder / name / "records.csv").write_text("\n".join(["a,b,y", *lines]) + "\n", encoding="utf-8")
        classes, points = rows(queries)
        again = _repeated(queries)
        classes[-again:], points[-again:] = classes[:again], points[:again]
        lines = [f"{a},{b}" for a, b in points]
        (self.folder / "pool.csv").write_text("\n".join(["a,b", *lines]) + "\n", encoding="utf-8")
        return [int(number) for number in classes]

    def start_coordinator(self) -> None:
        self.lives += 1
        words = ["coordinator", "serve", str(self.path), "--wait", "5", *JSON_LOG]
        process = self._start("coordinator", words, stderr=subprocess.PIPE)
        assert process.popen.stderr is not None
        listener = threading.Thread(
            target=self._listen, args=(process, process.popen.stderr, self.lives), name="coordinator's log"
        )
        listener.start()
        self._listeners.append(listener)
        self.coordinator = process

    def enrol(self, name: str) -> None:
        """Enrol over the port, and point the party at its proxy. Unreachable while the coordinator is not up."""
        code, home = new_code(), self.folder / name
        self.kept.members.change(lambda members: (members.with_code(name, code, utc_now(), 1), None))
        fingerprint = load_authority(self.kept.authority).fingerprint
        settings, data = self.config.consortium, str(home / "records.csv")
        records = OwnRecords(source=data, label="y", one_row_each=True)
        done = enrol(settings.enrolment, name, code, fingerprint, home, parties=settings.parties, records=records)
        self.proxy[name], port = self.proxies.open(self._port)
        text = done.party_file.read_text(encoding="utf-8")
        done.party_file.write_text(text.replace(settings.address, f"localhost:{port}"), encoding="utf-8")
        policy = done.party_file.with_name("policy.toml")
        text = policy.read_text(encoding="utf-8").replace("few_parties = false", "few_parties = true")
        if self.stop_condition.kind == "policies exhausted" and name in self.stop_condition.parties:
            text = re.sub(r"(?m)^queries = \d+", f"queries = {self.allowed}", text)
        policy.write_text(text)

    def start_party(self, name: str) -> None:
        words = ["party", "serve", str(self.folder / name / "party.toml"), "--until-stdin-closes", *JSON_LOG]
        self.parties[name] = self._start(name, words)

    def _start(self, name: str, words: list[str], *, stderr: int | None = None) -> Process:
        log = self.folder / "logs" / f"{name}.log"
        log.parent.mkdir(exist_ok=True)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(self.scratch)}
        environment.pop("COLLEGIUM_DATA", None)  # the pool lies beside the consortium's file
        with log.open("ab") as sink:
            popen = subprocess.Popen(
                [sys.executable, "-m", "collegium", *words],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=sink if stderr is None else stderr,
            )
        return Process(name, popen, log)

    def _listen(self, process: Process, stream: BinaryIO, life: int) -> None:
        with stream, process.log.open("ab") as sink:
            for line in stream:
                sink.write(line)
                sink.flush()
                try:
                    said = json.loads(line)
                except ValueError:
                    continue
                self.heard.put(Heard(str(said.get("event")), dict(said.get("fields", {})), life))
        process.popen.wait()
        self.heard.put(Heard("end", {}, life))

    def lose(self, name: str) -> None:
        """Kill a party that nobody starts again."""
        party = self.parties.pop(name)
        party.kill()
        if party.popen.stdin is not None:
            party.popen.stdin.close()

    def processes(self) -> list[Process]:
        return [*self.parties.values(), *([self.coordinator] if self.coordinator else [])]

    def __enter__(self) -> Consortium:
        self.proxies.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes():
            if process.popen.poll() is None:
                process.kill()
            if process.popen.stdin is not None:
                process.popen.stdin.close()
        for listener in self._listeners:
            listener.join()
        self.proxies.__exit__()


def needed_of(parties: int) -> int:
    """How many of so many parties a round needs."""
    return max(quorum_count(QUORUM, parties), SMALLEST_SUM)


def epsilon_of(labels: int) -> float:
    """What so many labels cost: one vote that moves changes the histogram by √2, so each is (α, α/σ²)-Rényi private."""
    orders = np.array(WIDE_ORDERS)
    return RenyiCurve(WIDE_ORDERS, labels * orders / SIGMA**2).to_epsilon(DELTA).epsilon * (1 + _ROUNDING)


def _repeated(queries: int) -> int:
    return max(1, round(REPEATED * queries))


def _free_ports(number: int) -> list[int]:
    with ExitStack() as held:
        listeners = [held.enter_context(socket.create_server(("localhost", 0))) for _ in range(number)]
        return [listener.getsockname()[1] for listener in listeners]


def _quiet() -> Any:
    from contextlib import redirect_stdout
    from io import StringIO

    return redirect_stdout(StringIO())


__all__ = ["Consortium", "Heard", "Process", "Unreachable"]
