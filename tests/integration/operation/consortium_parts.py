"""A consortium on this machine in one process: real enrolment, sessions and masked sums, parties in threads."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collegium.coordinator.consortium import ConsortiumConfig, read_consortium
from collegium.coordinator.coordinator import Progress
from collegium.coordinator.members import MembersFile, utc_now
from collegium.coordinator.provision_cli import provision
from collegium.coordinator.public_data import load_public
from collegium.coordinator.serving import Serving
from collegium.parties.cli import PartyConfig, known_roster, membership_of
from collegium.parties.enrolment import enrol
from collegium.parties.party import Party
from collegium.parties.session import Answers, PartySession
from collegium.protocol.enrolment import new_code
from collegium.protocol.identities import Credentials, load_authority
from collegium.protocol.inputs import DataSource, PoolStore, load
from collegium.protocol.task import Task

PATIENCE_S = 240.0
"""A slow and busy machine is given this long."""
NAMES = ("ash", "birch", "cedar", "oak")

CONFIG = """\
name = "trial"
{extra}
pool = {{ source = "digits", split = "all", shuffle_seed = 0, start = 1200, stop = 1300 }}
teachers = {{ kind = "linear", options = {{ steps = 10 }} }}
mechanism = {{ name = "gnmax", parameters = {{ sigma = 2.0 }} }}
budget = {{ epsilon = {epsilon} }}
queries = {{ count = 12, batch = 3 }}
student = {{ method = "supervised", options = {{ steps = 1 }} }}

[votes]
quorum = 0.75

[consortium]
address = "localhost:{sessions}"
enrolment = "localhost:{enrolment}"
parties = ["ash", "birch", "cedar", "oak"]
folder = "consortium"
{settings}

[task]
classes = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
inputs = {{ kind = "image", height = 8, width = 8 }}
"""


def free_ports(number: int) -> list[int]:
    with ExitStack() as held:
        listeners = [held.enter_context(socket.create_server(("localhost", 0))) for _ in range(number)]
        return [listener.getsockname()[1] for listener in listeners]


@dataclass
class Joined:
    """A party in a thread of this process."""

    session: PartySession
    thread: threading.Thread
    ended: list[str | Exception] = field(default_factory=list)


class Scene:
    """A provisioned consortium and its parties."""

    def __init__(self, folder: Path, *, settings: str = "", extra: str = "", epsilon: float = 60.0) -> None:
        self.folder = folder
        sessions, enrolment = free_ports(2)
        self.path = path = folder / "consortium.toml"
        path.write_text(
            CONFIG.format(sessions=sessions, enrolment=enrolment, settings=settings, extra=extra, epsilon=epsilon)
        )
        provision(path)
        self.config: ConsortiumConfig = read_consortium(path)
        self.members: MembersFile = MembersFile(folder / "consortium")
        self.parties: dict[str, Joined] = {}

    @property
    def fingerprint(self) -> str:
        return load_authority(self.folder / "consortium" / "authority").fingerprint

    def code_for(self, name: str) -> str:
        code = new_code()
        self.members.change(lambda members: (members.with_code(name, code, utc_now(), 1), None))
        return code

    def join(self, name: str) -> None:
        """Enrol by a fresh code and serve."""
        code, fingerprint = self.code_for(name), self.fingerprint
        folder = self.folder / name
        done = enrol(self.config.consortium.enrolment, name, code, fingerprint, folder)
        config = PartyConfig.read(done.party_file)
        known = known_roster(config, done.credentials)
        assert known is not None
        first = 200 * NAMES.index(name)
        source = DataSource(source="digits", split="all", shuffle_seed=0, start=first, stop=first + 200)

        def open_party(task: Task) -> Answers:
            membership = membership_of(config, done.credentials, known)
            pools = PoolStore(folder / "pools")
            examples = load(source, task, data_root=None)
            return Party(name, examples, task, folder=config.folder, pools=pools, device="cpu", membership=membership)

        session = PartySession(
            open_party,
            lambda: Credentials.load(config.credentials, "party"),
            config.coordinator,
            on_roster=known.announced,
        )
        joined = Joined(session, threading.Thread(target=lambda: joined.ended.append(_end_of(session)), daemon=True))
        config.folder.mkdir(parents=True, exist_ok=True)
        joined.thread.start()
        self.parties[name] = joined

    def serve(self, on_labels: Any) -> dict[str, Any]:
        """The whole run; ``on_labels(number)`` is called after each round, between it and the next."""
        rounds = 0

        def progress(step: Progress) -> None:
            nonlocal rounds
            if step.step == "labels":
                rounds += 1
                on_labels(rounds)

        public = load_public(self.config.run, None)
        with Serving(self.config, public, wait_s=0, on_progress=progress).listening() as serving:
            for name in NAMES[:3]:
                self.join(name)
            return serving.run()

    def close(self) -> None:
        for party in self.parties.values():
            party.session.stop()
            party.thread.join(PATIENCE_S)


def _end_of(session: PartySession) -> str | Exception:
    try:
        return session.run()
    except Exception as error:
        return error
