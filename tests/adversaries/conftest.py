"""A consortium whose operator does what it likes with configurations and files: several runs under one ledger."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.scripted_parties import LocalParties, ScriptedParty, images

from collegium.coordinator.run.coordinator import CoordinatorRun
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.run.surroundings import Reach, Storage
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.settings import validate_config


def configuration(**changes: Any) -> RunConfig:
    """A small run; ``section__key`` changes a value of a section."""
    values: dict[str, Any] = {
        "name": "trial",
        "task": {
            "classes": ["north", "east", "south", "west"],
            "inputs": {"kind": "image", "height": 2, "width": 4, "channels": 1},
        },
        "pool": {"source": "digits"},
        "teachers": {"per_party": 5},
        "mechanism": {"name": "gnmax", "parameters": {"sigma": 40.0}},
        "budget": {"epsilon": 10.0, "bound": "classic"},
        "queries": {"count": 10, "batch": 4},
        "student": {"method": "stand-in"},
        "votes": {"mode": "clear", "quorum": 0.5},
    }
    for dotted, value in changes.items():
        section, _, key = dotted.partition("__")
        values[section] = {**values[section], key: value} if key else value
    return validate_config(values, RunConfig, "test")


@dataclass
class Study:
    """Runs of one consortium, all paid from one ledger."""

    folder: Path
    parties: LocalParties = field(
        default_factory=lambda: LocalParties({f"party-{n}": ScriptedParty(f"party-{n}", seed=n) for n in range(6)})
    )
    keys: dict[str, bytes] | None = None
    """Public keys of the parties, where they sign."""
    public: PublicData = field(default_factory=lambda: PublicData(images(60, 1), images(40, 2)))

    @property
    def ledger(self) -> Path:
        return self.folder / "own" / "ledger.sqlite"

    def label(
        self, folder: str = "own", positions: range | None = None, *, study: str | None = None, **changes: Any
    ) -> RunRecord:
        """The labels of the consortium's own run, of a named study, or of a part of the pool in another folder."""
        public = self.public
        if positions is not None:
            changes["queries__count"] = len(positions)
            public = replace(public, pool=public.pool.take(np.array(positions)))
        return CoordinatorRun(
            configuration(**changes),
            Reach(self.parties, signing_keys=self.keys),
            Storage(self.folder / folder, ledger=self.ledger, study=study),
            public=public,
        ).label()


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path)
