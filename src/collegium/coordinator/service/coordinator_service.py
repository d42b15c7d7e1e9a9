"""The coordinator of a real consortium: enrolment and sessions side by side, rounds whenever a quorum is there.

Who joins or leaves takes effect between rounds: the run is broken off after the labels of a round are in the ledger,
and taken up again with the new roster, as after a crash. Nothing is paid twice by that.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from collegium.coordinator.membership.members import Members
from collegium.coordinator.run.coordinator import Compute, CoordinatorRun, Progress, Reach, Storage, Watch
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.selection.plan import Plan
from collegium.coordinator.service.peer_events import OnEvent
from collegium.coordinator.service.session_service import SessionService
from collegium.coordinator.settings.consortium import ConsortiumConfig
from collegium.coordinator.settings.run_config import PublicData
from collegium.errors import (
    BudgetExceeded,
    QuorumNotReached,
    UnnamedParties,
)
from collegium.logs import event
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.roster import Roster
from collegium.whole_files import exclusive, remove_stale_temp_files

logger = logging.getLogger("collegium.coordinator")

FRUITLESS_ROUNDS = 3
"""So many rounds in a row that failed with a quorum connected, and the run stops for its operator."""


class CoordinatorService:
    """A coordinator that is up while `listening`, and does its `run` then.

    Parameters
    ----------
    public : pool and holdout.
    wait_s : once a quorum is connected, how long the other expected parties may take to connect too.
    patience_s : how long a quorum may take to connect at first; None waits for ever.
    on_progress : called as steps go on.
    on_event : called, on the sessions' thread, with every connection, disconnection, refusal and violation.
    """

    def __init__(
        self,
        config: ConsortiumConfig,
        public: PublicData,
        *,
        wait_s: float,
        patience_s: float | None = None,
        on_progress: Callable[[Progress], None] = lambda step: None,
        on_event: OnEvent = lambda event: None,
    ) -> None:
        self._config, self._public, self._on_progress = config, public, on_progress
        self._folder, self._study = config.place, config.consortium.study
        self._sessions = SessionService(
            config, pool=public.spec, wait_s=wait_s, on_event=on_event, patience_s=patience_s
        )
        self.parties = self._sessions.parties
        self._aside: set[str] = set()

    @contextmanager
    def listening(self) -> "Iterator[CoordinatorService]":
        """Serve both ports within; StorageError when one is in use or another process serves this folder."""
        with exclusive(self._folder.lock, f"another process serves {self._folder.path}; stop it first"):
            remove_stale_temp_files(self._folder.path)
            self._check()
            with self._sessions.open():
                yield self

    def run(self) -> RunRecord:
        """The whole run, or what is left of it; returns its record.

        Raises BudgetExceeded and whatever else `CoordinatorRun.run` raises. Parties are told farewell where it is
        finished or the budget ends; after any other error they come back when this is started again.
        """
        try:
            result = self._complete()
        except BudgetExceeded as error:
            self.parties.farewell(f"the run stopped: {error}")
            raise
        self.parties.farewell("the run is finished")
        return result

    def _complete(self) -> RunRecord:
        """Run to the end, whoever joins or leaves meanwhile."""
        failed, rounds_before = 0, -1
        while True:
            asks = not self._all_labelled()
            roster = self._roster(self._sessions.await_quorum() if asks else self._sessions.members())
            if asks:
                self.parties.announce(roster)
            try:
                record = self._coordinator(roster, roster.signing_keys()).run()
                if record.state != "labelling":
                    return record
                parties = len(self._roster(self._sessions.members()).admitted())
                told = event("roster-changed", parties=parties)
                logger.info("the roster has changed: going on with %d parties", parties, extra=told)
            except QuorumNotReached as error:
                if self._go_on_without(roster, error.outcomes):
                    continue
                written = RunFolder(self._folder.run).read()
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
                "the run goes on without %s, which most institutions do not name under parties in their party.toml, "
                "or know by another key; once they have changed that and serve again, it takes part in the next run",
                name,
                extra=event("left-out", party=name),
            )
        return bool(left_out)

    def _check(self) -> None:
        """Raise now what a run would raise before it asks any party. Parties that have no key yet get a stand-in."""
        members = self._sessions.members()
        stand_ins = dict.fromkeys(members.expected(), b"")
        self._coordinator(members.roster(), stand_ins).check()

    def _coordinator(self, roster: Roster, signing_keys: Mapping[str, bytes]) -> CoordinatorRun:
        settings, place = self._config.consortium, self._folder

        def should_stop() -> bool:
            return self._roster(self._sessions.members()) != roster

        return CoordinatorRun(
            self._config.run,
            Reach(self.parties, roster.admitted(), signing_keys),
            Storage(place.run, ledger=place.ledger, signer=self._sessions.signing_key, study=self._study),
            public=self._public,
            compute=Compute(settings.device, settings.threads),
            watch=Watch(self._on_progress, should_stop),
        )

    def _all_labelled(self) -> bool:
        """Whether no party need be asked any more, as after a crash that came with the last label or later."""
        record = RunFolder(self._folder.run).read()
        if record is None or not self._folder.ledger.exists():
            return False
        measured = record.evaluation
        if measured is not None and measured.paid and measured.measures is None and measured.why_not is None:
            return False  # they measure the student yet
        with Ledger.read(self._folder.ledger) as held:
            plan = Plan(self._config.run, self._public, self._study)
            return plan.all_labelled(record, held.labels())
