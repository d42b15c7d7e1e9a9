"""Without extras accounting and a consortium of tables with forests work; all else names the extra to install."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hidden_packages import environment_without

from collegium.errors import QuorumNotReached
from collegium.extras import EXTRA_OF

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULE_OF = {
    "collegium-onnx": "collegium_onnx",
    "duckdb-engine": "duckdb_engine",
    "pillow": "PIL",
    "prometheus-client": "prometheus_client",
}

TABLE = """
name = "table"
[task]
classes = ["no", "yes"]
[task.inputs]
kind = "table"
columns = [{ kind = "number", name = "a", low = -5, high = 5 }, { kind = "number", name = "b", low = -5, high = 5 }]
[private]
source = "rows.csv"
label = "ill"
stop = 500
[pool]
source = "rows.csv"
start = 500
stop = 600
[holdout]
source = "rows.csv"
label = "ill"
start = 600
[partition]
parties = 3
[teachers]
kind = "random-forest"
per_party = 4
options = { trees = 5 }
[mechanism]
name = "gnmax"
parameters = { sigma = 2.0 }
[budget]
epsilon = 50.0
[queries]
count = 20
[student]
method = "STUDENT"
"""


def distributions(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!~; ]", line, maxsplit=1)[0] for line in requirements}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process in which no optional package can be imported."""
    return environment_without(EXTRA_OF, tmp_path_factory.mktemp("hidden"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of two well separated classes, and files that need an extra."""
    place = tmp_path_factory.mktemp("bare")
    rng = np.random.default_rng(0)
    ill = rng.integers(0, 2, 700)
    rows = rng.normal(size=(700, 2)) + 1.5 * (2 * ill[:, None] - 1)
    lines = [f"{a:.3f},{b:.3f},{'yes' if one else 'no'}" for (a, b), one in zip(rows, ill, strict=True)]
    (place / "rows.csv").write_text("\n".join(["a,b,ill", *lines]), encoding="utf-8")
    (place / "forest.toml").write_text(TABLE.replace("STUDENT", "random-forest"), encoding="utf-8")
    (place / "network.toml").write_text(TABLE.replace("STUDENT", "supervised"), encoding="utf-8")
    (place / "parquet.toml").write_text((place / "forest.toml").read_text().replace("rows.csv", "rows.parquet"))
    (place / "rows.parquet").write_bytes(b"PAR1")
    teacher = TABLE.replace("STUDENT", "random-forest").replace('kind = "random-forest"\nper', 'kind = "mlp"\nper')
    (place / "teacher.toml").write_text(teacher.replace("options = { trees = 5 }", ""), encoding="utf-8")
    return place


def collegium(folder: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "collegium.cli", *arguments],
        cwd=folder,
        env=environment | {"COLLEGIUM_DATA": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_every_optional_package_names_the_extra_that_installs_it() -> None:
    extras = PROJECT["optional-dependencies"]
    for extra in set(EXTRA_OF.values()):
        wanted = {MODULE_OF.get(name, name) for name in distributions(extras[extra]) - {"collegium"}}
        of_flower = {"ray"} if extra == "simulation" else set()
        assert {module for module, named in EXTRA_OF.items() if named == extra} == wanted | of_flower
    core = {MODULE_OF.get(name, name) for name in distributions(PROJECT["dependencies"])}
    assert not core & set(EXTRA_OF)
    assert set(EXTRA_OF.values()) <= distributions(extras["all"][0].partition("[")[2].rstrip("]").split(","))


def test_the_optional_packages_are_hidden(bare: dict[str, str]) -> None:
    for module in EXTRA_OF:
        done = subprocess.run([sys.executable, "-c", f"import {module}"], env=bare, capture_output=True, text=True)
        assert f"No module named '{module}'" in done.stderr


def test_accounting_needs_no_extra(bare: dict[str, str], folder: Path) -> None:
    votes = np.array([[200, 30, 20], [120, 100, 30]])
    np.save(folder / "votes.npy", votes)
    for options in (["--votes", "votes.npy"], ["--queries", "9"]):
        done = collegium(folder, bare, "account", "-m", "lnmax", "--gamma", "1", *options, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["epsilon_data_independent"] > 0


def test_parties_of_tables_with_forests_need_no_extra(bare: dict[str, str], folder: Path) -> None:
    """Fit, vote, sum under masks, label, fit the student, write the report: real processes."""
    done = collegium(folder, bare, "launch", "forest.toml", "--run", "forest", "--seed", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert (folder / "forest/report.html").exists()
    run = json.loads(done.stdout)
    assert run["student"]["method"] == "random-forest"
    assert run["student"]["quality"]["accuracy"] > 0.8
    told = collegium(
        folder, bare, "student", "evaluate", "forest/student.safetensors", "rows.csv", "--label", "ill", "--json"
    )
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["accuracy"] > 0.8


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ("plan", "--epsilon", "2", "--teachers", "250", "--plot", "a.png"),
            "a picture needs matplotlib, which is not installed: pip install 'collegium-accounting[plot]'",
        ),
        (
            ("simulate", "forest.toml"),
            "a simulation on Flower's engine needs flwr, which is not installed: pip install 'collegium[simulation]'",
        ),
        (
            ("launch", "network.toml", "--run", "network"),
            "the student 'supervised' needs torch, which is not installed: pip install 'collegium[torch]'",
        ),
        (
            ("launch", "parquet.toml", "--run", "parquet"),
            "reading rows.parquet needs pyarrow, which is not installed: pip install 'collegium[parquet]'",
        ),
        (
            ("student", "evaluate", "network.safetensors", "rows.csv", "--label", "ill"),
            "a student that is a network needs torch, which is not installed: pip install 'collegium[torch]'",
        ),
        (
            ("demo",),
            "the student 'supervised' needs torch, which is not installed: pip install 'collegium[torch]'",
        ),
    ],
    ids=["picture", "simulation", "student", "parquet", "published", "demo"],
)
def test_what_needs_an_extra_says_so_in_one_line(
    bare: dict[str, str], folder: Path, network_student: Path, arguments: tuple[str, ...], line: str
) -> None:
    done = collegium(folder, bare, *arguments)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1] == f"MissingExtra: {line}"


def test_a_party_without_torch_tells_the_coordinator_why_it_fits_no_network(bare: dict[str, str], folder: Path) -> None:
    done = collegium(folder, bare, "launch", "teacher.toml", "--run", "teacher")
    assert done.returncode == QuorumNotReached.exit_status, done.stderr
    assert "Traceback" not in done.stderr
    line = "the teacher mlp needs torch, which is not installed: pip install 'collegium[torch]'"
    assert line in done.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def network_student(folder: Path) -> Path:
    """The file of a small network for the table, written where torch is installed."""
    from collegium.coordinator.students import fit_student
    from collegium.settings import read_config
    from collegium.simulations.config import SimulationConfig

    task = read_config(folder / "network.toml", SimulationConfig).task
    pool = np.zeros((4, *task.inputs.shape), dtype=np.float32)
    student = fit_student("supervised", pool, [0, 1], [0, 1], task, seed=0, options={"steps": 2})
    student.save(folder / "network.safetensors")
    return folder / "network.safetensors"
