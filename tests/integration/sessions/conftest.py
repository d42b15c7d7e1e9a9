"""A consortium for the tests of sessions: certificates are made once, coordinators and parties per test."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from support.sessions import TASK, Cable, Echo, Hub, Kits, Listen, Log, PartyThread, Serve

from collegium.coordinator.service.sessions import GrpcParties, SessionLimits
from collegium.data.task import Task
from collegium.parties.session import PartySession
from collegium.protocol.channels import Backoff
from collegium.protocol.identities import Credentials
from collegium.protocol.roster import Roster


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
        waited = threading.Event()

        def sleep(delay_s: float) -> None:
            waited.set()
            time.sleep(delay_s)

        session = PartySession(
            lambda task: answers, lambda: credentials, address, backoff=Backoff(0.01, 0.05), sleep=sleep
        )
        servings.append(PartyThread(session, waited))
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
