"""The teachers of a simulated cohort as one program: what its parties find is what they would have fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collegium.parties.teachers import fitting
from collegium.parties.teachers.networks import NetworkTeacher
from collegium.protocol.messages import Request
from collegium.protocol.replies import Fitted
from collegium.protocol.requests import Fit
from collegium.settings import validate_config
from collegium.simulations.cohort import PreparedRun, fit_cohort, prepare_run, virtual_party
from collegium.simulations.config import SimulationConfig

VALUES: dict[str, Any] = {
    "name": "cohort",
    "task": {"classes": [*"0123456789"], "inputs": {"kind": "image", "height": 8, "width": 8}},
    "private": {"source": "digits", "shuffle_seed": 1, "stop": 300},
    "pool": {"source": "digits", "shuffle_seed": 1, "start": 300, "stop": 400},
    "partition": {"kind": "iid", "parties": 3},
    "teachers": {"kind": "linear", "per_party": 2, "options": {"steps": 20}},
    "budget": {"epsilon": 1.0},
    "engine": {"device": "cpu"},
    "seed": 3,
}


@pytest.fixture
def run(tmp_path: Path) -> PreparedRun:
    return prepare_run(validate_config(VALUES, SimulationConfig, "test"), tmp_path, data_root=None)


@pytest.mark.slow
def test_a_cohort_is_one_program_and_its_parties_find_their_teachers(
    run: PreparedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    together = NetworkTeacher.fit_together

    def counted(teachers: Any, records: Any, seeds: Any, *, device: str) -> None:
        sizes.append(len(teachers))
        together(teachers, records, seeds, device="cpu")

    seen: list[tuple[int, int]] = []
    with monkeypatch.context() as gpu:
        gpu.setattr(fitting, "resolve_device", lambda name: "cuda")
        gpu.setattr(NetworkTeacher, "fit_together", staticmethod(counted))
        assert fit_cohort(run, lambda step: seen.append((step.done, step.total))) == 6
        assert sizes == [6]
        assert seen[-1] == (6, 6)
        assert fit_cohort(run) == 0
    monkeypatch.setattr(NetworkTeacher, "fit", None)
    for number in range(3):
        party = virtual_party(run.folder, number)
        assert party.handle(Request("fit", "cohort", Fit(run.config.teachers))).body == Fitted(2)
        assert party.ensembles(run.config.teachers).reused == 2


def test_on_a_cpu_the_parties_fit_their_own(run: PreparedRun) -> None:
    assert fit_cohort(run) == 0
    assert not any((member.folder / "teachers").exists() for member in run.cohort)
