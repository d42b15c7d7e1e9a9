"""A consortium whose operator does what it likes with configurations and files: several runs under one ledger."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.clinics import VOTED, Clinics, signed_clinics
from support.scripted_parties import LocalParties, pool_and_holdout, scripted_run, six_parties

from collegium.coordinator.run.coordinator import CoordinatorRun
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.run.surroundings import Reach, Storage
from collegium.coordinator.settings.run_config import PublicData, RunConfig


def configuration(**changes: Any) -> RunConfig:
    """A small run; ``section__key`` changes a value of a section."""
    usual = {
        "mechanism": {"name": "gnmax", "parameters": {"sigma": 40.0}},
        "budget": {"epsilon": 10.0, "bound": "classic"},
        "queries": {"count": 10, "batch": 4},
    }
    return scripted_run(usual, changes)


@dataclass
class Study:
    """Runs of one consortium, all paid from one ledger."""

    folder: Path
    parties: LocalParties = field(default_factory=six_parties)
    keys: dict[str, bytes] | None = None
    """Public keys of the parties, where they sign."""
    public: PublicData = field(default_factory=pool_and_holdout)

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


@pytest.fixture(scope="module")
def clinics(tmp_path_factory: pytest.TempPathFactory) -> Clinics:
    """Clinics with a certified operator that have answered four questions."""
    made = signed_clinics(tmp_path_factory.mktemp("clinics"))
    made.ask(VOTED, 4, mode="masked+noised")
    return made
