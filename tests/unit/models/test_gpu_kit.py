"""The GPU kit runs from its file alone, on a machine that has PyTorch and what the kit brings, and nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from benchmarks.gpu.pack import NEEDED, pack
from hidden_packages import environment_without

WITH_PYTORCH = {"filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "numpy", "pillow", "setuptools"}
WITH_PYTORCH |= {"sympy", "torch", "torchvision", "typing-extensions"}


@pytest.mark.slow
def test_the_kit_runs_where_only_pytorch_is_installed(tmp_path: Path) -> None:
    """A dry run of the packed kit; whatever else this package can use is hidden."""
    assert pack(tmp_path / "kit.zip", None, None) == 0
    with zipfile.ZipFile(tmp_path / "kit.zip") as kit:
        kit.extractall(tmp_path / "kit")
    groups = []
    for place in ("", "accounting"):
        settings = tomllib.loads((Path(__file__).parents[3] / place / "pyproject.toml").read_text())["project"]
        groups += [settings["dependencies"], *(v for k, v in settings["optional-dependencies"].items() if k != "dev")]
    ours = {re.split(r"[^\w-]", requirement)[0] for group in groups for requirement in group} - {"flwr-datasets"}
    absent = ours - set(NEEDED) - WITH_PYTORCH
    modules = {module for module, owners in packages_distributions().items() if absent & set(owners)} | {"ray"}
    assert {"flwr", "grpc", "cryptography", "sklearn", "opendp", "pyarrow", "typer"} <= modules
    assert not {"torch", "numpy", "pandas", "pydantic", "scipy"} & modules
    environment = environment_without(
        modules - {"collegium", "collegium_accounting", "collegium_reproduction"}, tmp_path / "hiding"
    )
    environment |= {"PYTHONPATH": os.pathsep.join([str(tmp_path / "hiding"), "src", "."]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--small", "--json", "result.json"]
    done = subprocess.run(command, cwd=tmp_path / "kit", env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "kit" / "result.json").read_text())
    assert result["device"] == "cpu" and len(result["parts"]) == 4
    assert all(holds for part in result["parts"] for holds in part["checks"].values())
