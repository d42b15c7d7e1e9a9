"""Institutions whose records are digits, for whole runs in which records vote."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.coordinator.settings.run_config import RunConfig
from collegium.data import Examples, PoolStore
from collegium.data.task import ImageInputs, Task
from collegium.parties.answer_book import AnswerBook
from collegium.parties.party import Party, unrestricted
from collegium.parties.policy import Policy, PolicyConfig
from collegium.parties.summing import Membership
from collegium.parties.teachers.splits import simulated_key
from collegium.privacy.ledger.entry import Terms
from collegium.privacy.ledger.ledger import Ledger
from support import coordinators

TASK = Task(classes=tuple("0123456789"), inputs=ImageInputs(height=8, width=8))
PARTIES = 4
NAMES = [f"party-{number}" for number in range(PARTIES)]
KEYS = {name: Ed25519PrivateKey.generate() for name in NAMES}
ROSTER = {name: key.public_key().public_bytes_raw() for name, key in KEYS.items()}


def run_config(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> RunConfig:
    """A run on the digits with these settings, changed as `coordinators.run_config` says."""
    usual = {"name": "trial", "task": TASK.model_dump(), "pool": {"source": "digits"}, "seed": 5}
    return coordinators.run_config({**usual, **settings}, changes)


def begin_ledger(folder: Path) -> None:
    """An empty ledger of a run, where there is none.

    All that are begun here are named alike, by their first entry, and the parties draw their samples by that name: runs
    can be compared vote by vote.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (file := folder / "ledger.sqlite").exists():
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        Ledger.open(
            file, signer=None, delta=1e-5, terms=Terms(noise="seeded"), name="trial", clock=lambda: moment
        ).close()


def members(
    private: Examples,
    folder: Path,
    *,
    parties: int = PARTIES,
    task: Task = TASK,
    agreed: PolicyConfig | None = None,
    **options: Any,
) -> list[Party]:
    """The first ``parties`` of them, who share the records and keep their folders; accounts where they ``agreed``."""

    def held(name: str) -> dict[str, Any]:
        if agreed is None:
            return {}
        (folder / name).mkdir(parents=True, exist_ok=True)
        return {"policy": Policy(agreed), "account": AnswerBook(folder / name, name, agreed, None)}

    return [
        Party(
            name,
            private.take(np.arange(number, len(private), parties)),
            task,
            folder=folder / name,
            pools=PoolStore(None),
            split_key=simulated_key(1, name),
            membership=Membership("trial", ROSTER, KEYS[name].sign),
            **({"policy": unrestricted} | held(name) | options),
        )
        for number, name in enumerate(NAMES[:parties])
    ]
