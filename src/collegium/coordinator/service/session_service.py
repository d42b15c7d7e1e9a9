"""The two ports of a consortium, its members as they are now, and whether a quorum of them is connected."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.coordinator.membership.enrolment_service import EnrolmentService, Registrar, keep_identity
from collegium.coordinator.membership.members import Members
from collegium.coordinator.rounds.rounds import quorum_count
from collegium.coordinator.run.announced import announced_terms
from collegium.coordinator.service.peer_events import OnEvent, SessionEvent
from collegium.coordinator.service.sessions import EventLog, GrpcParties
from collegium.coordinator.settings.consortium import ConsortiumConfig, all_tasks
from collegium.data.values import ArraySpec
from collegium.errors import CollegiumError, ConfigurationError, IdentityError, QuorumNotReached, StorageError
from collegium.logs import event
from collegium.protocol.identities import AUTHORITY, CERTIFICATE, RenewedCredentials, load_authority
from collegium.protocol.secure_sum.plan import SMALLEST_SUM

logger = logging.getLogger("collegium.coordinator")

LOOK_AGAIN_S = 1.0
"""How often changes that another command made to the members are looked for."""


def quorum_of(config: ConsortiumConfig, members: Members) -> int:
    """How many connected parties a round needs, out of all that are expected."""
    needed = quorum_count(config.votes.quorum, len(members.expected()))
    return needed if config.votes.mode == "clear" else max(needed, SMALLEST_SUM)


class SessionService:
    """Enrolment and sessions of a consortium, while they are `open`.

    Parameters
    ----------
    pool : the public pool, which parties agree to when they enrol.
    wait_s : once a quorum is connected, how long the other expected parties may take to connect too.
    patience_s : how long a quorum may take to connect; None waits for ever.
    on_event : called, on the sessions' thread, with every connection, disconnection, refusal and violation.

    Raises
    ------
    ConfigurationError or StorageError, when the folder is another consortium's or was never provisioned.
    """

    def __init__(
        self,
        config: ConsortiumConfig,
        *,
        pool: ArraySpec,
        wait_s: float,
        on_event: OnEvent,
        patience_s: float | None = None,
    ) -> None:
        self._config, self._wait_s, self._patience_s, self._on_event = config, wait_s, patience_s, on_event
        self._folder = config.place
        self._members_file = self._folder.members
        self._members = self._members_file.read()
        self._roster = self._members.roster()
        if self._members.consortium != config.name:
            raise ConfigurationError(f"{self._folder.path} is the folder of {self._members.consortium!r}")
        if not (self._folder.authority / AUTHORITY).exists():
            raise StorageError(f"{self._folder.path} holds no authority: run collegium provision first")
        self._authority = load_authority(self._folder.authority)
        keep_identity(self._folder, config, self._authority)
        if not (self._folder.identity / CERTIFICATE).exists():
            raise IdentityError(
                f"the coordinator has no certificate yet: have {self._folder.requests} signed by collegium authority "
                "sign, put certificates.pem beside it, and run collegium provision"
            )
        self._renewed = RenewedCredentials(self._folder.identity, "coordinator")
        self._log_event = EventLog()
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self.parties = GrpcParties(
            credentials=self._renewed(),
            renewed=self._renewed,
            roster=self._roster,
            task=config.task,
            run_id=config.run.name,
            on_event=self.take_event,
            rehearsal=config.consortium.rehearsal,
        )
        registrar = Registrar(
            self._authority,
            self._members_file,
            sessions=config.consortium.address,
            terms=announced_terms(config.run, config.queries.count, pool),
            days=config.consortium.certificate_days,
            tasks=all_tasks(config),
            on_enrolled=lambda name: self._reload(),
        )
        self._enrolment = EnrolmentService(registrar, self._folder.identity)
        self._watcher = threading.Thread(target=self._watch, name="members", daemon=True)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Listen at both ports within this context; StorageError when one is in use."""
        settings = self._config.consortium
        try:
            self._enrolment.start(settings.bound(settings.enrolment))
            self.parties.start(settings.bound(settings.address))
            self._watcher.start()
            told = event("listening", enrolment=settings.enrolment, sessions=settings.address)
            logger.info("enrolment at %s, sessions at %s", settings.enrolment, settings.address, extra=told)
            yield
        finally:
            self._stopping.set()
            self._enrolment.close()
            if self._watcher.is_alive():
                self._watcher.join()
            self.parties.close()  # last: both of the others hand it rosters

    @property
    def signing_key(self) -> Ed25519PrivateKey:
        """The coordinator's own; a renewed certificate is for the same."""
        return self._renewed().signing_key

    def members(self) -> Members:
        """The members at this moment."""
        with self._changed:
            return self._members

    def await_quorum(self) -> Members:
        """Wait until a quorum is connected, for as long as it takes or may take; then a little for the others.

        QuorumNotReached where ``patience_s`` passes first.
        """
        told, until_s = "", None if self._patience_s is None else time.monotonic() + self._patience_s
        with self._changed:
            while len(self._connected()) < (needed := quorum_of(self._config, self._members)):
                said = f"{len(self._connected())} of {needed} parties that a round needs are connected"
                if said != told:
                    waiting = event("waiting-for-quorum", connected=len(self._connected()), needed=needed)
                    logger.info("%s", told := said, extra=waiting)
                left_s = None if until_s is None else until_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    raise QuorumNotReached(f"{said}, and no more came within {self._patience_s:g} s")
                self._changed.wait(left_s)
            self._changed.wait_for(
                lambda: len(self._connected()) == len(self._members.expected()), timeout=self._wait_s
            )
            return self._members

    def has_quorum(self) -> bool:
        with self._changed:
            return len(self._connected()) >= quorum_of(self._config, self._members)

    def take_event(self, event: SessionEvent) -> None:
        self._log_event(event)
        self._on_event(event)
        with self._changed:
            self._changed.notify_all()

    def _connected(self) -> set[str]:
        return set(self.parties.names()) & set(self._roster.admitted())

    def _watch(self) -> None:
        """Take up what another command changed about the members."""
        stamp: tuple[int, int] | None = None
        shown = self._renewed()
        while True:
            try:
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
            self._roster = self._members.roster()
            self._changed.notify_all()
        self.parties.replace_roster(lambda: self._roster)
