"""A run with virtual parties on Flower's simulation engine."""

import logging
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.coordinator.rounds.rounds import Nobody, OnReply, Parties
from collegium.coordinator.run.coordinator import Compute, CoordinatorRun, Reach, Storage, Watch
from collegium.coordinator.run.label_set import prediction_quality
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.run_record import BaselineRecord, RunRecord
from collegium.coordinator.run.surroundings import OnProgress, Progress
from collegium.errors import Unreachable
from collegium.extras import optional_import
from collegium.interrupts import handlers_kept
from collegium.parties.teachers.splits import load_or_create_key
from collegium.protocol.channels import CONNECT_TIMEOUT_S, split_address
from collegium.protocol.identities import Credentials
from collegium.protocol.replies import ReplyBody
from collegium.protocol.requests import RequestBody
from collegium.protocol.roster import Roster
from collegium.simulations.cohort import (
    COORDINATOR,
    ROSTER,
    SETTINGS,
    PreparedRun,
    fit_cohort,
    prepare_run,
    read_settings,
)
from collegium.simulations.config import SimulationConfig

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid


MACHINES_S = 180.0
"""How long each machine of a Ray cluster may take to start one worker, and Ray to notice that a machine is gone."""
AT_ONCE = 32
"""Requests that Flower's engine holds, at least; twice as many as it has workers, so that none of these waits."""


def coordinator_of(
    run: PreparedRun, parties: Parties, on_progress: OnProgress | None, *, signer: Ed25519PrivateKey | None = None
) -> CoordinatorRun:
    """The coordinator that drives the run over ``parties``; it measures the run's baseline, if it has one, at the end.

    Raises ConfigurationError for a mistake in what the run says of its baseline.
    """
    on_progress, engine = on_progress or (lambda step: None), run.config.engine
    return CoordinatorRun(
        run.config,
        Reach(
            parties,
            roster=[member.name for member in run.cohort],
            signing_keys=Roster.load(run.folder / ROSTER).signing_keys(),
        ),
        Storage(run.folder, signer=signer),
        public=run.public,
        compute=Compute(engine.device, engine.workers * engine.threads),
        watch=Watch(on_progress, baseline=_baseline_of(run, on_progress)),
    )


def _baseline_of(run: PreparedRun, on_progress: OnProgress) -> Callable[[], BaselineRecord] | None:
    """Measures what the pooled records would give without privacy; None where the run asks for none."""
    from collegium.coordinator.students import chosen_method, fit_student

    wanted, holdout, engine, task = run.config.baseline, run.public.holdout, run.config.engine, run.config.task
    if wanted is None or holdout is None:
        return None
    chosen_method(wanted.method, wanted.options, task)

    def measure() -> BaselineRecord:
        student = fit_student(
            wanted.method,
            run.private.x,
            np.arange(len(run.private)),
            run.private.labels(),
            task,
            seed=run.config.seed or 0,
            device=engine.device,
            threads=engine.workers * engine.threads,
            options=wanted.options,
            progress=lambda done, total: on_progress(Progress("baseline", done, total)),
        )
        quality = prediction_quality(student.predict(holdout.x), holdout.labels(), task)
        return BaselineRecord(method=wanted.method, records=len(run.private), accuracy=quality.accuracy)

    return measure


def screen_of(run: PreparedRun) -> list[str]:
    """What a run says before it starts; see `checks.check_run`."""
    from collegium.coordinator.run.checks import check_run

    identity = run.folder / COORDINATOR
    signer = Credentials.load(identity, "coordinator").signing_key if identity.exists() else None
    names = [member.name for member in run.cohort]
    storage = Storage(run.folder, RunFolder(run.folder).ledger, signer=signer)
    return check_run(run.config, names, run.public, storage).lines()


def simulate(run: PreparedRun, on_progress: OnProgress | None = None) -> RunRecord:
    """Run it with one virtual party per member of the cohort; returns the run's record."""
    parties = _WhileUp()
    coordinator = coordinator_of(run, parties, on_progress)
    coordinator.check()
    fit_cohort(run, on_progress)

    def drive(engine: Parties) -> None:
        with parties.are(engine):
            coordinator.label()
            if run.config.evaluation is not None:
                coordinator.evaluate()

    on_engine(run, drive)
    # The engine's threads slow torch down several times: the student is fitted once they are gone.
    return coordinator.fit()


class _WhileUp:
    """`Parties` of an engine, while it is up; nobody before and afterwards."""

    def __init__(self) -> None:
        self._there: Parties = Nobody()

    @contextmanager
    def are(self, there: Parties) -> Iterator[None]:
        """The engine is up."""
        self._there = there
        try:
            yield
        finally:
            self._there = Nobody()

    def names(self) -> list[str]:
        """See `Parties.names`."""
        return self._there.names()

    def ask(
        self, requests: Mapping[str, RequestBody], *, timeout_s: float, on_reply: OnReply | None = None
    ) -> dict[str, ReplyBody]:
        """See `Parties.ask`."""
        return self._there.ask(requests, timeout_s=timeout_s, on_reply=on_reply)


def on_engine(run: PreparedRun, drive: Callable[[Parties], None]) -> None:
    """Call ``drive`` with one virtual party per member of the cohort while Flower's simulation engine is up.

    A cluster's machines that do not have the run's folder get a copy of it as their workers' directory. Not so with
    neighbours: two copies of what a record has spent would let it spend twice.

    Raises Unreachable when the engine does not start or breaks down, and whatever ``drive`` raises.
    """
    _require_cluster(run.config.engine.ray)
    prepare_flower(run.folder)
    import ray
    from flwr.simulation import run_simulation

    from collegium.simulations.flower_parties import FlowerParties, apps_for

    members, stop, folder = len(run.cohort), threading.Event(), run.folder
    sends = run.config.engine.ray != "local" and run.config.neighbours is None
    if sends:
        for member in run.cohort:
            load_or_create_key(member.folder)  # else each copy would deal the records to teachers in its own way

    def main(grid: "Grid", context: "Context") -> None:
        at_once = max(AT_ONCE, 2 * int(ray.cluster_resources().get("CPU", 1)))  # type: ignore[no-untyped-call]
        drive(FlowerParties(grid, run_id=run.config.name, expected=members, at_once=at_once, stop=stop))

    server, client = apps_for(lambda context: folder if (folder / SETTINGS).is_file() else Path.cwd(), main)
    logging.getLogger("flwr").setLevel(logging.CRITICAL)  # one line says what its traces would: see FlowerParties
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with handlers_kept():  # Ray installs its own, in Python and below it
                _start_ray(run.config, folder if sends else None)
            if run.config.engine.ray != "local":
                _meet_machines()
            run_simulation(server, client, members, backend_config={"client_resources": {"num_cpus": 1}})
        except RuntimeError as error:
            if error.__cause__ is None:
                raise  # not of the engine
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            raise Unreachable(f"Flower's engine broke down: {cause}; start the run again, and it goes on") from error
        finally:
            stop.set()  # after an interrupt the server app's thread would wait for a deadline
            ray.shutdown()


def drive_prepared(grid: "Grid", folder: Path) -> None:
    """What the server app does under `flwr run .`: the run that was prepared in ``folder``."""
    from rich.console import Console

    from collegium.simulations.flower_parties import FlowerParties
    from collegium.simulations.progress import RunProgress, print_summary

    console = Console(force_terminal=False)
    config, data_root = read_settings(folder)
    run = prepare_run(config, folder, data_root=data_root)
    parties = FlowerParties(grid, run_id=run.config.name, expected=len(run.cohort))
    console.print(*screen_of(run), sep="\n", highlight=False, markup=False, soft_wrap=True)
    print_summary(coordinator_of(run, parties, RunProgress(console)).run(), folder, console)


def _require_cluster(address: str) -> None:
    """Unreachable where nothing listens at a cluster's address: Ray itself would try for many minutes."""
    if address in ("local", "auto"):
        return
    try:
        socket.create_connection(split_address(address), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        said = error.strerror or error
        raise Unreachable(f"no Ray cluster at {address}: {said}; start it, or leave engine.ray out") from error


def _start_ray(config: SimulationConfig, sent: Path | None) -> None:
    """Start Ray, or join a cluster and send it a folder; Unreachable when it cannot be done."""
    import ray

    # Always an address: without one Ray joins whatever cluster it finds on this machine.
    where: dict[str, Any] = {"address": config.engine.ray}
    if config.engine.ray == "local":
        where["num_cpus"] = config.engine.workers  # nobody who joins a cluster may state its cores
    files = {} if sent is None else {"working_dir": str(sent), "excludes": ["/flower/"]}
    paths = os.pathsep.join([*sys.path, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        ray.init(
            **where,
            runtime_env={"env_vars": {"PYTHONPATH": paths}, **files},
            include_dashboard=False,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise Unreachable(f"Flower's engine broke down: {error}; start the run again, and it goes on") from error


def _meet_machines() -> None:
    """Wait until every machine of the cluster has done a task, or Ray has noticed that the machine is gone.

    Ray counts a machine that died for some more seconds. Flower would give it parties, and wait for them for ever.
    Raises Unreachable where a machine does neither within `MACHINES_S`.
    """
    import ray
    from ray.exceptions import GetTimeoutError, RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

    @ray.remote(num_cpus=0, max_retries=0)
    def answer() -> None: ...

    asked: dict[str, ray.ObjectRef[None]] = {}
    met: set[str] = set()
    deadline = time.monotonic() + MACHINES_S
    while late := {
        node["NodeID"]: node["NodeManagerAddress"]
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["Alive"] and node["NodeID"] not in met
    }:
        if time.monotonic() > deadline:
            raise Unreachable(
                f"{', '.join(sorted(late.values()))} of the Ray cluster did nothing for {MACHINES_S:g} s; "
                "stop Ray there or start it again, and start the run again"
            )
        for node in late.keys() - asked.keys():
            asked[node] = answer.options(scheduling_strategy=On(node, soft=False)).remote()
        for node in late:
            try:
                ray.get(asked[node], timeout=1)
                met.add(node)
            except GetTimeoutError:
                continue
            except RayError:
                del asked[node]
                time.sleep(1)


def flower_settings(folder: Path) -> dict[str, str]:
    """What Flower itself must find in its environment, by name."""
    return {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_HOME": str(folder / "flower"),
    }


def prepare_flower(folder: Path) -> None:
    """Make Flower and Ray quiet, without telemetry, offline and confined to ``folder``; a user's own setting wins.

    Raises MissingExtra when Flower is not installed.
    """
    settings = flower_settings(folder) | {
        "HF_HUB_OFFLINE": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
        "RAY_worker_niceness": "0",
    }
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    with optional_import("a simulation on Flower's engine"):
        import flwr  # noqa: F401
        import ray  # noqa: F401
