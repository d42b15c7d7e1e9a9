"""A simulation may use teachers by import path: who wrote the configuration speaks for the institutions too."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.simulations.conftest import prepared

from collegium.errors import ConfigurationError
from collegium.parties.config import PartyConfig, policy_of
from collegium.protocol.messages import Request
from collegium.protocol.replies import Fitted
from collegium.protocol.requests import Fit
from collegium.simulations.cohort import PreparedRun, virtual_party
from collegium.simulations.launcher import write_party_config

KIND = "sklearn.naive_bayes:GaussianNB"
OTHER = "sklearn.tree:DecisionTreeClassifier"
MECHANISM = {"name": "gnmax", "parameters": {"sigma": 40.0}}


@pytest.fixture
def run(tmp_path: Path) -> PreparedRun:
    return prepared(tmp_path, teachers={"kind": KIND, "per_party": 1}, mechanism=MECHANISM)


def test_a_virtual_party_fits_the_teacher_that_the_configuration_names_and_no_other(run: PreparedRun) -> None:
    party = virtual_party(run.folder, 0)
    assert party.handle(Request("r1", "small", Fit(run.config.teachers))).body == Fitted(1)
    other = run.config.teachers.model_copy(update={"kind": OTHER})
    assert not isinstance(party.handle(Request("r2", "small", Fit(other))).body, Fitted)


@pytest.mark.parametrize("kind", ["exratrees", "sklearn.naive_bayes:GausianNB", "no_such_module:Teacher"])
def test_a_mistake_in_the_kind_is_told_before_anything_starts(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"teachers\.kind: .*" + kind):
        prepared(tmp_path, teachers={"kind": kind}, mechanism=MECHANISM)


def test_the_policy_of_a_launched_party_agrees_to_that_teacher_alone(run: PreparedRun) -> None:
    path = write_party_config(run, run.cohort[0], 1)
    assert policy_of(PartyConfig.read(path)).teacher_imports == (KIND,)
