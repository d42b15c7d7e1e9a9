"""The packages of examples/plugins, installed into a folder of their own, work everywhere; nothing else is touched."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
Run = Callable[..., subprocess.CompletedProcess[str]]

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

mechanisms, teachers = sys.argv[1].split(","), sys.argv[2].split(",")
task = default_task("rings")

def part(start, stop):
    source = DataSource(source="rings", split="all", shuffle_seed=0, start=start, stop=stop)
    return load(source, task, data_root=None)

records = {f"clinic-{n}": (own.x, own.y) for n in range(5) for own in [part(200 + 200 * n, 400 + 200 * n)]}
policy = cg.PolicyConfig(mechanisms=mechanisms, teacher_imports=teachers, minimum_noise_votes=5)
parties = cg.LocalParties(records, task, policy=policy)
mechanism = create("gnmax-unless-unsure", sigma=6.0)
pool, test = part(0, 200), part(1200, 1500)
coordinator = cg.Coordinator(
    parties, pool.x, mechanism, epsilon=20, teachers="nearest-centroid", teachers_per_party=10
)
try:
    labels = coordinator.label(queries=60)
except cg.errors.QuorumNotReached as error:
    sys.exit(str(error))
student = coordinator.fit("ridge")
again = cg.load_student(coordinator.folder / "student.safetensors")
assert type(again.student).__name__ == "RidgeStudent" and (again.predict(test.x) == student.predict(test.x)).all()
print(labels.max(), (labels >= 0).sum(), (student.predict(test.x) == student.classes_[test.labels()]).mean())
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
    """A folder with the packages as pip installs them."""
    folder = tmp_path_factory.mktemp("plugins")
    sources = shutil.copytree(ROOT / "examples" / "plugins", folder / "sources")
    packages = sorted(path.parent for path in sources.glob("*/pyproject.toml"))
    assert len(packages) == 7
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*command, "--target", folder / "site", *packages], check=True)
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
    plan = ("-m", "collegium", "plan", "-m", "gnmax-unless-unsure", "--epsilon", "2", "--teachers", "50")
    planned = run(*plan, "--classes", "2", "--gaps", "0.8", "--queries", "4")
    assert planned.returncode == 0 and "Best: gnmax-unless-unsure" in planned.stdout, planned.stderr

    found = re.search(r"Best: gnmax-unless-unsure with sigma (\S+), 4 queries", planned.stdout)
    assert found is not None, planned.stdout
    chosen = (
        "-m",
        "collegium",
        "account",
        "-m",
        "gnmax-unless-unsure",
        "--sigma",
        found[1],
        "--queries",
        "4",
        "--classes",
        "2",
        "--json",
    )
    as_gnmax = [part.replace("gnmax-unless-unsure", "gnmax") for part in chosen]
    epsilons = [json.loads(run(*command).stdout)["epsilon_data_independent"] for command in (chosen, as_gnmax)]
    assert 2.0 >= epsilons[0] == epsilons[1] > 1

    audit = ("-m", "collegium", "audit", "-m", "gnmax-unless-unsure", "--sigma", "4", "--teachers", "20", "--seed", "1")
    audited = run(*audit, "--rounds", "2", "--json")
    assert audited.returncode == 0 and json.loads(audited.stdout)["consistent"], audited.stderr


def test_institutions_that_allow_them_run_all_four_together(run: Run) -> None:
    done = run("-c", CONSORTIUM, "gnmax-unless-unsure", "nearest-centroid")
    assert done.returncode == 0, done.stderr
    largest, labels, right = done.stdout.split()
    assert int(largest) == 1, "the last class stands for no answer"
    assert int(labels) >= 25 and float(right) > 0.5


@pytest.mark.parametrize(
    ("mechanisms", "teachers", "named"),
    [
        ("gnmax", "nearest-centroid", "the mechanism"),
        ("gnmax-unless-unsure", "other:Teacher", "does not allow the teacher nearest-centroid"),
    ],
)
def test_an_institution_that_does_not_allow_one_refuses(run: Run, mechanisms: str, teachers: str, named: str) -> None:
    done = run("-c", CONSORTIUM, mechanisms, teachers)
    assert done.returncode == 1 and "refused" in done.stderr and named in done.stderr


def test_they_run_in_a_simulation(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rings.toml").write_text(SIMULATION)
    done = run("-m", "collegium", "simulate", "rings.toml", "--run", "run")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "student.safetensors").is_file()


@pytest.mark.parametrize(
    ("kind", "lines", "passed"), [("table-one", 150, 1), ("survival", 400, 6), ("regression", 310, 6)]
)
def test_a_kind_of_question_is_three_short_files_and_its_own_test_passes(
    run: Run, kind: str, lines: int, passed: int
) -> None:
    package = ROOT / "examples" / "plugins" / kind
    files = [*package.rglob("*.py")]
    assert len(files) == 5 and sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) <= lines
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(package / "pyproject.toml"), str(package))
    assert done.returncode == 0 and f"{passed} passed" in done.stdout, done.stdout
