"""Builds the six distributions into dist/, with the hashes to install them by: `make dist`.

    python .ci/distributions.py [CHECKOUT [FOLDER]]

The same setuptools builds the same wheels, byte for byte, wherever and whenever: their time is that of the last
commit, or SOURCE_DATE_EPOCH, and the rights of their files are not the checkout's. `constraints.txt` is the checkout's
with the hashes of what was built: `pip install --require-hashes --constraint constraints.txt collegium` needs no more.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

from packaging.utils import parse_sdist_filename, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[1]
PROJECTS = ("accounting", ".", "conformance", "reproduction", "bridges/nvflare", "bridges/onnx")
SOURCES = ("src", "accounting", "conformance", "reproduction", "bridges")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", ".*_cache")


def source_date(checkout: Path) -> str:
    """The time that the wheels carry, in seconds since 1970."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return given
    command = ["git", "-C", str(checkout), "log", "-1", "--format=%ct"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{checkout} is no checkout of git: set SOURCE_DATE_EPOCH to the time of the release")
    return done.stdout.strip()


def copy_sources(checkout: Path, folder: Path) -> None:
    """What the distributions are built from, without what earlier builds left; all may read it."""
    for name in SOURCES:
        shutil.copytree(checkout / name, folder / name, ignore=_LEFT_OUT)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(checkout / name, folder / name)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def needs(project: Path) -> tuple[str, ...]:
    """What builds a distribution."""
    return tuple(tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"])


def build(project: Path, folder: Path, date: str, *, known: bool = False) -> None:
    """A source archive, and the wheel that is built from it, by the setuptools of this environment.

    Twice it is looked at whether that is what the distribution needs, unless it is ``known``: each look is a process.
    """
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(project)]
    command += ["--skip-dependency-check"] if known else []
    done = subprocess.run(
        command, env=os.environ | {"SOURCE_DATE_EPOCH": date}, umask=0o022, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def hash_lines(files: Iterable[Path]) -> str:
    """Lines of a constraints file for wheels and source archives."""
    found: dict[str, list[str]] = {}
    for path in sorted(files):
        name, version = (
            parse_wheel_filename(path.name)[:2] if path.suffix == ".whl" else parse_sdist_filename(path.name)
        )
        found.setdefault(f"{name}=={version}", []).append(sha256(path))
    return "".join(
        f"{pin} \\\n" + " \\\n".join(f"    --hash=sha256:{one}" for one in sorted(hashes)) + "\n"
        for pin, hashes in sorted(found.items())
    )


def main(checkout: str = str(ROOT), folder: str = "dist") -> int:
    source, target = Path(checkout), Path(folder)
    date = source_date(source)
    target.mkdir(parents=True, exist_ok=True)
    for old in [*target.glob("collegium*.whl"), *target.glob("collegium*.tar.gz")]:
        old.unlink()
    with tempfile.TemporaryDirectory() as place:
        copy_sources(source, Path(place))
        looked_at = set[tuple[str, ...]]()
        for project in PROJECTS:
            needed = needs(Path(place) / project)
            build(Path(place) / project, target, date, known=needed in looked_at)
            looked_at.add(needed)
    built = [*target.glob("*.whl"), *target.glob("*.tar.gz")]
    pinned = (source / "constraints.txt").read_text(encoding="utf-8")
    (target / "constraints.txt").write_text(pinned + hash_lines(built), encoding="utf-8")
    for path in sorted(built):
        print(f"{sha256(path)}  {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
