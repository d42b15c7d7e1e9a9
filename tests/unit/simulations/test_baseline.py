"""The baseline of a simulation: what it is measured on, how far it tells it is, its mistakes; and hosts that end."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collegium.coordinator.rounds.rounds import Nobody
from collegium.coordinator.run.run_record import BaselineRecord
from collegium.coordinator.run.surroundings import Progress
from collegium.errors import ConfigurationError, DataError
from collegium.simulations.cli import demo_settings
from collegium.simulations.cohort import PreparedRun, prepare_run
from collegium.simulations.config import BaselineConfig
from collegium.simulations.party_processes import LEAVE_S, PartyProcesses
from collegium.simulations.simulate import coordinator_of

pytestmark = pytest.mark.slow


def measured(run: PreparedRun, told: list[Progress]) -> BaselineRecord:
    measure = coordinator_of(run, Nobody(), told.append)._setup.watch.baseline
    assert measure is not None
    return measure()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> PreparedRun:
    baseline = BaselineConfig(method="random-forest", options={"trees": 30})
    config = demo_settings().model_copy(update={"baseline": baseline})
    return prepare_run(config, tmp_path_factory.mktemp("run"), data_root=None)


def test_it_learns_from_all_private_records_and_is_measured_on_the_holdout(run: PreparedRun) -> None:
    told: list[Progress] = []
    found = measured(run, told)
    assert found.method == "random-forest" and found.records == len(run.private) == 1300
    assert found.accuracy is not None and 0.9 < found.accuracy < 1.0
    assert told == [Progress("baseline", 1, 1)]


def test_a_run_without_one_measures_none(run: PreparedRun) -> None:
    without = replace(run, config=run.config.model_copy(update={"baseline": None}))
    assert coordinator_of(without, Nobody(), None)._setup.watch.baseline is None


def test_a_mistake_in_its_settings_is_told_before_the_run(run: PreparedRun) -> None:
    wrong = BaselineConfig(method="random-forest", options={"leaves": 3})
    mistaken = replace(run, config=run.config.model_copy(update={"baseline": wrong}))
    with pytest.raises(ConfigurationError, match="leaves"):
        coordinator_of(mistaken, Nobody(), None)


def test_records_of_one_class_are_told(run: PreparedRun) -> None:
    private = replace(run.private, y=np.zeros(len(run.private), dtype=np.int64))
    with pytest.raises(DataError, match="class"):
        measured(replace(run, private=private), [])


def test_parties_whose_host_ended_before_they_began_have_ended(tmp_path: Path) -> None:
    with PartyProcesses() as host:
        host._copied.kill()
        host._copied.wait()
        (party,) = host.begin({"a": tmp_path / "party.toml"})
        assert party.wait(LEAVE_S) and party.status == -signal.SIGKILL and party.last_words() == "no word"
