"""Parties that join and leave while a consortium is served: real enrolment, sessions and masked sums, one process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from collegium.coordinator.consortium import ConsortiumConfig, read_consortium
from collegium.coordinator.coordinator import Progress
from collegium.coordinator.members import Members, MembersFile, utc_now
from collegium.coordinator.provision_cli import provision
from collegium.coordinator.public_data import load_public
from collegium.coordinator.serving import Serving
from collegium.parties.cli import PartyConfig, known_roster, membership_of
from collegium.parties.enrolment import enrol
from collegium.parties.party import Party
from collegium.parties.session import Answers, PartySession
from collegium.protocol.enrolment import new_code
from collegium.protocol.errors import ConfigurationError, IdentityError
from collegium.protocol.identities import Credentials, load_authority
from collegium.protocol.inputs import DataSource, PoolStore, load
from collegium.protocol.ledger import Ledger
from collegium.protocol.roster import Roster
from collegium.protocol.task import Task

PATIENCE_S = 60.0
NAMES = ("ash", "birch", "cedar", "oak")

CONFIG = """\
name = "trial"
pool = {{ source = "digits", split = "all", shuffle_seed = 0, start = 1200, stop = 1300 }}
teachers = {{ kind = "linear", options = {{ steps = 10 }} }}
mechanism = {{ name = "gnmax", parameters = {{ sigma = 2.0 }} }}
budget = {{ epsilon = 60.0 }}
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

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        sessions, enrolment = free_ports(2)
        path = folder / "consortium.toml"
        path.write_text(CONFIG.format(sessions=sessions, enrolment=enrolment))
        provision(path)
        self.config: ConsortiumConfig = read_consortium(path)
        self.members: MembersFile = MembersFile(folder / "consortium")
        self.parties: dict[str, Joined] = {}

    def join(self, name: str) -> None:
        """Enrol by a fresh code and serve."""
        code = new_code()
        self.members.change(lambda members: (members.with_code(name, code, utc_now(), 1), None))
        folder = self.folder / name
        fingerprint = load_authority(self.folder / "consortium" / "authority").fingerprint
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


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    try:
        yield scene
    finally:
        scene.close()


def charged(scene: Scene) -> int:
    with Ledger.read(scene.folder / "consortium" / "run" / "ledger.sqlite") as ledger:
        assert ledger.verify().queries_charged == len(ledger.labels())
        return ledger.verify().queries_charged


def test_who_enrols_during_a_run_is_summed_with_the_others_from_the_next_round_on(scene: Scene) -> None:
    result = scene.serve(lambda number: scene.join("oak") if number == 1 else None)
    assert result["state"] == "finished" and result["labels"]["answered"] == 12
    assert [(entry["asked"], entry["answered"]) for entry in result["rounds"]] == [(3, 3), (4, 4), (4, 4), (4, 4)]
    assert charged(scene) == 12
    for name in NAMES:
        scene.parties[name].thread.join(PATIENCE_S)
        assert scene.parties[name].ended == ["the run is finished"]
        assert Roster.load(scene.folder / name / "roster.json").admitted() == list(NAMES)


def test_a_finished_run_that_is_served_again_waits_for_nobody(scene: Scene) -> None:
    first = scene.serve(lambda number: None)
    public = load_public(scene.config.run, None)
    with Serving(scene.config, public, wait_s=0).listening() as serving:
        assert serving.run()["labels"] == first["labels"]
    assert charged(scene) == 12


def test_who_is_revoked_during_a_run_is_cut_off_and_the_others_go_on_without_it(scene: Scene) -> None:
    def change(number: int) -> None:
        if number == 1:
            scene.join("oak")
        elif number == 3:
            scene.members.change(lambda members: (members.without("cedar"), None))
            scene.parties["cedar"].thread.join(PATIENCE_S)  # another command did it: the coordinator notices by itself

    result = scene.serve(change)
    assert result["state"] == "finished" and charged(scene) == 12
    ended = scene.parties["cedar"].ended
    assert len(ended) == 1 and isinstance(ended[0], IdentityError) and "no longer admitted" in str(ended[0])
    assert Roster.load(scene.folder / "ash" / "roster.json").admitted() == ["ash", "birch", "oak"]
    assert result["rounds"][-1]["asked"] == 3 and result["rounds"][-1]["answered"] == 3


def test_the_members_of_another_consortium_are_not_served(scene: Scene) -> None:
    scene.members.change(lambda members: (Members(consortium="other"), None))
    with pytest.raises(ConfigurationError, match="is the folder of 'other'"):
        Serving(scene.config, load_public(scene.config.run, None), wait_s=0)
