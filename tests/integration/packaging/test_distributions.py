"""What is built installs: the six distributions, from their source archives, in an environment of their own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import distributions
import pytest
import wheelhouse

from collegium import __version__

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "src" / "collegium"
COMMITTED = "1700000000"
"""When the distributions were made, in seconds since 1970, wherever the tests run."""


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of a command that must succeed, without the search path that leads to the checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["SOURCE_DATE_EPOCH"] = COMMITTED
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the distributions' source archives, and of the wheels that are built from these archives."""
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, ROOT / ".ci" / "distributions.py", ROOT, folder / "dist", cwd=folder)
    return folder / "dist"


def environment(folder: Path, wheels: list[Path]) -> Path:
    """The commands of an environment with these wheels; what they depend on is taken from that of the tests.

    The added path is searched after the environment's own, and start-up files within it are not run, so that an
    editable installation in it is not found first.
    """
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    inner = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    places = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    (Path(inner) / "dependencies.pth").write_text("\n".join(places), encoding="utf-8")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", *wheels, cwd=folder)
    return python.parent


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment with all wheels."""
    return environment(tmp_path_factory.mktemp("installed"), sorted(built.glob("*.whl")))


def test_every_distribution_has_a_source_archive_and_a_wheel(built: Path) -> None:
    assert {path.name for path in built.iterdir()} == {"constraints.txt"} | {
        f"{name}-{__version__}{ending}"
        for name in (
            "collegium",
            "collegium_accounting",
            "collegium_conformance",
            "collegium_nvflare",
            "collegium_onnx",
            "collegium_reproduction",
        )
        for ending in (".tar.gz", "-py3-none-any.whl")
    }


def test_a_wheel_is_the_same_bytes_from_another_checkout_at_another_time(built: Path, tmp_path: Path) -> None:
    """Another folder, other times and other rights of its files, and another umask."""
    checkout = tmp_path / "elsewhere" / "checkout"
    for name in distributions.SOURCES:
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout / name)
    for path in checkout.rglob("*"):
        path.chmod(0o770 if path.is_dir() else 0o660)
        os.utime(path, (1_000_000_000, 1_000_000_000))
    previous = os.umask(0o077)
    try:
        distributions.copy_sources(checkout, tmp_path / "copy")
        distributions.build(tmp_path / "copy" / "accounting", tmp_path / "again", COMMITTED)
    finally:
        os.umask(previous)
    (wheel,) = (tmp_path / "again").glob("*.whl")
    assert wheel.read_bytes() == (built / wheel.name).read_bytes()
    with zipfile.ZipFile(wheel) as held:
        assert {entry.date_time[0] for entry in held.infolist()} == {2023}


def test_the_constraints_that_are_built_hold_the_hashes_of_what_was_built(built: Path) -> None:
    text = (built / "constraints.txt").read_text(encoding="utf-8")
    assert text.startswith((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    for path in built.glob("collegium*"):
        assert text.count(hashlib.sha256(path.read_bytes()).hexdigest()) == 1


def test_every_file_of_the_package_is_in_the_archive_and_in_the_wheel(built: Path) -> None:
    files = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {".py", ".toml", ".css", ".js", ".j2", ".proto", ".pyi"} <= {Path(name).suffix for name in files}
    assert "collegium/py.typed" in files
    with zipfile.ZipFile(built / f"collegium-{__version__}-py3-none-any.whl") as wheel:
        assert files <= set(wheel.namelist())
    with tarfile.open(built / f"collegium-{__version__}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in files} <= names


def test_the_installed_wheel_is_what_runs_and_not_the_checkout(installed: Path, tmp_path: Path) -> None:
    place = run(
        installed / "python",
        "-c",
        "import collegium, collegium_accounting as a, collegium_reproduction as r; "
        "print(collegium.__file__, a.__file__, r.__file__)",
        cwd=tmp_path,
    )
    for path in place.split():
        assert Path(path).is_relative_to(installed.parent)


def test_the_installed_command_runs(installed: Path, tmp_path: Path) -> None:
    assert run(installed / "collegium", "--version", cwd=tmp_path) == f"collegium {__version__}\n"
    assert "five institutions" in run(installed / "collegium", "demo", "--help", cwd=tmp_path)
    found = json.loads(
        run(
            installed / "collegium",
            *("account", "-m", "exponential", "--gamma", "0.05", "--queries", "9", "--json"),
            cwd=tmp_path,
        )
    )
    assert found["epsilon_data_independent"] > 0


def test_the_accountant_is_installed_without_the_rest(built: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("alone")
    (wheel,) = built.glob("collegium_accounting-*.whl")
    commands = environment(folder, [wheel])
    absent = "import importlib.util as u; print(u.find_spec('collegium'))"
    assert run(commands / "python", "-c", absent, cwd=folder) == "None\n"
    assert "Compute the ε of a plan" in run(commands / "collegium-accounting", "--help", cwd=folder)
    computed = "import collegium_accounting as ca; print(ca.gaussian_curve(1.0, 5.0, (2.0,)).values[0])"
    assert float(run(commands / "python", "-c", computed, cwd=folder)) == 1 / 25


def test_the_installed_package_finds_its_data_and_the_other_distribution(installed: Path, tmp_path: Path) -> None:
    read = "from collegium.data import default_task; print(len(default_task('digits').classes))"
    assert run(installed / "python", "-c", read, cwd=tmp_path) == "10\n"
    listed = json.loads(run(installed / "collegium", "reproduce", "--list", "--json", cwd=tmp_path))
    assert {"pate-mnist", "knn-figure-5"} <= {row["name"] for row in listed}


@pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run([*wheelhouse.ALONE, "true"], capture_output=True).returncode != 0,
    reason="this user may not make a network namespace",
)
def test_what_is_installed_without_a_network_runs_a_consortium_of_tables(built: Path, tmp_path: Path) -> None:
    """`make try-wheelhouse` does the same with every dependency from wheels; here they are those of the tests."""
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    names = [path.name.partition("-")[0].replace("_", "-") for path in built.glob("*.whl")]
    wheelhouse.install(built, environment, "--no-deps", *names)
    (packages,) = environment.glob("lib/*/site-packages")
    places = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    (packages / "dependencies.pth").write_text("\n".join(places), encoding="utf-8")
    table = wheelhouse.TABLE.replace("parties = 5", "parties = 3") + "[sums]\nrounds = 1\n"
    found = wheelhouse.run(environment, tmp_path / "trial", table)
    assert found["versions"]["collegium"] == __version__ and len(found["parties"]) == 3
    assert found["labels"]["answered"] == 100 and found["student"]["quality"]["accuracy"] > 0.8


def test_a_wheel_that_was_changed_is_not_installed(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("collegium_accounting-*.whl")
    shutil.copy(wheel, tmp_path)
    shutil.copy(built / "constraints.txt", tmp_path)
    with zipfile.ZipFile(tmp_path / wheel.name, "a") as held:
        held.writestr("collegium_accounting/planted.py", "")
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "environment", cwd=tmp_path)
    with pytest.raises(SystemExit, match="DO NOT MATCH THE HASHES"):
        wheelhouse.install(tmp_path, tmp_path / "environment", "--no-deps", "collegium-accounting")
