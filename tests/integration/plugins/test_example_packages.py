"""The packages of examples/plugins, installed into a folder of their own, work everywhere; nothing else is touched."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
Run = Callable[..., subprocess.CompletedProcess[str]]

BUILD = """
import os, sys
from setuptools import build_meta

wheels, *packages = sys.argv[1:]
for package in packages:
    os.chdir(package)
    build_meta.build_wheel(wheels)
"""
"""What pip does in three processes for each."""

SUITES = """
import collegium_conformance
from collegium_accounting.mechanisms import create
collegium_conformance.check_mechanism(create("gnmax-unless-unsure", sigma=3.0))
collegium_conformance.check_teacher("nearest-centroid")
collegium_conformance.check_student("ridge")
collegium_conformance.check_source("rings")
print("all promises are kept")
"""

CONSORTIUM = """
import sys
import collegium as cg
from collegium.data import DataSource, default_task, load
from collegium_accounting.mechanisms import create

task = default_task("rings")

def part(start, stop):
    source = DataSource(source="rings", split="all", shuffle_seed=0, start=start, stop=stop)
    return load(source, task, data_root=None)

records = {f"clinic-{n}": (own.x, own.y) for n in range(5) for own in [part(200 + 200 * n, 400 + 200 * n)]}
pool, test = part(0, 200), part(1200, 1500)

def labelled(mechanism, teachers):
    policy = cg.PolicyConfig(mechanisms=[mechanism], teacher_imports=[teachers], minimum_noise_votes=5)
    coordinator = cg.Coordinator(
        cg.LocalParties(records, task, policy=policy),
        pool.x,
        create("gnmax-unless-unsure", sigma=6.0),
        epsilon=20,
        teachers="nearest-centroid",
        teachers_per_party=10,
    )
    return coordinator, coordinator.label(queries=60)

for refusing in (("gnmax", "nearest-centroid"), ("gnmax-unless-unsure", "other:Teacher")):
    try:
        labelled(*refusing)
    except cg.errors.QuorumNotReached as error:
        print(error)
coordinator, labels = labelled("gnmax-unless-unsure", "nearest-centroid")
student = coordinator.fit("ridge")
again = cg.load_student(coordinator.folder / "student.safetensors")
assert type(again.student).__name__ == "RidgeStudent" and (again.predict(test.x) == student.predict(test.x)).all()
print(labels.max(), (labels >= 0).sum(), (student.predict(test.x) == student.classes_[test.labels()]).mean())
"""

COMMANDS = """
import sys
from collegium.cli import main

command = []
for word in [*sys.argv[1:], "and"]:
    if word != "and":
        command.append(word)
        continue
    try:
        main(command)
    except SystemExit as ended:
        if ended.code:
            raise
    print("done")
    command = []
"""

SIMULATION = """
name = "rings"
seed = 1
[task]
classes = ["inner", "middle", "outer"]
[task.inputs]
kind = "table"
columns = [
    { kind = "number", name = "across", low = -4, high = 4 },
    { kind = "number", name = "up", low = -4, high = 4 },
    { kind = "number", name = "distance", low = 0, high = 4 },
]
[private]
source = "rings"
split = "all"
shuffle_seed = 0
stop = 1000
[pool]
source = "rings"
split = "all"
shuffle_seed = 0
start = 1000
stop = 1200
[holdout]
source = "rings"
split = "all"
shuffle_seed = 0
start = 1200
[partition]
kind = "iid"
parties = 5
[teachers]
kind = "nearest-centroid"
per_party = 10
[mechanism]
name = "gnmax-unless-unsure"
parameters = { sigma = 6.0 }
[budget]
epsilon = 20.0
bound = "classic"
[queries]
count = 30
[student]
method = "ridge"
[engine]
workers = 1
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages as pip installs them from their wheels."""
    folder = tmp_path_factory.mktemp("plugins")
    sources = shutil.copytree(ROOT / "examples" / "plugins", folder / "sources")
    packages = sorted(path.parent for path in sources.glob("*/pyproject.toml"))
    assert len(packages) == 7
    (folder / "wheels").mkdir()
    subprocess.run([sys.executable, "-c", BUILD, folder / "wheels", *packages], check=True, capture_output=True)
    wheels = sorted((folder / "wheels").glob("*.whl"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, "--target", folder / "site", *wheels], check=True)
    return folder / "site"


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Run:
    """Python with the packages and without them beside Collegium; nothing else differs."""

    def go(*arguments: str) -> subprocess.CompletedProcess[str]:
        folders = ("src", "accounting/src", "conformance", "reproduction")
        path = os.pathsep.join(map(str, (*(ROOT / one for one in folders), installed)))
        environment = os.environ | {"PYTHONPATH": path}
        return subprocess.run(
            [sys.executable, *arguments], env=environment, cwd=tmp_path, capture_output=True, text=True
        )

    return go


def test_each_part_keeps_its_promises(run: Run) -> None:
    done = run("-c", SUITES)
    assert done.stdout == "all promises are kept\n", done.stderr


def test_the_mechanism_is_accounted_for_planned_and_audited(run: Run) -> None:
    plan = ("plan", "-m", "gnmax-unless-unsure", "--epsilon", "2", "--teachers", "50")
    planned = run("-m", "collegium", *plan, "--classes", "2", "--gaps", "0.8", "--queries", "4")
    assert planned.returncode == 0 and "Best: gnmax-unless-unsure" in planned.stdout, planned.stderr

    found = re.search(r"Best: gnmax-unless-unsure with sigma (\S+), 4 queries", planned.stdout)
    assert found is not None, planned.stdout
    votes = ("--sigma", found[1], "--queries", "4", "--classes", "2", "--json")
    audit = ("audit", "-m", "gnmax-unless-unsure", "--sigma", "4", "--teachers", "20", "--seed", "1")
    done = run(
        *("-c", COMMANDS, "account", "-m", "gnmax-unless-unsure", *votes),
        *("and", "account", "-m", "gnmax", *votes),
        *("and", *audit, "--rounds", "2", "--json"),
    )
    assert done.returncode == 0, done.stderr
    *accounted, audited, rest = map(str.strip, re.split(r"^done$", done.stdout, flags=re.MULTILINE))
    epsilons = [json.loads(printed)["epsilon_data_independent"] for printed in accounted]
    assert 2.0 >= epsilons[0] == epsilons[1] > 1 and len(epsilons) == 2
    assert json.loads(audited)["consistent"] and not rest


def test_institutions_that_allow_them_run_all_four_together_and_others_refuse(run: Run) -> None:
    done = run("-c", CONSORTIUM)
    assert done.returncode == 0, done.stderr
    mechanism, teacher, labelled = done.stdout.splitlines()
    assert "refused-mechanism: " in mechanism and "the mechanism 'gnmax-unless-unsure' is not agreed to" in done.stderr
    assert "refused: " in teacher and "does not allow the teacher nearest-centroid" in teacher
    largest, labels, right = labelled.split()
    assert int(largest) == 1, "the last class stands for no answer"
    assert int(labels) >= 25 and float(right) > 0.5


def test_they_run_in_a_simulation(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rings.toml").write_text(SIMULATION)
    done = run("-m", "collegium", "simulate", "rings.toml", "--run", "run")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "student.safetensors").is_file()


def test_a_kind_of_question_is_three_short_files_and_its_own_test_passes(run: Run) -> None:
    packages = []
    for kind, lines in (("table-one", 150), ("survival", 400), ("regression", 310)):
        packages.append(ROOT / "examples" / "plugins" / kind)
        files = [*packages[-1].rglob("*.py")]
        assert len(files) == 5 and sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) <= lines
    options = ("-p", "no:cacheprovider", "-c", str(packages[0] / "pyproject.toml"))
    done = run("-m", "pytest", "-rA", *options, *map(str, packages))
    passed = re.findall(r"^PASSED \S*?test_(\w+)\.py::", done.stdout, flags=re.MULTILINE)
    assert done.returncode == 0, done.stdout
    assert Counter(passed) == {"table_one": 1, "survival": 6, "regression": 6}
