"""A consortium for the tests of sessions: certificates are made once, coordinators and parties per test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from support.sessions import TASK, Cable, Echo, Hub, Kits, Listen, Log, PartyThread, Serve

from collegium.coordinator.service.sessions import GrpcParties, SessionLimits
from collegium.data.task import Task
from collegium.parties.session import PartySession
from collegium.protocol.channels import Backoff
from collegium.protocol.identities import Credentials
from collegium.protocol.roster import Roster


@dataclass(frozen=True)
class Watched(Backoff):
    """Waiting times that tell when one is asked for: after an attempt that failed."""

    asked: threading.Event = field(default_factory=threading.Event)

    def delay_s(self, failures: int, uniform: Callable[[float, float], float]) -> float:
        self.asked.set()
        return super().delay_s(failures, uniform)


@pytest.fixture(scope="session")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Kits:
    return Kits.make(tmp_path_factory.mktemp("kits"))


@pytest.fixture
def listen(kits: Kits) -> Iterator[Listen]:
    opened: list[GrpcParties] = []

    def start(
        address: str = "127.0.0.1:0",
        limits: SessionLimits | None = None,
        task: Task = TASK,
        roster: Roster = kits.roster,
    ) -> Hub:
        log = Log()
        opened.append(
            GrpcParties(
                credentials=kits.coordinator,
                roster=roster,
                task=task,
                run_id="run-1",
                on_event=log,
                session_limits=limits or SessionLimits(),
            )
        )
        return Hub(opened[-1], opened[-1].start(address), log)

    yield start
    for parties in opened:
        parties.close()


@pytest.fixture
def hub(listen: Listen) -> Hub:
    return listen()


@pytest.fixture
def serve() -> Iterator[Serve]:
    servings: list[PartyThread] = []

    def start(credentials: Credentials, address: str, party: Echo | None = None) -> PartyThread:
        answers = party or Echo(credentials.name)
        backoff = Watched(0.01, 0.05)
        session = PartySession(lambda task: answers, lambda: credentials, address, backoff=backoff)
        servings.append(PartyThread(session, backoff.asked))
        return servings[-1]

    yield start
    for serving in servings:
        serving.session.stop()
    for serving in servings:
        serving.ended()


@pytest.fixture
def cable(hub: Hub) -> Iterator[Cable]:
    cable = Cable(hub.port)
    yield cable
    cable.close()
