"""What a run's configuration says, what the command line changes, and the files that come with the project."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from collegium.errors import ConfigurationError, StorageError
from collegium.settings import read_config, validate_config
from collegium.simulations.cli import flwr_command
from collegium.simulations.cohort import find, prepare, read_settings, virtual_party, write_settings
from collegium.simulations.config import SimulationConfig, with_changes

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


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("mnist-*.toml")), ids=lambda path: path.stem)
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
    """The noise, the choice of queries, who holds which record, and the teachers where there are any."""
    seeded = with_changes(config, queries=None, seed=11)
    assert (seeded.seed, seeded.partition.seed, seeded.teachers) == (11, 11, None)
    taught = validate_config(IRIS | {"teachers": {"kind": "linear"}}, SimulationConfig, "test")
    assert with_changes(taught, queries=None, seed=11).teachers.seed == 11


@pytest.mark.parametrize("mechanism", ["class-sums", "individual-knn", "gnmax"])
def test_teachers_exist_only_where_the_mechanism_asks_teachers(mechanism: str) -> None:
    near = {"neighbours": {"share": 0.1}} if mechanism == "individual-knn" else {}
    for named in ({}, {"teachers": {"kind": "linear"}}):
        config = validate_config(IRIS | {"mechanism": {"name": mechanism}} | near | named, SimulationConfig, "test")
        assert (config.teachers is not None) == (mechanism == "gnmax")


def test_settings_are_found_as_they_were_left(config: SimulationConfig, tmp_path: Path) -> None:
    write_settings(config, tmp_path, None)
    assert read_settings(tmp_path) == (config, None)


def test_the_place_of_the_data_is_found_from_anywhere(
    config: SimulationConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An app of Flower's runs in another working directory than the user's."""
    monkeypatch.chdir(tmp_path)
    write_settings(config, tmp_path, Path("data"))
    assert read_settings(tmp_path)[1] == tmp_path / "data"


def test_the_command_for_flower_is_ready_to_paste(tmp_path: Path) -> None:
    folder = tmp_path / "my run"
    exports, command = flwr_command(folder, 7).splitlines()
    environment = dict(pair.split("=", 1) for pair in shlex.split(exports)[1:])
    assert environment["FLWR_TELEMETRY_ENABLED"] == "0" and environment["FLWR_HOME"] == f"{folder}/flower"
    words = shlex.split(command)
    assert words[:4] == ["flwr", "run", ".", "--stream"]
    assert words[5] == f'folder="{folder}"' and "num-supernodes=7" in words[7]


def test_a_virtual_party_needs_a_prepared_folder(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="--prepare-only"):
        read_settings(tmp_path / "nothing")


def test_records_are_dealt_once_and_again_when_the_settings_change(config: SimulationConfig, tmp_path: Path) -> None:
    cohort, private = prepare(config, tmp_path, data_root=None)
    dealt = [(member.folder / "records.npz").stat().st_mtime_ns for member in cohort]
    assert len(private) == 90
    again, _ = prepare(config, tmp_path, data_root=None)
    assert dealt == [(member.folder / "records.npz").stat().st_mtime_ns for member in again]
    seeded = with_changes(config, queries=None, seed=1)
    other, _ = prepare(seeded, tmp_path, data_root=None)
    assert all(
        before != (member.folder / "records.npz").stat().st_mtime_ns
        for before, member in zip(dealt, other, strict=True)
    )


def test_the_parties_together_hold_every_record_once(config: SimulationConfig, tmp_path: Path) -> None:
    import numpy as np

    cohort, private = prepare(config, tmp_path, data_root=None)
    held = [np.load(member.folder / "records.npz")["x"] for member in cohort]
    assert sorted(map(len, held)) == [22, 22, 23, 23]
    np.testing.assert_array_equal(
        np.sort(np.concatenate(held).view("f4,f4,f4,f4,f4,f4,f4,f4").ravel()),
        np.sort(private.x.view("f4,f4,f4,f4,f4,f4,f4,f4").ravel()),
    )


def test_names_of_parties_sort_as_their_numbers(config: SimulationConfig, tmp_path: Path) -> None:
    many = config.model_copy(update={"partition": config.partition.model_copy(update={"parties": 12})})
    cohort, _ = prepare(many, tmp_path, data_root=None)
    names = [member.name for member in cohort]
    assert names == sorted(names) and names[0] == "party-00" and names[-1] == "party-11"


def test_a_folder_that_was_not_prepared_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="prepare the run first"):
        find(tmp_path)


def test_a_party_that_the_run_does_not_have_is_refused(config: SimulationConfig, tmp_path: Path) -> None:
    prepare(config, tmp_path, data_root=None)
    write_settings(config, tmp_path, None)
    with pytest.raises(ConfigurationError, match="party 4 of 4"):
        virtual_party(tmp_path, 4)


def test_a_virtual_party_is_made_once_and_bears_its_name(config: SimulationConfig, tmp_path: Path) -> None:
    prepare(config, tmp_path, data_root=None)
    write_settings(config, tmp_path, None)
    party = virtual_party(tmp_path, 2)
    assert party.name == "party-2"
    assert virtual_party(tmp_path, 2) is party


def test_brackets_nested_three_thousand_deep_are_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text("x = " + "[" * 3000 + "]" * 3000)
    with pytest.raises(ConfigurationError, match=r"deep\.toml: its brackets are nested too deep"):
        read_config(path, SimulationConfig)
