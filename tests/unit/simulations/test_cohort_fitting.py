"""The teachers of a simulated cohort as one program: what its parties find is what they would have fitted."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.files import contents_of
from support.teachers import ON_A_GPU, GpuTeacher, machine_with_a_gpu
from unit.simulations.conftest import prepared

from collegium.data.teacher_kinds import installed_kinds
from collegium.protocol.messages import Request
from collegium.protocol.replies import Fitted
from collegium.protocol.requests import Fit
from collegium.simulations.cohort import PreparedRun, fit_cohort, virtual_party

TEACHERS = {"kind": "linear", "per_party": 2, "options": {"steps": 20}}


@pytest.fixture
def run(tmp_path: Path) -> PreparedRun:
    return prepared(tmp_path, teachers=TEACHERS)


@pytest.mark.slow
def test_a_cohort_is_one_program_and_its_parties_find_their_teachers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Teachers of a kind that a package installs, on a machine with a GPU."""
    monkeypatch.setitem(installed_kinds(), "made-up", ON_A_GPU)
    run = prepared(tmp_path, teachers=TEACHERS | {"kind": "made-up"}, engine={"device": "auto"})
    seen: list[tuple[int, int]] = []
    with machine_with_a_gpu():
        assert fit_cohort(run, lambda step: seen.append((step.done, step.total))) == 6
        assert GpuTeacher.programs == [6]
        assert seen[-1] == (6, 6)
        assert fit_cohort(run) == 0
        assert GpuTeacher.programs == [6]
    kept = contents_of(run.folder / "parties")
    for number in range(3):
        party = virtual_party(run.folder, number)
        assert party.handle(Request("fit", "small", Fit(run.config.teachers))).body == Fitted(2)
        assert party.ensembles(run.config.teachers).reused == 2
    assert contents_of(run.folder / "parties") == kept


def test_on_a_cpu_the_parties_fit_their_own(run: PreparedRun) -> None:
    assert fit_cohort(run) == 0
    assert not any((member.folder / "teachers").exists() for member in run.cohort)
