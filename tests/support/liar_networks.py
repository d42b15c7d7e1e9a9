"""Networks that a lying coordinator sends: of the largest numbers, of numbers that are none, and an ordinary one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save

from collegium.data import Examples
from collegium.data.task import ImageInputs, Task
from collegium.models.kernels import KernelMap
from collegium.models.networks import build_network, network_inputs
from collegium.models.quantising import quantised
from collegium.models.whole_layers import Flat, Layer, Products, Rescaled
from collegium.models.whole_networks import FORMAT, WholeNetwork
from collegium.parties.kinds.class_sums import RecordsOfClasses
from collegium_accounting.mechanisms.class_sums import bound_squared

_HIDDEN = 24


def largest(task: Task) -> bytes:
    """Weights and factors as large as a file may have them, so that numbers cancel and any other leaves its range."""
    draws, inputs = np.random.default_rng(0), math.prod(task.inputs.shape)

    def products(out: int, of: int) -> Products:
        weight = draws.choice(np.array([-127, 127], dtype=np.int8), (out, of))
        return Products(weight, np.full(out, 2**30, dtype=np.int32) * (-1) ** np.arange(out, dtype=np.int32))

    def scaled(out: int, shift: int, most: int) -> Rescaled:
        return Rescaled(np.full(out, 2**20, dtype=np.int32), shift, -most, most)

    classes, flat = len(task.classes), [Flat()] if isinstance(task.inputs, ImageInputs) else []
    layers: list[Layer] = [*flat, products(_HIDDEN, inputs), scaled(_HIDDEN, 40, 255)]
    layers += [products(classes, _HIDDEN), scaled(classes, 30, 2**20)]
    return WholeNetwork(task, (tuple(layers),)).to_bytes()


def ordinary(task: Task, members: int = 1) -> bytes:
    """Networks of drawn weights: no two classes are level."""
    draws = np.random.default_rng(0)
    x = draws.integers(0, 256, (60, *task.inputs.shape)).astype(task.inputs.dtype)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = [build_network("mlp", task, hidden=8) for _ in range(members)]
    return quantised(made, task, network_inputs(x)).to_bytes()


def of_weights(task: Task, weight: float) -> bytes:
    """The file of `ordinary`, whose weights are this floating-point number."""
    data = ordinary(task)
    said: str = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"][FORMAT]
    arrays = {name: np.full(value.shape, weight, np.float32) for name, value in load(data).items()}
    return save(arrays, {FORMAT: said})


def follow_company(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: what a network gives follows how many records are computed at once, as rounding in blocks does."""
    passed: Callable[..., Any] = WholeNetwork._passed

    def in_company(network: WholeNetwork, x: np.ndarray) -> Any:
        inside, shares = passed(network, x)
        return ([part[:, ::-1] for part in inside], shares[:, ::-1]) if len(x) % 2 else (inside, shares)

    monkeypatch.setattr(WholeNetwork, "_passed", in_company)


def most_moved(kernel: KernelMap, records: Examples, task: Task, counts: Sequence[int]) -> float:
    """The most that leaving out the first of so many records moves class sums under the kernel, in parts of Δ."""

    def moved(count: int) -> float:
        more, less = (RecordsOfClasses(records.take(np.arange(first, count)), task).sums(kernel) for first in (0, 1))
        return float(np.linalg.norm((more - less).astype(np.float64))) / math.sqrt(bound_squared(len(task.classes)))

    return max(map(moved, counts))
