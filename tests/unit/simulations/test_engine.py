"""Flower's simulation engine: how Ray is started or joined, and what its user is told when it fails."""

from __future__ import annotations

import socket
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from ray.exceptions import GetTimeoutError

from collegium.coordinator.settings.run_config import NeighboursConfig
from collegium.errors import ConfigurationError, Unreachable
from collegium.settings import validate_config
from collegium.simulations import simulate
from collegium.simulations.cohort import PreparedRun, prepare_run
from collegium.simulations.config import SimulationConfig
from collegium.simulations.simulate import on_engine

DIGITS = {"source": "digits", "split": "all", "shuffle_seed": 0}
SETTINGS: dict[str, Any] = {
    "name": "three",
    "task": {"classes": [str(digit) for digit in range(10)], "inputs": {"kind": "image", "height": 8, "width": 8}},
    "private": DIGITS | {"stop": 30},
    "pool": DIGITS | {"start": 1700},
    "partition": {"kind": "iid", "parties": 3},
    "budget": {"epsilon": 5.0},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> PreparedRun:
    config = validate_config(SETTINGS, SimulationConfig, "test")
    return prepare_run(config, tmp_path_factory.mktemp("engine") / "run", data_root=None)


def engine_of(run: PreparedRun, **engine: Any) -> PreparedRun:
    config = validate_config(SETTINGS | {"engine": engine}, SimulationConfig, "test")
    return PreparedRun(config, run.folder, run.cohort, run.private, run.public)


def test_ray_is_started_for_the_run_or_a_cluster_joined_whose_cores_are_its_own(
    run: PreparedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(simulate, "prepare_flower", lambda folder: None)
    monkeypatch.setattr("flwr.simulation.run_simulation", lambda *_, backend_config: None)
    monkeypatch.setattr("ray.init", lambda **arguments: asked.append(arguments))
    monkeypatch.setattr("ray.nodes", list)
    with socket.create_server(("127.0.0.1", 0)) as cluster:
        address = f"127.0.0.1:{cluster.getsockname()[1]}"
        for engine in ({"workers": 3}, {"ray": address, "workers": 3}):
            on_engine(engine_of(run, **engine), lambda parties: None)
        joined = engine_of(run, ray=address)
        near = joined.config.model_copy(update={"neighbours": NeighboursConfig(share=0.01)})
        on_engine(replace(joined, config=near), lambda parties: None)
    wanted = [{"address": "local", "num_cpus": 3}, {"address": address}, {"address": address}]
    assert [{name: args[name] for name in ("address", "num_cpus") if name in args} for args in asked] == wanted
    sent = [args["runtime_env"].get("working_dir") for args in asked]
    assert sent == [None, str(run.folder), None], "the folder goes to a cluster unless a record could spend twice"
    assert all((member.folder / "split.key").is_file() for member in run.cohort)


def test_a_cluster_that_is_not_there_is_told_before_ray_looks_for_it(run: PreparedRun) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(Unreachable, match=f"no Ray cluster at {address}"):
        on_engine(engine_of(run, ray=address), lambda parties: None)
    with pytest.raises(ConfigurationError, match="host:port"):
        on_engine(engine_of(run, ray="head"), lambda parties: None)


class Deaf:
    """A task that no machine ever does."""

    def options(self, **_: object) -> Deaf:
        return self

    def remote(self) -> Deaf:
        return self


@pytest.mark.parametrize("noticed", [True, False])
def test_a_machine_that_does_nothing_is_named_unless_ray_notices_that_it_is_gone(
    run: PreparedRun, monkeypatch: pytest.MonkeyPatch, noticed: bool
) -> None:
    """Flower would give it parties, and wait for them for ever."""
    machine, driven = {"NodeID": 28 * "a2", "NodeManagerAddress": "10.0.0.2", "Alive": True}, list[int]()

    def waits(_: object, *, timeout: float) -> None:
        machine["Alive"] = not noticed
        raise GetTimeoutError

    monkeypatch.setattr(simulate, "prepare_flower", lambda folder: None)
    monkeypatch.setattr(simulate, "MACHINES_S", 60.0 if noticed else 0.0)
    monkeypatch.setattr("flwr.simulation.run_simulation", lambda *_, backend_config: driven.append(1))
    for name, stand_in in {
        "init": lambda **_: None,
        "nodes": lambda: [machine],
        "remote": lambda **_: lambda function: Deaf(),
        "get": waits,
    }.items():
        monkeypatch.setattr(f"ray.{name}", stand_in)
    with socket.create_server(("127.0.0.1", 0)) as cluster:
        joined = engine_of(run, ray=f"127.0.0.1:{cluster.getsockname()[1]}")
        with nullcontext() if noticed else pytest.raises(Unreachable, match=r"10\.0\.0\.2 of the Ray cluster"):
            on_engine(joined, lambda parties: None)
    assert len(driven) == noticed


def test_an_engine_that_breaks_down_is_told_in_one_line(run: PreparedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, backend_config: object) -> None:
        try:
            raise TimeoutError("an actor died")
        except TimeoutError as error:
            raise RuntimeError("An error was encountered.") from error

    monkeypatch.setattr(simulate, "prepare_flower", lambda folder: None)
    monkeypatch.setattr("ray.init", lambda **_: None)
    monkeypatch.setattr("flwr.simulation.run_simulation", broken)
    with pytest.raises(Unreachable, match="an actor died"):
        on_engine(run, lambda parties: None)


def test_ray_that_does_not_start_is_told_in_one_line(run: PreparedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(**_: object) -> None:
        raise ConnectionError("Ray did not start")

    monkeypatch.setattr(simulate, "prepare_flower", lambda folder: None)
    monkeypatch.setattr("ray.init", absent)
    with pytest.raises(Unreachable, match="Ray did not start"):
        on_engine(run, lambda parties: None)
