"""Pack the GPU kit: ``python -m benchmarks.gpu.pack kit.zip``, then on the other machine ``unzip`` and ``sh run.sh``.

The file holds this package, the accountant, the benchmarks, MNIST where it is at hand, and wheels for Python 3.12 on
Linux of what the accelerated path needs beside PyTorch, torchvision and numpy. No wheel of Flower, gRPC or the
libraries that draw noise is among them: nothing there needs one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import collegium
import collegium_accounting
from benchmarks.gpu.parts import DATA
from collegium.data.loading.sources import data_root

NEEDED = (
    "annotated-types",
    "pandas",
    "platformdirs",
    "pydantic",
    "pydantic-core",
    "python-dateutil",
    "safetensors",
    "scipy",
    "threadpoolctl",
    "typing-inspection",
)
"""Distributions that a bare machine with PyTorch, torchvision and numpy lacks."""

MOST_BYTES = 60 * 2**20
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
_RUN = """#!/bin/sh
# Measure and check everything on the GPU; arguments are those of python -m benchmarks.gpu.
set -e
cd "$(dirname "$0")"
[ ! -d wheels ] || [ -d site ] || python3 -m pip install -q --no-index --no-deps --target site wheels/*.whl
PYTHONPATH=src:.:site exec python3 -m benchmarks.gpu "$@"
"""


def download(folder: Path) -> None:
    """The wheels of `NEEDED` in the versions installed here, for Python 3.12."""
    platforms = [argument for name in _PLATFORMS for argument in ("--platform", name)]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", "3.12", "--implementation", "cp", *platforms, "-d", str(folder)]
    subprocess.run([*command, *(f"{name}=={version(name)}" for name in NEEDED)], check=True)


def pack(target: Path, wheels: Path | None, data: Path | None) -> int:
    """Write the kit; returns the bytes of its wheels."""
    roots = {
        "src/collegium": Path(collegium.__file__).parent,
        "src/collegium_accounting": Path(collegium_accounting.__file__).parent,
        "benchmarks": Path(__file__).parents[1],
    }
    weight = 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as kit:
        for prefix, root in roots.items():
            for file in sorted(root.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    kit.write(file, f"{prefix}/{file.relative_to(root)}")
        kit.writestr("run.sh", _RUN)
        for file in sorted(wheels.glob("*.whl")) if wheels is not None else ():
            kit.write(file, f"wheels/{file.name}", zipfile.ZIP_STORED)
            weight += file.stat().st_size
        if data is not None and data.exists():
            kit.write(data, f"data/{DATA}", zipfile.ZIP_STORED)
    return weight


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.pack", description=__doc__)
    parser.add_argument("target", type=Path, help="the file to write, kit.zip")
    parser.add_argument("--no-wheels", action="store_true", help="for a machine that has them")
    parser.add_argument("--data-root", type=Path, help="where mnist.npz lies; COLLEGIUM_DATA by default")
    chosen = parser.parse_args()
    root = data_root(chosen.data_root)
    with tempfile.TemporaryDirectory() as folder:
        if not chosen.no_wheels:
            download(Path(folder))
        weight = pack(chosen.target, Path(folder), None if root is None else root / DATA)
    if weight > MOST_BYTES:
        parser.error(f"the wheels have {weight:,} bytes, more than {MOST_BYTES:,}: take one out of NEEDED")
    print(f"{chosen.target}: {chosen.target.stat().st_size / 2**20:.1f} MiB, wheels {weight / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
