"""A small consortium that is watched: a coordinator with its status page, parties in threads, masked sums over TLS."""

from __future__ import annotations

import json
import socket
import threading
import urllib.request
from collections.abc import Callable
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
from collegium.coordinator.watching.board import Board
from collegium.coordinator.watching.server import StatusServer
from collegium.coordinator.watching.snapshot import Snapshots
from collegium.parties.cli import PartyConfig, known_roster, membership_of
from collegium.parties.enrolment import enrol
from collegium.parties.party import Party
from collegium.parties.session import Answers, PartySession
from collegium.protocol.enrolment import new_code
from collegium.protocol.identities import Credentials, load_authority
from collegium.protocol.inputs import DataSource, PoolStore, load
from collegium.protocol.task import Task

PATIENCE_S = 60.0
NAMES = ("ash", "birch", "cedar")

CONFIG = """\
name = "watched"
pool = {{ source = "digits", split = "all", shuffle_seed = 0, start = 1200, stop = 1260 }}
holdout = {{ source = "digits", split = "all", shuffle_seed = 0, start = 1500, stop = 1600 }}
teachers = {{ kind = "linear", per_party = {per_party}, options = {{ steps = 5 }} }}
mechanism = {{ name = "gnmax", parameters = {{ sigma = 40.0 }} }}
budget = {{ epsilon = 60.0 }}
queries = {{ count = 6, batch = 3 }}
student = {{ method = "supervised", options = {{ steps = 2 }} }}

[votes]
quorum = 0.75

[consortium]
address = "localhost:{sessions}"
enrolment = "localhost:{enrolment}"
parties = ["ash", "birch", "cedar"]
folder = "consortium"
status = "127.0.0.1:0"

[task]
classes = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
inputs = {{ kind = "image", height = 8, width = 8 }}
"""


def free_ports(number: int) -> list[int]:
    with ExitStack() as held:
        listeners = [held.enter_context(socket.create_server(("localhost", 0))) for _ in range(number)]
        return [listener.getsockname()[1] for listener in listeners]


@dataclass
class Member:
    """A party in a thread of this process."""

    session: PartySession
    thread: threading.Thread
    ended: list[str | Exception] = field(default_factory=list)


@dataclass
class Consortium:
    """Provisioned in ``folder``; `run` serves it to its end."""

    folder: Path
    per_party: int = 2
    codes: list[str] = field(default_factory=list)
    members: dict[str, Member] = field(default_factory=dict)
    url: str = ""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        sessions, enrolment = free_ports(2)
        path = self.folder / "consortium.toml"
        path.write_text(CONFIG.format(sessions=sessions, enrolment=enrolment, per_party=self.per_party))
        provision(path)
        self.config: ConsortiumConfig = read_consortium(path)

    @property
    def served(self) -> Path:
        return self.folder / "consortium"

    def join(self, name: str) -> None:
        """Enrol by a fresh code and serve."""
        code = new_code()
        self.codes.append(code)
        MembersFile(self.served).change(lambda members: (members.with_code(name, code, utc_now(), 1), None))
        fingerprint = load_authority(self.served / "authority").fingerprint
        done = enrol(self.config.consortium.enrolment, name, code, fingerprint, self.folder / name)
        config = PartyConfig.read(done.party_file)
        known = known_roster(config, done.credentials)
        assert known is not None
        first = 200 * NAMES.index(name)
        source = DataSource(source="digits", split="all", shuffle_seed=0, start=first, stop=first + 200)

        def open_party(task: Task) -> Answers:
            membership = membership_of(config, done.credentials, known)
            pools = PoolStore(config.folder / "pools")
            examples = load(source, task, data_root=None)
            return Party(name, examples, task, folder=config.folder, pools=pools, device="cpu", membership=membership)

        session = PartySession(
            open_party,
            lambda: Credentials.load(config.credentials, "party"),
            config.coordinator,
            on_roster=known.announced,
        )
        member = Member(session, threading.Thread(target=lambda: member.ended.append(_end_of(session)), daemon=True))
        config.folder.mkdir(parents=True, exist_ok=True)
        member.thread.start()
        self.members[name] = member

    def run(self, on_step: Callable[[Progress], None] = lambda step: None) -> dict[str, Any]:
        """The whole run with its page shown; ``on_step`` is called, after the board, as steps go on."""
        board = Board()

        def progress(step: Progress) -> None:
            board.take_step(step)
            on_step(step)

        public = load_public(self.config.run, None)
        assert self.config.consortium.status is not None
        serving = Serving(self.config, public, wait_s=0, on_progress=progress, on_event=board.take_event)
        snapshots = Snapshots(self.config, board, clock=_Always())
        with serving.listening(), StatusServer(self.config.consortium.status, snapshots) as page:
            self.url = page.url
            on_step(Progress("listening", 0, 1))
            for name in NAMES:
                self.join(name)
            result = serving.run()
            on_step(Progress("ended", 1, 1))
            return result

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("status.json"))
        return found

    def close(self) -> None:
        for member in self.members.values():
            member.session.stop()
            member.thread.join(PATIENCE_S)


class _Always:
    """A clock by which every snapshot is too old to be shown again."""

    def __init__(self) -> None:
        self._at_s = 0.0

    def __call__(self) -> float:
        self._at_s += 10.0
        return self._at_s


def _end_of(session: PartySession) -> str | Exception:
    try:
        return session.run()
    except Exception as error:
        return error
