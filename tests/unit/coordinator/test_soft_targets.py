"""Votes without noise never reach a student of a run: it has no place for them, and a method of them is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from support.coordinators import coordinator_for
from support.scripted_parties import LocalParties

from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.coordinator.students import LearningProblem
from collegium.errors import ConfigurationError


def test_a_student_that_learns_votes_without_noise_is_refused_before_a_party_is_asked(
    parties: LocalParties, public: PublicData, config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    asked = config(student={"method": "distillation"})
    with pytest.raises(ConfigurationError, match="unknown student method 'distillation'"):
        coordinator_for(asked, parties, tmp_path / "checked", public=public).check()
    assert not any(party.asked for party in parties.by_name.values())


def test_a_student_is_given_released_labels_and_sums_and_the_public_pool_alone() -> None:
    public = {"task", "pool", "seed", "device", "threads", "progress", "cache"}
    assert {field.name for field in fields(LearningProblem)} == public | {"indices", "labels", "sums"}
