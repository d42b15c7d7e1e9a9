"""The coordinator of a real consortium: enrolment and sessions side by side, rounds whenever a quorum is there.

Who joins or leaves takes effect between rounds: the run is broken off after the labels of a round are in the ledger,
and taken up again with the new roster, as after a crash. Nothing is paid twice by that.
"""

from __future__ import annotations

import fcntl
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from collegium.coordinator.choosing import Plan, all_labelled
from collegium.coordinator.consortium import ConsortiumConfig, ConsortiumFolder
from collegium.coordinator.coordinator import Coordinator, Progress
from collegium.coordinator.enrolment_service import EnrolmentService, Registrar
from collegium.coordinator.members import Members
from collegium.coordinator.own_identity import keep_identity
from collegium.coordinator.public_data import PublicData
from collegium.coordinator.rounds import quorum_count
from collegium.coordinator.run_folder import RunFolder, write_whole
from collegium.coordinator.sessions import EventLog, GrpcParties, OnEvent, SessionEvent
from collegium.protocol.certificates import utc_now
from collegium.protocol.errors import (
    BudgetExceeded,
    CollegiumError,
    ConfigurationError,
    QuorumNotReached,
    StorageError,
)
from collegium.protocol.identities import AUTHORITY_KEY, RenewedCredentials, load_authority
from collegium.protocol.inputs import array_spec
from collegium.protocol.ledger import Ledger
from collegium.protocol.logs import event
from collegium.protocol.secure_sum.plan import SMALLEST_SUM

logger = logging.getLogger("collegium.coordinator")

LOOK_AGAIN_S = 1.0
"""How often changes that another command made to the members are looked for."""
FRUITLESS_ROUNDS = 3
"""So many rounds in a row that failed with a quorum connected, and the run stops for its operator."""


class _RosterChanged(Exception):
    """Raised from within a run, between rounds, to begin again with the new roster."""


def quorum_of(config: ConsortiumConfig, members: Members) -> int:
    """How many connected parties a round needs, out of all that are expected."""
    needed = quorum_count(config.votes.quorum, len(members.expected()))
    return needed if config.votes.mode == "clear" else max(needed, SMALLEST_SUM)


class Serving:
    """A coordinator that is up while `listening`, and does its `run` then.

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
        self._config, self._public, self._wait_s, self._on_progress = config, public, wait_s, on_progress
        self._folder = ConsortiumFolder(config.consortium.folder)
        self._members_file = self._folder.members
        self._members = self._members_file.read()
        if self._members.consortium != config.name:
            raise ConfigurationError(f"{self._folder.path} is the folder of {self._members.consortium!r}")
        if not (self._folder.authority / AUTHORITY_KEY).exists():
            raise StorageError(f"{self._folder.path} holds no authority: run collegium provision first")
        self._authority = load_authority(self._folder.authority)
        keep_identity(self._folder, config, self._authority)
        self._renewed = RenewedCredentials(self._folder.identity, "coordinator")
        self._identity = self._renewed()
        self._log_event, self._on_event = EventLog(), on_event
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._parties = GrpcParties(
            credentials=self._identity,
            renewed=self._renewed,
            roster=self._members.roster(),
            task=config.task,
            run_id=config.name,
            on_event=self._take_event,
        )
        registrar = Registrar(
            self._authority,
            self._members_file,
            sessions=config.consortium.address,
            days=config.consortium.certificate_days,
            on_enrolled=lambda name: self._reload(),
        )
        self._enrolment = EnrolmentService(registrar, self._folder.identity)
        self._watcher = threading.Thread(target=self._watch, name="members", daemon=True)

    @contextmanager
    def listening(self) -> Iterator[Serving]:
        """Serve both ports within; StorageError when one is in use or another process serves this folder."""
        settings = self._config.consortium
        with _only_one(self._folder.lock):
            self._coordinator(self._members, self._stand_ins()).check()
            try:
                self._enrolment.start(settings.bound(settings.enrolment))
                self._parties.start(settings.bound(settings.address))
                self._watcher.start()
                told = event("listening", enrolment=settings.enrolment, sessions=settings.address)
                logger.info("enrolment at %s, sessions at %s", settings.enrolment, settings.address, extra=told)
                yield self
            finally:
                self._stopping.set()
                self._enrolment.close()
                if self._watcher.is_alive():
                    self._watcher.join()
                self._parties.close()  # last: both of the others hand it rosters

    def run(self) -> dict[str, Any]:
        """The whole run, or what is left of it; what run.json says.

        Raises BudgetExceeded and whatever else `Coordinator.run` raises; parties that are told farewell by that
        end, all others come back when this is started again.
        """
        failed, rounds_before = 0, -1
        while True:
            members = self._current() if self._all_labelled() else self._await_quorum()
            roster = members.roster()
            self._parties.announce(roster)
            try:
                result = self._coordinator(members, roster.signing_keys()).run()
            except _RosterChanged:
                parties = len(self._current().roster().admitted())
                told = event("roster-changed", parties=parties)
                logger.info("the roster has changed: going on with %d parties", parties, extra=told)
            except QuorumNotReached as error:
                rounds = len((RunFolder(self._folder.run).read() or {}).get("rounds", ()))
                failed = (failed if rounds == rounds_before else 0) + self._has_quorum()
                rounds_before = rounds
                if failed >= FRUITLESS_ROUNDS:
                    raise
                told = event("round-failed", code=error.code)
                logger.warning("%s; trying again once a quorum is connected", error, extra=told)
            except BudgetExceeded as error:
                self._parties.farewell(f"the run stopped: {error}")
                raise
            else:
                self._parties.farewell("the run is finished")
                return result

    def _stand_ins(self) -> dict[str, bytes]:
        """Keys of nobody, one per expected party: for checks of what hangs on their number alone."""
        return dict.fromkeys(self._members.expected(), b"")

    def _coordinator(self, members: Members, signing_keys: Mapping[str, bytes]) -> Coordinator:
        roster, settings = members.roster(), self._config.consortium

        def progress(step: Progress) -> None:
            self._on_progress(step)
            if step.step == "labels" and step.done < step.total and self._current().roster() != roster:
                raise _RosterChanged

        return Coordinator(
            self._config.run,
            self._parties,
            self._folder.run,
            signer=self._identity.signing_key,
            roster=roster.admitted(),
            public=self._public,
            signing_keys=signing_keys,
            device=settings.device,
            threads=settings.threads,
            progress=progress,
        )

    def _all_labelled(self) -> bool:
        """Whether no party need be asked any more, as after a crash that came with the last label or later."""
        ledger, pool = self._folder.run / "ledger.sqlite", self._public.pool.x
        run = RunFolder(self._folder.run).read()
        if run is None or not ledger.exists():
            return False
        with Ledger.read(ledger) as held:
            return all_labelled(Plan(self._config.run, array_spec(pool)), run, pool, held.labels())

    # -- who is here -----------------------------------------------------------------------------

    def _await_quorum(self) -> Members:
        """Wait, for as long as it takes, until a quorum is connected; then a little for the others."""
        told = ""
        with self._changed:
            while len(self._connected()) < (needed := quorum_of(self._config, self._members)):
                said = f"{len(self._connected())} of {needed} parties that a round needs are connected"
                if said != told:
                    waiting = event("waiting-for-quorum", connected=len(self._connected()), needed=needed)
                    logger.info("%s", told := said, extra=waiting)
                self._changed.wait()
            self._changed.wait_for(
                lambda: len(self._connected()) == len(self._members.expected()), timeout=self._wait_s
            )
            return self._members

    def _has_quorum(self) -> bool:
        with self._changed:
            return len(self._connected()) >= quorum_of(self._config, self._members)

    def _connected(self) -> set[str]:
        return set(self._parties.names()) & set(self._members.roster().admitted())

    def _current(self) -> Members:
        with self._changed:
            return self._members

    def _take_event(self, event: SessionEvent) -> None:
        self._log_event(event)
        self._on_event(event)
        with self._changed:
            self._changed.notify_all()

    def _watch(self) -> None:
        """Take up what another command changed about the members, and leave word of who is connected."""
        stamp: tuple[int, int] | None = None
        shown = self._identity
        written: list[str] | None = None
        while True:
            try:
                connected = self._parties.names()
                if connected != written:
                    presence = {"at": utc_now().isoformat(timespec="seconds"), "connected": connected}
                    write_whole(self._folder.presence, json.dumps(presence) + "\n")
                    written = connected
                keep_identity(self._folder, self._config, self._authority)
                if (identity := self._renewed()) is not shown:
                    self._enrolment.renew()
                    shown = identity
                if (now := self._members_file.stamp()) != stamp:
                    self._reload()
                    stamp = now
            except CollegiumError as error:
                logger.error("%s", error)
            if self._stopping.wait(LOOK_AGAIN_S):
                return

    def _reload(self) -> None:
        """Admit by the members as they are now; what the parties know of each other changes between rounds."""
        with self._changed:
            self._members = self._members_file.read()
            roster = self._members.roster()
            self._changed.notify_all()
        self._parties.replace_roster(roster)


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    try:
        file = lock.open("a")
    except OSError as error:
        raise StorageError(f"cannot write {lock}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StorageError(f"another process serves {lock.parent}; stop it first") from error
        yield


def is_served(folder: ConsortiumFolder) -> bool:
    """Whether a process serves it now."""
    if not folder.lock.exists():
        return False
    with folder.lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


__all__ = ["Serving", "is_served", "quorum_of"]
