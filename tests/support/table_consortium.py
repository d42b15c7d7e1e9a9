"""A consortium of three institutions with a small table: real enrolment and sessions, parties from their own files."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collegium.coordinator.service.coordinator_service import CoordinatorService
from collegium.coordinator.service.rehearsal import Rehearsed, rehearse
from collegium.coordinator.settings.consortium import ConsortiumConfig, read_consortium
from collegium.coordinator.settings.run_config import load_public
from collegium.parties.config import OwnRecords, PartyConfig
from collegium.parties.enrolment import enrol
from collegium.parties.opening import Opening
from collegium.parties.rehearsal import RehearsalOpening, without_records
from collegium.parties.session import PartySession
from collegium.protocol.identities import Credentials
from support.members import code_for, fingerprint_of
from support.ports import free_ports
from support.sums_scene import COLUMNS, POOL, TASK
from support.typist import typed
from support.waiting import PATIENCE_S

NAMES = ("ash", "birch", "cedar")

CONFIG = """\
name = "trial"
budget = {{ epsilon = 3.0 }}
pool = {{ source = "pool.npz" }}
evaluation = {{ share = 0.2 }}

[consortium]
address = "localhost:{}"
enrolment = "localhost:{}"
parties = ["ash", "birch", "cedar"]
folder = "consortium"

[task]
classes = ["a", "b", "c"]

[task.inputs]
kind = "table"
columns = [{}]
"""


class TableConsortium:
    """A consortium in ``folder``.

    ``hidden`` : the institutions' records are named pipes, at which whoever opens them hangs.
    """

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], *, hidden: bool = False) -> None:
        self._hidden = hidden
        self.folder, self.path = folder, folder / "consortium.toml"
        columns = ", ".join(f'{{ kind = "number", name = "c{n}", low = 0, high = 1 }}' for n in range(COLUMNS))
        self.path.write_text(CONFIG.format(*free_ports(2), columns))
        np.savez(folder / "pool.npz", x=POOL[:, ::2])
        assert typed(capsys, "provision", self.path)[0] == 0
        self.config: ConsortiumConfig = read_consortium(self.path)
        assert self.config.task == TASK
        self.public = load_public(self.config.run, folder)
        self.sessions: list[PartySession] = []
        self.threads: list[threading.Thread] = []

    @property
    def served(self) -> Path:
        return self.folder / "consortium"

    def enrol(self, *names: str) -> None:
        with self.service().listening():
            for name in names:
                code, fingerprint = code_for(self.served, name), fingerprint_of(self.served)
                self._write_records(self.folder / f"{name}.csv")
                enrol(
                    self.config.consortium.enrolment,
                    name,
                    code,
                    fingerprint,
                    self.folder / name,
                    parties=NAMES,
                    records=OwnRecords(source=str(self.folder / f"{name}.csv"), label="class", one_row_each=True),
                )

    def _write_records(self, file: Path) -> None:
        if self._hidden:
            os.mkfifo(file)
            return
        rows = np.random.default_rng(len(file.name)).random((40, COLUMNS))
        lines = [",".join(f"{value:.3f}" for value in row) + f",{'abc'[int(3 * row[0])]}" for row in rows]
        header = ",".join(f"c{number}" for number in range(COLUMNS)) + ",class"
        file.write_text("\n".join([header, *lines]) + "\n")

    def service(self, **options: Any) -> CoordinatorService:
        return CoordinatorService(self.config, self.public, wait_s=0.0, **options)

    def opening(self, name: str, *, rehearses: bool = True) -> Opening:
        file = self.folder / name / "party.toml"
        config, credentials = PartyConfig.read(file), self.credentials(name)
        if not rehearses:
            return Opening(file, config, credentials)
        apart = self.folder / f"{name}-apart-{len(self.sessions)}"
        apart.mkdir()
        return RehearsalOpening(file, without_records(config, apart), credentials, 40)

    def credentials(self, name: str) -> Credentials:
        return Credentials.load(PartyConfig.read(self.folder / name / "party.toml").credentials, "party")

    def attend(
        self, name: str, opening: Any, *, rehearses: bool, address: str | None = None, stays: bool = False
    ) -> PartySession:
        address = address or self.config.consortium.address
        known = opening.known if isinstance(opening, Opening) else None
        session = PartySession(
            opening,
            lambda: self.credentials(name),
            address,
            on_roster=lambda roster: None if known is None else known.announced(roster),
            stays=stays,
            rehearses=rehearses,
        )
        thread = threading.Thread(target=session.run, daemon=True)
        thread.start()
        self.sessions.append(session)
        self.threads.append(thread)
        return session

    def rehearse(self, patience_s: float = PATIENCE_S) -> Rehearsed:
        return rehearse(self.config, self.public, wait_s=0.0, patience_s=patience_s)

    def close(self) -> None:
        for session, thread in zip(self.sessions, self.threads, strict=True):
            session.stop()
            thread.join(PATIENCE_S)
