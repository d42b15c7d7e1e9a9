"""A small run over parties in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.coordinators import coordinator_for
from support.scripted_parties import LocalParties, ScriptedParty, images
from support.stand_in import StandIn

from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.settings import validate_config


@pytest.fixture
def parties() -> LocalParties:
    return LocalParties({f"party-{n}": ScriptedParty(f"party-{n}", seed=n) for n in range(6)})


@pytest.fixture
def public() -> PublicData:
    return PublicData(images(60, 1), images(40, 2))


@pytest.fixture
def config() -> Callable[..., RunConfig]:
    def build(**changes: Any) -> RunConfig:
        values: dict[str, Any] = {
            "name": "trial",
            "task": {
                "classes": ["north", "east", "south", "west"],
                "inputs": {"kind": "image", "height": 2, "width": 4, "channels": 1},
            },
            "pool": {"source": "digits"},
            "teachers": {"per_party": 5},
            "mechanism": {"name": "gnmax", "parameters": {"sigma": 4.0}},
            "budget": {"epsilon": 50.0},
            "queries": {"count": 20, "batch": 8},
            "student": {"method": "stand-in"},
            "votes": {"mode": "clear", "quorum": 0.5},
            "seed": 7,
        }
        for dotted, value in changes.items():
            section, _, key = dotted.partition("__")
            if key:
                values[section] = {**values[section], key: value}
            else:
                values[section] = value
        return validate_config(values, RunConfig, "test")

    return build


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
