"""The default on a Ray cluster of two machines that share no folder, one of which dies in the middle of a round.

Virtual parties of the default keep no book of their own (only those with neighbours do, whose folder is not sent), so
that the coordinator's ledger is where a second payment would stand.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import machines
from support.machines import HEAD, SECOND, SHOWN, Machine, two_machines
from support.processes import COMMAND_S, lines_of, read_until
from support.runs import Paid, labels_csv, paid, run_in_process, toml
from support.waiting import comes_true

from collegium.coordinator.run.run_folder import read_run
from collegium.parties.answer_book import FILE
from collegium.protocol.secure_sum import Phase
from collegium.settings import validate_config
from collegium.simulations.config import SimulationConfig

pytest.importorskip("flwr")
pytestmark = pytest.mark.skipif(not machines.possible(), reason="this user may not make namespaces")

PARTIES, PORT = 6, 6379
VOTES = f"votes in: 1 of {PARTIES}"
TABLE: dict[str, Any] = {
    "name": "table",
    "seed": 3,
    "task": {
        "classes": ["a", "b", "c"],
        "inputs": {"kind": "table", "columns": [{"kind": "number", "name": n, "low": 0, "high": 1} for n in "xyz"]},
    },
    "partition": {"kind": "iid", "parties": PARTIES},
    "budget": {"epsilon": 4.0},
    "sums": {"rounds": 4},
}
"""The default, of fewer rounds."""


def configured(folder: Path, **more: Any) -> dict[str, Any]:
    return TABLE | {part: {"source": str(folder / f"{part}.npz")} for part in ("private", "pool")} | more


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cluster")
    x = np.random.default_rng(0).random((500, 3)).astype(np.float32)
    np.savez(folder / "private.npz", x=x[:400], y=(3 * x[:400, 0]).astype(np.int64))
    np.savez(folder / "pool.npz", x=x[400:])
    settings = configured(SHOWN, engine={"ray": f"{HEAD}:{PORT}"})
    lines = [f"{key} = {toml(value)}" for key, value in settings.items()]
    (folder / "run.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def without_ray(folder: Path) -> Path:
    run_in_process(validate_config(configured(folder), SimulationConfig, "test"), folder / "alone")
    return folder / "alone"


@pytest.fixture(scope="module")
def one_missing(folder: Path) -> Path:
    """The run without Ray in which the second sum is taken again, as one vector of all did not come."""
    config = validate_config(configured(folder), SimulationConfig, "test")
    run_in_process(config, folder / "missing", missing=(Phase.MASK, 2))
    return folder / "missing"


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[tuple[Machine, Machine]]:
    """One core on each machine, so that both must compute parties."""
    with two_machines(folder) as (head, second):
        first = ["--head", f"--port={PORT}", "--include-dashboard=false", f"--temp-dir={SHOWN / 'ray'}"]
        assert comes_true(lambda: joins(head, HEAD, *first))
        assert comes_true(lambda: joins(second, SECOND, f"--address={HEAD}:{PORT}"))
        yield head, second


def joins(machine: Machine, address: str, *asked: str) -> bool:
    """Whether Ray starts there: it gives up after 30 s, which a busy machine may need, and can be asked again."""
    ray = ["-m", "ray.scripts.scripts"]
    asked = (f"--node-ip-address={address}", "--num-cpus=1", "--object-store-memory=80000000", *asked)
    if "Ray runtime started" in output(machine.python(*ray, "start", "--disable-usage-stats", *asked)):
        return True
    output(machine.python(*ray, "stop", "--force"))
    return False


def output(process: subprocess.Popen[str]) -> str:
    """What it says until it ends; it ends with its machine at the latest."""
    return process.communicate(timeout=COMMAND_S)[0]


def simulated(head: Machine, run: str) -> subprocess.Popen[str]:
    """A simulation whose first votes are in; it is started again where a busy machine starts no worker in time."""
    said = "no node answered"
    while "no node answered" in said:
        process, said = head.python("-m", "collegium", "simulate", SHOWN / "run.toml", "--run", SHOWN / run), ""
        for line in lines_of(process.stdout):
            said += line
            if VOTES in line:
                return process
        output(process)
    raise AssertionError(said)


def computes(machine: Machine) -> bool:
    """Whether one of Ray's processes there plays parties."""
    return (
        "ray::ClientAppActor"
        in subprocess.run(machine.within("sh", "-c", "cat /proc/[0-9]*/cmdline"), capture_output=True, text=True).stdout
    )


def spent(folder: Path) -> tuple[int, int, float, int]:
    left: Paid = paid(folder)
    return left.charges, left.queries, left.epsilon, len(left.labels)


def test_the_labels_are_those_of_a_run_without_ray(
    cluster: tuple[Machine, Machine], folder: Path, without_ray: Path
) -> None:
    head, second = cluster
    process = simulated(head, "both")
    both = comes_true(lambda: computes(head) and computes(second))
    said = output(process)
    assert both and process.returncode == 0, said
    assert not second.has(SHOWN / "both") and not second.has(folder / "both") and head.has(SHOWN / "both")
    assert labels_csv(folder / "both") == labels_csv(without_ray)
    assert spent(folder / "both") == spent(without_ray)


def test_after_a_machine_died_nothing_is_paid_twice(
    cluster: tuple[Machine, Machine], folder: Path, without_ray: Path, one_missing: Path
) -> None:
    """It dies when the first votes of the second round are in: that sum is paid for, and not opened.

    It is taken again under the same charge, without the vectors of those that are gone or once they are back.
    """
    head, second = cluster
    process = simulated(head, "left")
    assert comes_true(lambda: computes(second))
    read_until(process.stdout, VOTES)
    os.kill(second.pid, signal.SIGKILL)
    said = output(process)
    assert "Traceback" not in said and "the engine lost" in said, said
    if process.returncode:  # else the others were enough
        assert said.splitlines()[-1].startswith("QuorumNotReached: ") and "start the run again" in said, said
    assert read_run(folder / "left").state != "finished" or process.returncode == 0
    again = simulated(head, "left")
    said = output(again)
    assert again.returncode == 0, said
    again_without_all = next((folder / "left").rglob("sums-without-all-*"), None)
    expected = without_ray if again_without_all is None else one_missing
    assert labels_csv(folder / "left") == labels_csv(expected)
    assert spent(folder / "left") == spent(without_ray) == spent(one_missing)
    assert not list((folder / "left").rglob(FILE)), "there is no second place where something is spent"
