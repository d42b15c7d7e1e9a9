"""A rehearsal of a consortium: the whole run with parties that invent records, in a folder made anew each time."""

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from collegium.coordinator.membership.members import Members
from collegium.coordinator.report.page import rendered
from collegium.coordinator.rounds.readiness import READY
from collegium.coordinator.rounds.rounds import ANSWERED
from collegium.coordinator.run.coordinator import Progress
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.service.coordinator_service import CoordinatorService
from collegium.coordinator.service.party_servicer import Traffic
from collegium.coordinator.service.peer_events import SessionEvent
from collegium.coordinator.settings.consortium import ConsortiumConfig
from collegium.coordinator.settings.run_config import PublicData
from collegium.errors import CollegiumError, OtherPurpose, QuorumNotReached


@dataclass(frozen=True)
class Rehearsed:
    """How a rehearsal went.

    Parameters
    ----------
    failed : why the run did not end; None where it did.
    parties : by name, what stands in a party's way; None where it took part to the end.
    seconds : by phase, in their order.
    traffic : bytes of messages to and from each party.
    student : the file that came of it.
    """

    failed: str | None
    parties: Mapping[str, str | None]
    seconds: Mapping[str, float]
    traffic: Mapping[str, Traffic]
    student: str | None

    @property
    def ready(self) -> bool:
        """Whether everybody took part to the end."""
        return self.failed is None and not any(self.parties.values())

    def lines(self) -> list[str]:
        """The outcome as lines for people."""
        return rendered("coordinator.service", "rehearsed.txt.j2", vars(self), ready=self.ready).splitlines()


@dataclass
class _Watched:
    """What is seen while a rehearsal goes on."""

    seconds: dict[str, float] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    """Of the round with which the run ended."""
    _since_s: float | None = None

    def take_step(self, step: Progress) -> None:
        """The time since the last step counts for this one."""
        now = time.monotonic()
        if self._since_s is not None:
            self.seconds[step.step] = self.seconds.get(step.step, 0.0) + now - self._since_s
        self._since_s = now

    def take_event(self, event: SessionEvent) -> None:
        """An `OnEvent`."""
        if event.party is None:
            return
        if event.kind == "connected":
            self.seen.add(event.party)
        elif event.kind in ("refused", "violation"):
            serves = event.detail == OtherPurpose.study
            self.refused[event.party] = "it serves its records; it must run party rehearse" if serves else event.detail


def rehearse(config: ConsortiumConfig, public: PublicData, *, wait_s: float, patience_s: float) -> Rehearsed:
    """Do the whole run with the parties that rehearse; ledger and run of a rehearsal before are removed.

    Parameters
    ----------
    wait_s, patience_s : see `CoordinatorService`.

    Raises
    ------
    CollegiumError
        If it cannot begin: the settings, the ports, or another process that serves the folder.
    """
    consortium = config.consortium.model_copy(update={"rehearsal": True})
    config = config.model_copy(update={"consortium": consortium})
    place, watched, failed, record = config.place, _Watched(), None, None
    shutil.rmtree(place.ledger.parent, ignore_errors=True)
    service = CoordinatorService(
        config,
        public,
        wait_s=wait_s,
        patience_s=patience_s,
        on_progress=watched.take_step,
        on_event=watched.take_event,
    )
    with service.listening():
        try:
            record = service.run()
        except CollegiumError as error:
            failed = str(error)
            outcomes = error.outcomes if isinstance(error, QuorumNotReached) else {}
            watched.failures = {name: one for name, one in outcomes.items() if one != ANSWERED}
            service.parties.farewell(f"the rehearsal failed: {error}")
    record = record or RunFolder(place.run).read()
    members, student = place.members.read(), RunFolder(place.run).student
    parties = {name: _wrong(name, members, watched, record) for name in members.expected()}
    file = str(student) if student.exists() else None
    return Rehearsed(failed, parties, watched.seconds, dict(service.parties.traffic), file)


def _wrong(name: str, members: Members, watched: _Watched, record: RunRecord | None) -> str | None:
    """What stands in a party's way; None where nothing does."""
    if not members.members[name].enrolled:
        return "it has not enrolled"
    if name not in watched.seen:
        return watched.refused.get(name, "it did not connect")
    if name in watched.failures:
        return watched.failures[name]
    known = None if record is None else record.parties.get(name)
    if known is None:
        return watched.refused.get(name)
    failures = [f"{failure.when}: {failure.outcome}" for failure in known.failures]
    return failures[-1] if failures else None if known.status == READY else known.status
