"""Votes without noise reach the one student that learns them in a simulation, and never any other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.coordinators import coordinator_for
from support.scripted_parties import LocalParties

from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.settings.public_data import PublicData
from collegium.coordinator.settings.run_config import RunConfig
from collegium.errors import ConfigurationError

DISTILLED = {"student": {"method": "distillation"}}

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def given(student_fits: object, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The soft targets that each student got."""
    from collegium.coordinator import students

    honest, seen = students.fit_student, []

    def fit(*arguments: Any, soft_targets: Any = None, **named: Any) -> Any:
        seen.append(soft_targets)
        return honest(*arguments, **named)

    monkeypatch.setattr(students, "fit_student", fit)
    return seen


def test_in_a_simulation_they_are_the_shares_of_the_votes_and_the_run_says_that_it_is_not_private(
    run: Run, given: list[Any], tmp_path: Path
) -> None:
    record = run("run", {"research": True, "keep_votes": True}, **DISTILLED)
    (shares,) = given
    kept = RunFolder(tmp_path / "run").kept_votes()
    assert shares.shape == (record.labels.answered, 4)
    assert sorted(map(tuple, shares)) == sorted(tuple(votes / votes.sum()) for votes in kept.values())
    assert not record.private and any("votes without noise" in caution for caution in record.cautions)
    assert any("votes without noise" in caution for caution in run("run", **DISTILLED).cautions)


@pytest.mark.parametrize("research", [True, False])
def test_no_other_student_sees_them(research: bool, run: Run, given: list[Any]) -> None:
    record = run("run", {"research": research, "keep_votes": research})
    assert given == [None]
    assert not any("votes without noise" in caution for caution in record.cautions)


def test_outside_a_simulation_no_student_sees_them_and_the_run_is_refused_before_a_party_is_asked(
    run: Run,
    given: list[Any],
    parties: LocalParties,
    public: PublicData,
    config: Callable[..., RunConfig],
    tmp_path: Path,
) -> None:
    run("ran", **DISTILLED)
    assert given == [None]
    for party in parties.by_name.values():
        party.asked.clear()
    with pytest.raises(ConfigurationError, match="only in a simulation"):
        coordinator_for(config(**DISTILLED), parties, tmp_path / "checked", public=public).check()
    assert not any(party.asked for party in parties.by_name.values())
