"""The coordinator of a real consortium: enrolment and sessions side by side, rounds whenever a quorum is there.

Who joins or leaves takes effect between rounds: the run is broken off after the labels of a round are in the ledger,
and taken up again with the new roster, as after a crash. Nothing is paid twice by that.

A consortium with students stays up after its own run. Their label jobs are runs too, each in a folder of its own,
first come first served, under the one ledger and its one budget.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from collegium.coordinator.label_jobs.queue import JobQueue, QueuedJob
from collegium.coordinator.label_jobs.service import LabelJobService
from collegium.coordinator.label_jobs.servicer import LabelServicer
from collegium.coordinator.membership.members import Members
from collegium.coordinator.run.coordinator import Compute, CoordinatorRun, Progress, Reach, Storage, Watch
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.selection.query_selector import Plan, all_labelled
from collegium.coordinator.service.peer_events import OnEvent
from collegium.coordinator.service.session_service import SessionService
from collegium.coordinator.settings.consortium import ConsortiumConfig
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.errors import (
    BudgetExceeded,
    CollegiumError,
    LedgerCorrupt,
    QuorumNotReached,
    Refused,
    StorageError,
    UnnamedParties,
)
from collegium.logs import event
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.roster import Roster
from collegium.whole_files import exclusive, remove_stale_temp_files

logger = logging.getLogger("collegium.coordinator")

FRUITLESS_ROUNDS = 3
"""So many rounds in a row that failed with a quorum connected, and the run stops for its operator."""


@dataclass(frozen=True)
class _Work:
    """A run of the coordinator: the consortium's own, or a student's job."""

    config: RunConfig
    folder: Path
    job: QueuedJob | None = None


class CoordinatorService:
    """A coordinator that is up while `listening`, and does its `run` then, and students' jobs.

    Parameters
    ----------
    public : pool and holdout.
    wait_s : once a quorum is connected, how long the other expected parties may take to connect too.
    on_progress : called as steps go on.
    on_event : called, on the sessions' thread, with every connection, disconnection, refusal and violation.
    """

    def __init__(
        self,
        config: ConsortiumConfig,
        public: PublicData,
        *,
        wait_s: float,
        on_progress: Callable[[Progress], None] = lambda step: None,
        on_event: OnEvent = lambda event: None,
    ) -> None:
        self._config, self._public, self._on_progress = config, public, on_progress
        self._folder, self._study = config.place, config.consortium.study
        self._sessions = SessionService(config, pool=public.spec, wait_s=wait_s, on_event=on_event)
        self._own = _Work(config.run, self._folder.run)
        self._aside: set[str] = set()
        self._jobs: LabelJobService | None = None
        if config.consortium.students:
            self._jobs = LabelJobService(
                JobQueue(self._folder.jobs),
                task_json=config.task.model_dump_json(),
                student_json=config.student.model_dump_json(),
                pool=public.pool.x,
                ledger=self._folder.ledger,
                members=self._sessions.members,
                study=self._study,
            )
            self._sessions.on_members = self._jobs.tell

    @contextmanager
    def listening(self) -> "Iterator[CoordinatorService]":
        """Serve both ports within; StorageError when one is in use or another process serves this folder."""
        with exclusive(self._folder.lock, f"another process serves {self._folder.path}; stop it first"):
            remove_stale_temp_files(self._folder.path)
            self._check()
            jobs = self._jobs
            services = () if jobs is None else (LabelServicer(jobs, self._sessions.take_event).service(),)
            try:
                with self._sessions.open(services):
                    yield self
            finally:
                if jobs is not None:
                    jobs.close()

    def run(self) -> RunRecord:
        """The whole run of the consortium's own, or what is left of it; returns its record.

        Raises BudgetExceeded and whatever else `CoordinatorRun.run` raises. Unless there are students to serve, parties
        are told farewell by that end; all others come back when this is started again.
        """
        try:
            result = self._complete(self._own)
        except BudgetExceeded as error:
            self._farewell(f"the run stopped: {error}")
            raise
        self._farewell("the run is finished")
        return result

    def serve_jobs(self) -> None:
        """Work off students' jobs, first come first served, while `listening`; a job that was broken off goes on.

        Raises what concerns the coordinator itself, such as StorageError and LedgerCorrupt; whatever else stops a job
        is told to its student.
        """
        assert self._jobs is not None, "the consortium names no students"
        while (job := self._jobs.next_job()) is not None:
            reason = self._why_not(job) or self._do(job)
            labelled = self._jobs.end(job, reason)
            told = event("job-ended", job=job.id, student=job.student, labelled=labelled, stopped=reason)
            logger.info(
                "job %s of %s: %d of %d inputs%s",
                job.id[:8],
                job.student,
                labelled,
                len(job.positions),
                f"; stopped: {reason}" if reason else "",
                extra=told,
            )
            record = RunFolder(self._folder.run).read()
            if record is not None and record.state == "finished" and self._all_labelled(self._own):
                self._complete(self._own)  # asks nobody: its report says what the ledger has spent since

    def _why_not(self, job: QueuedJob) -> str:
        student = self._sessions.members().students.get(job.student)
        if student is None or not student.enrolled:
            return f"{job.student} is no longer admitted"
        assert self._jobs is not None
        return "" if self._jobs.is_about_the_pool(job) else "the consortium has another pool since: ask anew"

    def _do(self, job: QueuedJob) -> str:
        """Label what is left of a job; why it stopped, empty when it is done."""
        asked = self._config.queries.model_copy(update={"count": len(job.positions)})
        work = _Work(self._config.run.model_copy(update={"queries": asked}), self._folder.jobs / job.id, job)
        try:
            labels = self._complete(work).labels
        except (BudgetExceeded, Refused) as error:
            return str(error)
        except QuorumNotReached as error:
            logger.error("job %s: %s", job.id[:8], error)
            return f"too few parties answered in {FRUITLESS_ROUNDS} rounds in a row: ask the consortium"
        except (StorageError, LedgerCorrupt):
            raise
        except CollegiumError as error:
            logger.error("job %s: %s", job.id[:8], error)
            return "the coordinator cannot do this job: its log says why"
        return "" if labels is None or labels.stopped is None else labels.stopped

    def _complete(self, work: _Work) -> RunRecord:
        """Run it to its end, whoever joins or leaves meanwhile."""
        failed, rounds_before = 0, -1
        self._aside.clear()
        while True:
            asks = not self._all_labelled(work)
            roster = self._roster(self._sessions.await_quorum() if asks else self._sessions.members())
            if asks:
                self._sessions.parties.announce(roster)
            try:
                coordinator = self._coordinator(roster, roster.signing_keys(), work)
                record = coordinator.run() if work.job is None else coordinator.label()
                if record.state != "labelling":
                    return record
                if work.job is not None and (reason := self._why_not(work.job)):
                    raise Refused(reason)
                parties = len(self._roster(self._sessions.members()).admitted())
                told = event("roster-changed", parties=parties)
                logger.info("the roster has changed: going on with %d parties", parties, extra=told)
            except QuorumNotReached as error:
                if self._go_on_without(roster, error.outcomes):
                    continue
                written = RunFolder(work.folder).read()
                rounds = 0 if written is None else len(written.rounds)
                failed = (failed if rounds == rounds_before else 0) + self._sessions.has_quorum()
                rounds_before = rounds
                if failed >= FRUITLESS_ROUNDS:
                    raise
                told = event("round-failed", code=error.code)
                logger.warning("%s; trying again once a quorum is connected", error, extra=told)

    def _roster(self, members: Members) -> Roster:
        """The members' roster but for those without whom this run goes on."""
        roster = members.roster()
        changed = {
            name: entry.model_copy(update={"admitted": False})
            for name, entry in roster.parties.items()
            if name in self._aside
        }
        return roster.model_copy(update={"parties": roster.parties | changed})

    def _go_on_without(self, roster: Roster, outcomes: Mapping[str, str]) -> bool:
        """Whether a round failed since most parties do not name some of the others: the run goes on without these."""
        # A party's text is its own, and names each of the others once at most.
        told = Counter(
            name for one in outcomes.values() for name in {*one.partition(UnnamedParties.text)[2].split(", ")}
        )
        left_out = {name for name in roster.admitted() if 2 * told[name] > len(roster.admitted())}
        self._aside |= left_out
        for name in sorted(left_out):
            logger.warning(
                "the run goes on without %s, which most institutions do not name under parties in their party.toml; "
                "once they have and serve again, it takes part in the next run",
                name,
                extra=event("left-out", party=name),
            )
        return bool(left_out)

    def _farewell(self, reason: str) -> None:
        if self._jobs is None:
            self._sessions.parties.farewell(reason)

    def _check(self) -> None:
        """Raise now what a run would raise before it asks any party. Parties that have no key yet get a stand-in."""
        if self._jobs is not None:
            self._jobs.prepare()
        members = self._sessions.members()
        stand_ins = dict.fromkeys(members.expected(), b"")
        try:
            self._coordinator(members.roster(), stand_ins, self._own).check()
        except BudgetExceeded as error:
            if self._jobs is None:
                raise
            logger.warning("%s; inputs that have a label are still given out", error)

    def _coordinator(self, roster: Roster, signing_keys: Mapping[str, bytes], work: _Work) -> CoordinatorRun:
        settings = self._config.consortium

        def progress(step: Progress) -> None:
            self._on_progress(step)
            if work.job is not None and self._jobs is not None and step.step == "labels":
                self._jobs.note_progress(work.job, step.done)

        def should_stop() -> bool:
            revoked = work.job is not None and bool(self._why_not(work.job))
            return revoked or self._roster(self._sessions.members()) != roster

        return CoordinatorRun(
            work.config,
            Reach(self._sessions.parties, roster.admitted(), signing_keys),
            Storage(work.folder, ledger=self._folder.ledger, signer=self._sessions.signing_key, study=self._study),
            public=self._public,
            positions=None if work.job is None else work.job.positions,
            compute=Compute(settings.device, settings.threads),
            watch=Watch(progress, should_stop),
        )

    def _all_labelled(self, work: _Work) -> bool:
        """Whether no party need be asked any more, as after a crash that came with the last label or later."""
        if work.job is not None and self._jobs is not None:
            return len(self._jobs.released(work.job)) == len(work.job.positions)
        folder, pool = RunFolder(self._folder.run), self._public.pool.x
        record = folder.read()
        if record is None or not self._folder.ledger.exists():
            return False
        with Ledger.read(self._folder.ledger) as held:
            return all_labelled(Plan(self._config.run, self._public.spec), record, pool, held.labels(), self._study)
