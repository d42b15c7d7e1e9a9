"""For the tests of label jobs: a coordinator that works off students' jobs, and orders that wait on threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collegium.clock import utc_now
from collegium.coordinator.label_jobs.ordering import Delivery, LabelJobClient, enrol_student, order_labels
from collegium.coordinator.service.coordinator_service import CoordinatorService
from collegium.coordinator.settings.consortium import ConsortiumFolder
from collegium.coordinator.settings.run_config import load_public
from collegium.coordinator.watching.consortium_status import consortium_status
from collegium.errors import CollegiumError
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.protocol.channels import Backoff
from collegium.protocol.identities import Credentials
from collegium.protocol.label_jobs import JobStatus
from support.consortium import Scene
from support.members import PATIENCE_S


class Order(threading.Thread):
    """A student that asks and waits, on a thread."""

    def __init__(self, client: LabelJobClient, folder: Path, positions: list[int], note: str = "") -> None:
        super().__init__(daemon=True)
        self.client, self.folder, self.positions, self.note = client, folder, positions, note
        self.outcome: Delivery | CollegiumError | None = None
        self.heard: list[JobStatus] = []
        self.queued = threading.Event()

    def run(self) -> None:
        def hear(told: JobStatus) -> None:
            self.heard.append(told)
            self.queued.set()

        try:
            self.outcome = order_labels(
                self.client, self.folder, lambda inputs: self.positions, self.note, on_status=hear
            )
        except CollegiumError as error:
            self.outcome = error
            self.queued.set()

    def delivered(self) -> Delivery:
        self.join(PATIENCE_S)
        assert isinstance(self.outcome, Delivery), self.outcome
        return self.outcome


@dataclass
class JobScene:
    """A scene whose coordinator works off jobs."""

    scene: Scene
    orders: list[Order] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.scene.config.consortium.address

    def enrol(self, name: str, folder: Path | None = None) -> Path:
        folder = folder or self.scene.folder / f"keys-{name}"
        code = self.scene.code_for(name)
        enrol_student(self.scene.config.consortium.enrolment, name, code, self.scene.fingerprint, folder)
        return folder

    def client(self, keys: Path) -> LabelJobClient:
        return LabelJobClient(lambda: Credentials.load(keys, "student"), self.address, backoff=Backoff(0.1, 1.0))

    def order(self, name: str, folder: str, positions: list[int], note: str = "") -> Order:
        """Ask as somebody enrolled, from a folder of its own."""
        client = self.client(self.scene.folder / f"keys-{name}")
        order = Order(client, self.scene.folder / folder, positions, note)
        order.start()
        assert order.queued.wait(PATIENCE_S)
        self.orders.append(order)
        return order

    def status(self) -> dict[str, Any]:
        """As `collegium coordinator status` shows it."""
        return consortium_status(ConsortiumFolder(self.scene.folder / "consortium"), utc_now())

    def ledger(self) -> tuple[int, dict[str, int]]:
        """Queries paid for, and labels; after every signature was checked."""
        with Ledger.read(self.scene.folder / "consortium" / "ledger.sqlite") as ledger:
            key = self.scene.folder / "consortium" / "coordinator"
            public_key = Credentials.load(key, "coordinator").subject.signing_key
            return sum(charged for _, charged in verify(ledger.path, public_key).periods), ledger.labels()


@contextmanager
def jobs_served_by(scene: Scene) -> Iterator[JobScene]:
    """Serve jobs within, with three parties that answer."""
    with ExitStack() as stack:
        stack.callback(scene.close)
        serving = CoordinatorService(scene.config, load_public(scene.config.run, None), wait_s=0)
        stack.enter_context(serving.listening())
        working = threading.Thread(target=serving.serve_jobs, daemon=True)
        working.start()
        yield JobScene(scene)
