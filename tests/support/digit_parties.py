"""Institutions whose records are digits, for whole runs in which records vote."""

from __future__ import annotations

from collections.abc import Mapping
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
from collegium.settings import validate_config

TASK = Task(classes=tuple("0123456789"), inputs=ImageInputs(height=8, width=8))
PARTIES = 4
NAMES = [f"party-{number}" for number in range(PARTIES)]
KEYS = {name: Ed25519PrivateKey.generate() for name in NAMES}
ROSTER = {name: key.public_key().public_bytes_raw() for name, key in KEYS.items()}


def run_config(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> RunConfig:
    """A run on the digits with these settings; a change is of a whole section, or, as ``section__key``, of one key."""
    values: dict[str, Any] = {
        "name": "trial",
        "task": TASK.model_dump(),
        "pool": {"source": "digits"},
        "seed": 5,
        **settings,
    }
    for dotted, value in changes.items():
        section, _, key = dotted.partition("__")
        values[section] = {**values[section], key: value} if key else value
    return validate_config(values, RunConfig, "test")


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
