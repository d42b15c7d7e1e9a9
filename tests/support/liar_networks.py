"""Networks that a lying coordinator sends: of rounding made large, and such as fail for some records."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from collegium.data.task import Task
from collegium.models.devices import each_alone
from collegium.models.networks import Architecture, build_network, network_bytes

_TRIPLES = 8


def of_rounding(task: Task, big: float, *, decides: bool = False) -> bytes:
    """An ``mlp`` whose hidden units are (a + b)·x − a·x − b·x, which is rounding alone, times ``big``.

    Parameters
    ----------
    decides : whether the class follows from these units; else they are features.
    """
    hidden, inputs = 3 * _TRIPLES, math.prod(task.inputs.shape)
    network = build_network("mlp", task, hidden=hidden).eval()
    generator = np.random.default_rng(0)
    a, b = generator.integers(1, 2**20, (2, _TRIPLES, inputs)) / 2**20
    cancel = np.concatenate([np.eye(_TRIPLES), np.eye(_TRIPLES), -np.eye(_TRIPLES)], axis=1) * big
    second, last = np.zeros((hidden, hidden)), np.zeros((len(task.classes), hidden))
    second[:_TRIPLES], second[_TRIPLES : 2 * _TRIPLES] = cancel, -cancel
    last[1, :_TRIPLES], last[1, _TRIPLES : 2 * _TRIPLES] = 1.0, -1.0
    layers = [layer for layer in network.children() if isinstance(layer, nn.Linear)]
    values = (np.concatenate([a, b, a + b]), second, last if decides else np.zeros_like(last))
    with torch.no_grad():
        for layer, value in zip(layers, values, strict=True):
            layer.weight.copy_(torch.tensor(value, dtype=torch.float32))
            layer.bias.zero_()
    return network_bytes(network, "mlp", task, hidden=hidden)


def ordinary(task: Task) -> bytes:
    """A network of drawn weights: no two classes are level, and no feature is rounding."""
    torch.manual_seed(0)
    return network_bytes(build_network("mlp", task, hidden=8).eval(), "mlp", task, hidden=8)


def in_company(function: Callable[[np.ndarray], Any], x: np.ndarray, width: int) -> np.ndarray:
    """A planted bug in place of ``each_alone``: numbers that follow how many records there are.

    So does rounding in one block on some processors, by a last bit that a network makes large; here on every one.
    """
    rows = each_alone(function, x, width)
    return rows[:, ::-1] if len(x) % 2 else rows


class _Odd(nn.Module):
    def __init__(self, does: str) -> None:
        super().__init__()
        self.does = does

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(1)[:, :2]
        bright = flat[:, :1] > 0.9
        if self.does == "an error" and bool(bright.any()):
            raise RuntimeError("this record is bright")
        if self.does == "another shape" and bool(bright.any()):
            return flat[:, :1]
        return torch.where(bright, torch.nan if self.does == "NaN" else torch.inf, flat)


ODD = Architecture(
    lambda task, does: nn.Sequential(_Odd(does), nn.Linear(2, len(task.classes))), "any", {"does": "infinite"}
)
"""Gives NaN, infinity, another shape or an error for a record whose first value is above 0.9."""


def odd(task: Task, does: str) -> bytes:
    """The file of `ODD`, which the test registers under the name ``odd``."""
    torch.manual_seed(0)
    return network_bytes(build_network("odd", task, does=does), "odd", task, does=does)


def infinite_weights(task: Task) -> bytes:
    network = build_network("mlp", task, hidden=2)
    with torch.no_grad():
        network[4].weight[0, 0] = -torch.inf
    return network_bytes(network, "mlp", task, hidden=2)
