"""A small run over parties in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.coordinators import coordinator_for
from support.scripted_parties import LocalParties, pool_and_holdout, scripted_run, six_parties
from support.stand_in import StandIn

from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.settings.run_config import PublicData, RunConfig


@pytest.fixture
def parties() -> LocalParties:
    return six_parties()


@pytest.fixture
def public() -> PublicData:
    return pool_and_holdout()


@pytest.fixture
def config() -> Callable[..., RunConfig]:
    usual = {
        "mechanism": {"name": "gnmax", "parameters": {"sigma": 4.0}},
        "budget": {"epsilon": 50.0},
        "queries": {"count": 20, "batch": 8},
        "seed": 7,
    }
    return lambda **changes: scripted_run(usual, changes)


@pytest.fixture
def student_fits() -> list[NDArray[np.int64]]:
    """The labels that each student was fitted on; students themselves are tested elsewhere."""
    StandIn.fits.clear()
    return StandIn.fits


@pytest.fixture
def run(
    parties: LocalParties, public: PublicData, config: Callable[..., RunConfig], tmp_path: Path, student_fits: object
) -> Callable[..., RunRecord]:
    """Run the coordinator in one folder; keyword arguments ``section__key`` change the configuration."""

    def go(folder: str = "run", options: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
        given = {"public": public, **(options or {})}
        return coordinator_for(config(**changes), parties, tmp_path / folder, **given).run()

    return go
