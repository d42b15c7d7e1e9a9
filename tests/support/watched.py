"""A small consortium that is watched: a coordinator with its status page, parties in threads, masked sums over TLS."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collegium.coordinator.cli.provision_cli import provision
from collegium.coordinator.run.coordinator import Progress
from collegium.coordinator.service.coordinator_service import CoordinatorService
from collegium.coordinator.settings.consortium import ConsortiumConfig, read_consortium
from collegium.coordinator.settings.run_config import load_public
from collegium.coordinator.watching.live_state import LiveState, Snapshots
from collegium.coordinator.watching.server import StatusServer
from support.members import Member, code_for, fingerprint_of, join, leave
from support.ports import free_ports
from support.waiting import PATIENCE_S

NAMES = ("ash", "birch", "cedar")

LINEAR = 'kind = "linear", options = { steps = 5 }'
CONSTANT = 'kind = "constant"'
"""Teachers for whom a party's process loads neither torch nor scikit-learn."""

CONFIG = """\
name = "watched"
pool = {{ source = "digits", split = "all", shuffle_seed = 0, start = 1200, stop = 1260 }}
holdout = {{ source = "digits", split = "all", shuffle_seed = 0, start = 1500, stop = 1600 }}
teachers = {{ {teachers}, per_party = {per_party} }}
mechanism = {{ name = "gnmax", parameters = {{ sigma = 40.0 }} }}
budget = {{ epsilon = 60.0, bound = "classic" }}
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


@dataclass
class Consortium:
    """Provisioned in ``folder``; `run` serves it to its end."""

    folder: Path
    per_party: int = 2
    options_of_parties: dict[str, Any] = field(default_factory=dict)
    """Further arguments of `members.join`."""
    on_page: Callable[[dict[str, Any]], dict[str, Any]] = lambda shown: shown
    """Changes what the status page shows."""
    codes: list[str] = field(default_factory=list)
    members: dict[str, Member] = field(default_factory=dict)
    url: str = ""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        sessions, enrolment = free_ports(2)
        path = self.folder / "consortium.toml"
        text = CONFIG.format(sessions=sessions, enrolment=enrolment, teachers=LINEAR, per_party=self.per_party)
        path.write_text(text)
        provision(path)
        self.config: ConsortiumConfig = read_consortium(path)

    @property
    def served(self) -> Path:
        return self.folder / "consortium"

    def join(self, name: str) -> None:
        """Enrol by a fresh code and serve."""
        self.codes.append(code_for(self.served, name))
        self.members[name] = join(
            self.config,
            name,
            code=self.codes[-1],
            fingerprint=fingerprint_of(self.served),
            folder=self.folder / name,
            first=200 * NAMES.index(name),
            **self.options_of_parties,
        )

    def run(self, on_step: Callable[[Progress], None] = lambda step: None) -> dict[str, Any]:
        """The whole run with its page shown; ``on_step`` is called, after the board, as steps go on."""
        board = LiveState()

        def progress(step: Progress) -> None:
            board.take_step(step)
            on_step(step)

        public = load_public(self.config.run, None)
        assert self.config.consortium.status is not None
        serving = CoordinatorService(self.config, public, wait_s=0, on_progress=progress, on_event=board.take_event)
        snapshots = Snapshots(self.config, board, clock=_Always())
        status = StatusServer(self.config.consortium.status, lambda: self.on_page(snapshots()))
        with serving.listening(), status as page:
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
        leave(self.members.values())


class _Always:
    """A clock by which every snapshot is too old to be shown again."""

    def __init__(self) -> None:
        self._at_s = 0.0

    def __call__(self) -> float:
        self._at_s += 10.0
        return self._at_s
