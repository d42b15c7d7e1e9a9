"""A folder of wheels that installs Collegium on a machine without a network, for tables and vectors.

    python .ci/wheelhouse.py make [FOLDER]    from dist/ and the package index: `make wheelhouse`
    python .ci/wheelhouse.py try [FOLDER]     installs and runs it where no route leads anywhere: `make try-wheelhouse`

The wheels are for the Python and the kind of machine on which it is made.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bill import bill_of
from dependencies import closure
from distributions import ROOT, sha256
from packaging.utils import parse_wheel_filename

REQUIREMENT = "collegium[serve]"
LARGEST_MB = 150
ALONE = ("unshare", "--net", *(() if os.geteuid() == 0 else ("--map-root-user",)))
"""Runs a command in a network namespace of its own, from which no route leads anywhere."""

TABLE = """
name = "trial"
[task]
classes = ["no", "yes"]
[task.inputs]
kind = "table"
columns = [{ kind = "number", name = "a", low = -5, high = 5 }, { kind = "number", name = "b", low = -5, high = 5 }]
[private]
source = "rows.csv"
label = "ill"
stop = 2000
[pool]
source = "rows.csv"
start = 2000
stop = 2100
[holdout]
source = "rows.csv"
label = "ill"
start = 2100
[partition]
parties = 5
[budget]
epsilon = 1.0
"""
ROWS = """
import numpy as np
rng = np.random.default_rng(0)
ill = rng.integers(0, 2, 2400)
rows = rng.normal(size=(2400, 2)) + 1.5 * (2 * ill[:, None] - 1)
print("a,b,ill", *(f"{a:.3f},{b:.3f},{('no', 'yes')[one]}" for (a, b), one in zip(rows, ill)), sep="\\n")
"""
# The loopback interface of a new namespace is down, and the parties of a launch reach their coordinator by it.
INSIDE = """
import fcntl, pathlib, runpy, socket, struct, sys
with socket.socket() as held:
    fcntl.ioctl(held, 0x8914, struct.pack("16sh", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
assert len(pathlib.Path("/proc/net/route").read_text().splitlines()) <= 1, "a route leads somewhere"
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def make(folder: Path, built: Path = ROOT / "dist") -> None:
    """Fetch the wheels whose hashes the constraints hold, and write the bill of materials of what was fetched."""
    constraints = built / "constraints.txt"
    if not constraints.exists():
        raise SystemExit(f"{constraints} is not there: build the distributions first, with make dist")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begun_s = time.monotonic()
    _run(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:", "--find-links", str(built)),
        *("--require-hashes", "--constraint", str(constraints), "--dest", str(folder), REQUIREMENT),
        settings=True,
    )
    wheels = sorted(folder.glob("*.whl"))
    shutil.copy(constraints, folder)
    names = {str(parse_wheel_filename(wheel.name)[0]): sha256(wheel) for wheel in wheels}
    (folder / "bill.cdx.json").write_text(bill_of(closure([REQUIREMENT], wheels), names) + "\n", encoding="utf-8")
    size_mb = sum(wheel.stat().st_size for wheel in wheels) / 1e6
    print(f"{folder}: {len(wheels)} wheels, {size_mb:.0f} MB, made in {time.monotonic() - begun_s:.0f} s")
    if size_mb > LARGEST_MB:
        raise SystemExit(f"a wheelhouse has at most {LARGEST_MB} MB: find out which package grew")


def install(wheelhouse: Path, environment: Path, *requirements: str) -> None:
    """Install into a virtual environment what the folder holds, without a network and without any setting of pip."""
    _run(
        *(*ALONE, sys.executable, "-m", "pip", "--python", str(environment), "install", "--quiet", "--no-index"),
        *("--find-links", str(wheelhouse), "--require-hashes", "--constraint", str(wheelhouse / "constraints.txt")),
        *(requirements or [REQUIREMENT]),
    )


def run(environment: Path, folder: Path, table: str = TABLE) -> dict[str, Any]:
    """What `collegium launch` says of a coordinator and its parties, each a process, where no route leads anywhere."""
    folder.mkdir(exist_ok=True)
    python = str(environment / "bin" / "python")
    (folder / "rows.csv").write_text(_run(python, "-c", ROWS), encoding="utf-8")
    (folder / "trial.toml").write_text(table, encoding="utf-8")
    printed = _run(
        *(*ALONE, python, "-c", INSIDE, str(environment / "bin" / "collegium"), "launch", str(folder / "trial.toml")),
        *("--data-root", str(folder), "--run", str(folder / "run"), "--json"),
    )
    return dict(json.loads(printed))


def try_out(wheelhouse: Path) -> None:
    """Install the folder in a new virtual environment, run it, and print how long both took."""
    if shutil.which(ALONE[0]) is None:
        raise SystemExit("a network namespace needs Linux, and the command unshare of util-linux")
    if not (wheelhouse / "constraints.txt").exists():
        raise SystemExit(f"{wheelhouse} is no wheelhouse: make one first, with make wheelhouse")
    with tempfile.TemporaryDirectory() as place:
        environment, begun_s = Path(place) / "environment", time.monotonic()
        _run(sys.executable, "-m", "venv", "--without-pip", str(environment))
        install(wheelhouse, environment)
        installed_s = time.monotonic()
        size_mb = sum(path.stat().st_size for path in environment.rglob("*") if path.is_file()) / 1e6
        print(f"installed without a network in {installed_s - begun_s:.0f} s, {size_mb:.0f} MB on the disk")
        found = run(environment, Path(place) / "trial")
        print(
            f"ran without a network in {time.monotonic() - installed_s:.0f} s: {len(found['parties'])} parties, "
            f"{found['labels']['answered']} labels, {found['student']['quality']['accuracy']:.0%} of the holdout right"
        )


def _run(*command: str, settings: bool = False) -> str:
    """Standard output of a command that must succeed; without `settings`, it knows none of pip's and no search path."""
    environment = {name: value for name, value in os.environ.items() if settings or not name.startswith("PIP_")}
    environment |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1"} | ({} if settings else {"PIP_CONFIG_FILE": os.devnull})
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def main(words: Sequence[str]) -> int:
    if not words or words[0] not in ("make", "try"):
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(words[1]) if len(words) > 1 else ROOT / "dist" / "wheelhouse"
    (make if words[0] == "make" else try_out)(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
