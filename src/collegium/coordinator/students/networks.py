"""Students that are networks: what their methods share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from collegium.coordinator.students.base import LearningProblem
from collegium.data.task import Task
from collegium.models.networks import Option, build_network, network_inputs, save_network
from collegium.privacy.multilabel import numbers_of

_BATCH = 1024


@dataclass(frozen=True, eq=False)
class NetworkStudent:
    """A torch network that labels inputs of its task."""

    architecture: str
    task: Task
    network: nn.Module
    device: str
    options: Mapping[str, Option] = field(default_factory=dict)

    def probabilities(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Class probabilities, shape ``[n, classes]``."""
        self.network.eval()
        rows = []
        with torch.no_grad():
            for start in range(0, len(x), _BATCH):
                logits = self.network(network_inputs(x[start : start + _BATCH]).to(self.device))
                of_logits = torch.sigmoid if self.task.multilabel else partial(torch.softmax, dim=1)
                rows.append(of_logits(logits.float()).cpu().numpy())
        return np.concatenate(rows).astype(np.float64)

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Label numbers of the task, shape ``[n]``."""
        probabilities = self.probabilities(x)
        if self.task.multilabel:
            return numbers_of(probabilities >= 0.5)
        return np.asarray(probabilities.argmax(axis=1), dtype=np.int64)

    def save(self, path: Path) -> None:
        """Write the weights as safetensors, with what is needed to load them."""
        save_network(path, self.network, self.architecture, self.task, **self.options)


def generator_of(problem: LearningProblem) -> torch.Generator:
    """A fresh generator on the problem's device, the same for the same seed."""
    return torch.Generator(device=problem.device).manual_seed(problem.seed)


def new_network(problem: LearningProblem, architecture: str) -> nn.Module:
    """A freshly initialised network on the problem's device; the same for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(problem.seed)
        network = build_network(architecture, problem.task)
    # Channels last is a third faster on a CPU, and what a GPU's tensor cores want.
    return network.to(device=problem.device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def pool_tensor(problem: LearningProblem) -> Tensor:
    """The whole pool as a network's input, on the device."""
    return network_inputs(problem.pool).to(problem.device)
