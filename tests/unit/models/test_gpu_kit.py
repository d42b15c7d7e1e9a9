"""The GPU kit runs from its file alone, on a machine that has PyTorch and what the kit brings, and nothing else.

What is whole numbers there is tried on a pretended GPU: torch's CPU, which takes tensors that are asked for on CUDA and
refuses the products that torch has on no GPU.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.gpu.exact import class_sums, compared, neighbours, networks
from benchmarks.gpu.pack import NEEDED, pack
from benchmarks.gpu.parts import SMALL, Part
from hidden_packages import environment_without
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

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
    assert result["device"] == "cpu" and len(result["parts"]) == 7
    assert all(holds for part in result["parts"] for holds in part["checks"].values())


class OnThePretended(TorchFunctionMode):
    """Tensors that are asked for on CUDA are made here; counts how often they were."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cuda = [value for value in (*args, *(kwargs or {}).values()) if isinstance(value, str) and value == "cuda"]
        self.asked += len(cuda)
        here = lambda value: "cpu" if isinstance(value, str) and value == "cuda" else value  # noqa: E731
        return function(*map(here, args), **{name: here(value) for name, value in (kwargs or {}).items()})


class WithoutWholeProducts(TorchDispatchMode):
    """Torch has products of matrices of whole numbers on no GPU."""

    REFUSED = ("aten.mm.", "aten.addmm.", "aten.bmm.", "aten.baddbmm.", "aten.mv.", "aten.dot.", "aten.convolution.")

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        whole = any(isinstance(value, torch.Tensor) and not value.is_floating_point() for value in args)
        if whole and str(function).startswith(self.REFUSED):
            raise NotImplementedError(f"{function} of whole numbers")
        return function(*args, **(kwargs or {}))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[OnThePretended]:
    for name, value in (("is_available", True), ("device_count", 1), ("synchronize", None)):
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    with WithoutWholeProducts(), OnThePretended() as pretended:
        yield pretended
    torch.get_device_module.cache_clear()  # torch keeps what it was told: the module of "cuda" would stay the CPU's


@pytest.mark.bits
@pytest.mark.parametrize("measure", [class_sums, networks, neighbours])
def test_whole_numbers_need_nothing_that_a_gpu_lacks_and_are_the_cpus(measure: Any, cuda: OnThePretended) -> None:
    parts = measure(SMALL, "cuda")
    assert cuda.asked > 2, "something was computed there"
    assert all(part.checks and all(part.checks.values()) for part in parts), parts


def test_the_pretended_gpu_refuses_what_gpus_lack(cuda: OnThePretended) -> None:
    whole = torch.ones((2, 2), dtype=torch.int64, device="cuda")
    with pytest.raises(NotImplementedError, match="whole numbers"):
        whole @ whole
    assert (whole.double() @ whole.double()).sum() == 8


def test_nothing_of_the_pretended_gpu_stays() -> None:
    assert torch.get_device_module("cuda") is torch.cuda


def test_numbers_that_differ_are_counted_and_told() -> None:
    part = Part("a part", 0.0, None, 0.0)
    compared(part, "sums", np.array([1, 2, 3]), np.array([1, 2, 7]))
    assert part.checks == {"sums are the CPU's to the last bit": False}
    assert part.figures == {"sums that differ, of 3": 1.0, "sums, most apart": 4.0}
