"""A small simulation of three institutions, prepared and not begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collegium.settings import validate_config
from collegium.simulations.cohort import PreparedRun, prepare_run
from collegium.simulations.config import SimulationConfig

SMALL: dict[str, Any] = {
    "name": "small",
    "task": {"classes": [*"0123456789"], "inputs": {"kind": "image", "height": 8, "width": 8}},
    "private": {"source": "digits", "shuffle_seed": 1, "stop": 300},
    "pool": {"source": "digits", "shuffle_seed": 1, "start": 300, "stop": 400},
    "partition": {"kind": "iid", "parties": 3},
    "budget": {"epsilon": 1.0},
    "engine": {"device": "cpu"},
    "seed": 3,
}


def prepared(folder: Path, **sections: Any) -> PreparedRun:
    return prepare_run(validate_config(SMALL | sections, SimulationConfig, "test"), folder, data_root=None)
