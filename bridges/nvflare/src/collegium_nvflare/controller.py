"""The controller of a job: our coordinator, which asks the sites of the job as the parties of one run."""

import logging
import shutil
import time
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from collegium.clock import utc_now
from collegium.coordinator.report.statement import render, statement_of
from collegium.coordinator.rounds.rounds import quorum_count
from collegium.coordinator.run.coordinator import Compute, CoordinatorRun, Progress, Reach, Storage, Watch
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.settings.consortium import (
    ConsortiumConfig,
    ConsortiumFolder,
    public_root,
    read_consortium,
)
from collegium.coordinator.settings.run_config import load_public
from collegium.errors import CollegiumError, QuorumNotReached
from collegium.logs import event
from collegium.protocol.replies import Failure
from collegium.protocol.roster import Roster
from collegium.protocol.secure_sum.plan import SMALLEST_SUM
from collegium.whole_files import exclusive, remove_stale_temp_files, storing, write_whole
from collegium_nvflare import tasks
from collegium_nvflare.members import JobMembers
from collegium_nvflare.own_folder import SERVER, own_folder
from collegium_nvflare.parties import NVFlareParties
from collegium_nvflare.public_files import CONSORTIUM, below, public_file

logger = logging.getLogger("collegium.coordinator")

RESULTS = ("run.json", "labels.csv", "student.safetensors", "report.html", "statement.html")
"""Of the run's folder, what the job's own folder gets a copy of, and with it whoever downloads the job's result."""
_JOIN_S = 120.0


def sites_needed(config: ConsortiumConfig) -> int:
    """How many of the sites that the consortium names must join."""
    quorum = quorum_count(config.votes.quorum, len(config.consortium.parties))
    return quorum if config.votes.mode == "clear" else max(quorum, SMALLEST_SUM)


class CoordinatorController(Controller):
    """Waits until the sites that the consortium names have joined, and does the run.

    Submitted again, the job goes on where it stopped: keys, ledger and labels lie in the consortium's folder at the
    server, and nothing is paid twice.

    Parameters
    ----------
    wait_s : once a quorum has joined, how long the others may take.
    """

    def __init__(self, wait_s: float = 30.0) -> None:
        super().__init__()
        self._wait_s = wait_s
        self._parties: NVFlareParties | None = None

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing before the run."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing after the run."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Note which sites ask for tasks."""
        if event_type == EventType.BEFORE_PROCESS_TASK_REQUEST and self._parties is not None:
            self._parties.seen(fl_ctx.get_peer_context().get_identity_name())

    def process_result_of_unknown_task(
        self, client: object, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """An answer after its deadline counts no more."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """The whole run, or what is left of it; an error ends the job with its text."""
        try:
            record = self._run(abort_signal, fl_ctx)
        except CollegiumError as error:
            self.system_panic(f"{error.code}: {error}", fl_ctx)
            return
        self.log_info(fl_ctx, f"the run is {record.state}")

    def _run(self, abort: Signal, context: FLContext) -> RunRecord:
        workspace, job = context.get_engine().get_workspace(), context.get_job_id()
        settings = Path(workspace.get_app_config_dir(job)).resolve() / CONSORTIUM
        config = read_consortium(settings)
        for source in filter(None, (config.pool, config.holdout)):
            public_file(source, public_root(config, None), settings.parent)
        base = own_folder(workspace.get_root_dir(), SERVER)
        place = ConsortiumFolder(base / below(config.consortium.folder, settings.parent), config.consortium.study)
        public = load_public(config.run, public_root(config, None))
        members = JobMembers(config, place)
        with exclusive(place.lock, f"another job runs in {place.path}; wait for it or abort it"):
            remove_stale_temp_files(place.path)
            parties = NVFlareParties(self, context, abort, run_id=config.name, authority_pem=members.authority_pem)

            def coordinator(roster: Roster, keys: dict[str, bytes]) -> CoordinatorRun:
                return CoordinatorRun(
                    config.run,
                    Reach(parties, roster.admitted(), keys),
                    Storage(place.run, ledger=place.ledger, signer=members.signing_key, study=place.study),
                    public=public,
                    compute=Compute(config.consortium.device, config.consortium.threads),
                    watch=Watch(_log_step),
                )

            coordinator(members.roster(), dict.fromkeys(config.consortium.parties, b"")).check()
            self._parties = parties
            roster = self._gathered(config, parties, members)
            record = coordinator(roster, roster.signing_keys()).run()
            stated = statement_of(place.run, utc_now().isoformat(timespec="seconds"))
            write_whole(place.run / "statement.html", render(stated))
            _publish(place.run, Path(workspace.get_run_dir(job)) / "collegium")
            return record

    def _gathered(self, config: ConsortiumConfig, parties: NVFlareParties, members: JobMembers) -> Roster:
        """Have the sites join until all are there, or a quorum for long enough; admit those that joined.

        Raises QuorumNotReached where all were heard and too few could join.
        """
        expected, failed = set(config.consortium.parties), dict[str, Failure]()
        certificates: dict[str, str] = {}
        quorum_since_s: float | None = None

        def join(name: str, result: Shareable | Failure) -> None:
            failure = result if isinstance(result, Failure) else tasks.failure_in(result)
            try:
                if failure is not None:
                    raise failure.error()
                assert isinstance(result, Shareable)
                certificates[name] = members.certify(name, tasks.bytes_in(result, tasks.SIGNING_REQUEST))
            except CollegiumError as error:
                failed[name] = Failure.of(error)
                told = event("not-joined", party=name, code=error.code)
                logger.warning("%s has not joined: %s", name, failed[name].message, extra=told)

        needed = sites_needed(config)
        while True:
            new = [name for name in parties.names() if name in expected - certificates.keys() - failed.keys()]
            parties.give(tasks.JOIN, {name: tasks.carrying() for name in new}, timeout_s=_JOIN_S, take=join)
            if len(certificates) >= needed and quorum_since_s is None:
                quorum_since_s = time.monotonic()
            if len(certificates) + len(failed) == len(expected):
                break
            if quorum_since_s is not None and time.monotonic() - quorum_since_s >= self._wait_s:
                break
            parties.wait()
        if len(certificates) < needed:
            told = {name: f"{failure.code}: {failure.message}" for name, failure in failed.items()}
            why = "; ".join(f"{name} ({text})" for name, text in sorted(told.items()))
            raise QuorumNotReached(f"{len(certificates)} sites joined, {needed} are needed; {why}", told)
        roster = members.roster()
        admitted = {
            name: tasks.carrying(
                **{
                    tasks.CERTIFICATE: certificate,
                    tasks.AUTHORITY: members.authority_pem,
                    tasks.ROSTER: roster.model_dump_json(),
                }
            )
            for name, certificate in certificates.items()
        }
        parties.give(tasks.ADMIT, admitted, timeout_s=config.votes.fit_deadline_s, take=_log_admitted)
        return roster


def _log_admitted(name: str, result: Shareable | Failure) -> None:
    failure = result if isinstance(result, Failure) else tasks.failure_in(result)
    if failure is not None:
        told = event("not-admitted", party=name, code=failure.code)
        logger.warning("%s does not take part: %s: %s", name, failure.code, failure.message, extra=told)


def _log_step(step: Progress) -> None:
    if step.done == step.total:
        told = event("step", step=step.step, done=step.done, total=step.total)
        logger.info("%s: %d of %d", step.step.replace("_", " "), step.done, step.total, extra=told)


def _publish(run: Path, folder: Path) -> None:
    """Copy what may be published to where NVFlare looks for a job's result."""
    with storing(f"copy the result to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for name in RESULTS:
            if (run / name).exists():
                shutil.copyfile(run / name, folder / name)
