"""What a run's configuration says, what the command line changes, and the files that come with the project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collegium.coordinator.config import read_config, validate_config
from collegium.protocol.errors import ConfigurationError, StorageError
from collegium.simulations.cohort import find, prepare
from collegium.simulations.config import SimulationConfig, with_changes
from collegium.simulations.virtual import read_settings, virtual_party, write_settings

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

IRIS: dict[str, Any] = {
    "name": "iris",
    "task": {
        "classes": ["setosa", "versicolor", "virginica"],
        "inputs": {
            "kind": "table",
            "columns": [
                {"kind": "number", "name": name, "low": 0.0, "high": 8.0}
                for name in ("sepal length (cm)", "sepal width (cm)", "petal length (cm)", "petal width (cm)")
            ],
        },
    },
    "private": {"source": "iris", "split": "all", "shuffle_seed": 0, "stop": 90},
    "pool": {"source": "iris", "split": "all", "shuffle_seed": 0, "start": 90},
    "partition": {"kind": "iid", "parties": 4},
    "budget": {"epsilon": 5.0},
}


@pytest.fixture
def config() -> SimulationConfig:
    return validate_config(IRIS, SimulationConfig, "test")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_example_is_valid_and_named_as_its_file(path: Path) -> None:
    config = read_config(path, SimulationConfig)
    assert config.name == path.stem
    assert config.seed is None, "an example is private unless a seed is asked for"
    assert config.holdout is not None


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.toml")} >= {"mnist-250", "mnist-8"}


def test_the_command_line_changes_what_it_names_and_nothing_else(config: SimulationConfig) -> None:
    assert with_changes(config, queries=None, seed=None) == config
    more = with_changes(config, queries=7, seed=None)
    assert more.queries.count == 7 and more.model_copy(update={"queries": config.queries}) == config


def test_a_seed_reaches_everything_that_is_drawn(config: SimulationConfig) -> None:
    """The noise, the choice of queries, the teachers and who holds which record."""
    seeded = with_changes(config, queries=None, seed=11)
    assert (seeded.seed, seeded.teachers.seed, seeded.partition.seed) == (11, 11, 11)


def test_settings_are_found_as_they_were_left(config: SimulationConfig, tmp_path: Path) -> None:
    write_settings(config, tmp_path)
    assert read_settings(tmp_path) == config


def test_records_are_dealt_once_and_again_when_the_settings_change(config: SimulationConfig, tmp_path: Path) -> None:
    cohort, private = prepare(config, tmp_path, data_root=None)
    dealt = [(member.folder / "records.npz").stat().st_mtime_ns for member in cohort.members]
    assert len(private) == 90
    again, _ = prepare(config, tmp_path, data_root=None)
    assert dealt == [(member.folder / "records.npz").stat().st_mtime_ns for member in again.members]
    seeded = with_changes(config, queries=None, seed=1)
    other, _ = prepare(seeded, tmp_path, data_root=None)
    assert all(
        before != (member.folder / "records.npz").stat().st_mtime_ns
        for before, member in zip(dealt, other.members, strict=True)
    )


def test_the_parties_together_hold_every_record_once(config: SimulationConfig, tmp_path: Path) -> None:
    import numpy as np

    cohort, private = prepare(config, tmp_path, data_root=None)
    held = [np.load(member.folder / "records.npz")["x"] for member in cohort.members]
    assert sorted(map(len, held)) == [22, 22, 23, 23]
    np.testing.assert_array_equal(
        np.sort(np.concatenate(held).view("f4,f4,f4,f4,f4,f4,f4,f4").ravel()),
        np.sort(private.x.view("f4,f4,f4,f4,f4,f4,f4,f4").ravel()),
    )


def test_names_of_parties_sort_as_their_numbers(config: SimulationConfig, tmp_path: Path) -> None:
    many = config.model_copy(update={"partition": config.partition.model_copy(update={"parties": 12})})
    cohort, _ = prepare(many, tmp_path, data_root=None)
    names = [member.name for member in cohort.members]
    assert names == sorted(names) and names[0] == "party-00" and names[-1] == "party-11"


def test_a_folder_that_was_not_prepared_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="prepare the run first"):
        find(tmp_path)


def test_a_party_that_the_run_does_not_have_is_refused(config: SimulationConfig, tmp_path: Path) -> None:
    cohort, _ = prepare(config, tmp_path, data_root=None)
    with pytest.raises(ConfigurationError, match="party 4 of 4"):
        cohort.member(4)


def test_a_virtual_party_is_made_once_and_bears_its_name(config: SimulationConfig, tmp_path: Path) -> None:
    prepare(config, tmp_path, data_root=None)
    write_settings(config, tmp_path)
    party = virtual_party(tmp_path, 2)
    assert party.name == "party-2"
    assert virtual_party(tmp_path, 2) is party
