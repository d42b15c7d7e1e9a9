"""A consortium on this machine in one process: real enrolment, sessions and masked sums, parties in threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collegium.coordinator.cli.provision_cli import provision
from collegium.coordinator.membership.members import MembersFile
from collegium.coordinator.run.coordinator import Progress
from collegium.coordinator.service.coordinator_service import CoordinatorService
from collegium.coordinator.settings.consortium import ConsortiumConfig, read_consortium
from collegium.coordinator.settings.run_config import load_public
from support.members import Member, code_for, fingerprint_of, join, leave
from support.ports import free_ports

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

[task]
classes = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
inputs = {{ kind = "image", height = 8, width = 8 }}
"""


class Scene:
    """A provisioned consortium and its parties."""

    def __init__(self, folder: Path, *, extra: str = "", epsilon: float = 60.0) -> None:
        self.folder = folder
        sessions, enrolment = free_ports(2)
        self.path = path = folder / "consortium.toml"
        path.write_text(CONFIG.format(sessions=sessions, enrolment=enrolment, extra=extra, epsilon=epsilon))
        provision(path)
        self.config: ConsortiumConfig = read_consortium(path)
        self.members: MembersFile = MembersFile(folder / "consortium")
        self.parties: dict[str, Member] = {}

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.folder / "consortium")

    def code_for(self, name: str) -> str:
        return code_for(self.folder / "consortium", name)

    def join(self, name: str) -> None:
        """Enrol by a fresh code and serve."""
        self.parties[name] = join(
            self.config,
            name,
            code=self.code_for(name),
            fingerprint=self.fingerprint,
            folder=self.folder / name,
            first=200 * NAMES.index(name),
        )

    def serve(self, on_labels: Any) -> dict[str, Any]:
        """The whole run; ``on_labels(number)`` is called after each round, between it and the next."""
        rounds = 0

        def progress(step: Progress) -> None:
            nonlocal rounds
            if step.step == "labels":
                rounds += 1
                on_labels(rounds)

        public = load_public(self.config.run, None)
        with CoordinatorService(self.config, public, wait_s=0, on_progress=progress).listening() as serving:
            for name in NAMES[:3]:
                self.join(name)
            return serving.run()

    def close(self) -> None:
        leave(self.parties.values())
