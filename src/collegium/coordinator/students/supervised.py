"""The plain student: the issued labels alone, augmented where inputs are images."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field

from collegium.coordinator.students.base import NetworkStudent, Problem, new_network, pool_tensor, register
from collegium.protocol.augmentation import STRONG, augment
from collegium.protocol.devices import mixed_precision
from collegium.protocol.task import Frozen


@register
class Supervised(Frozen):
    """Cross-entropy on the labels; AdamW with one cycle of the learning rate (Smith and Topin 2018)."""

    name: ClassVar[str] = "supervised"

    network: str = "default"
    steps: int = Field(default=600, gt=0)
    batch: int = Field(default=64, gt=0)
    learning_rate: float = Field(default=4e-3, gt=0)
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)

    def fit(self, problem: Problem) -> NetworkStudent:
        architecture = student_network(self.network, problem)
        network = new_network(problem, architecture)
        x = pool_tensor(problem)[torch.as_tensor(problem.indices, device=problem.device)]
        y = torch.as_tensor(problem.labels, device=problem.device)
        optimiser = torch.optim.AdamW(network.parameters(), lr=self.learning_rate, weight_decay=0.02, fused=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, self.learning_rate, total_steps=self.steps)
        generator = problem.generator()
        network.train()
        for step in range(self.steps):
            chosen = torch.randint(len(y), (self.batch,), generator=generator, device=problem.device)
            batch = augment(x[chosen], STRONG, generator) if x.ndim == 4 else x[chosen]
            with mixed_precision(problem.device):
                loss = F.cross_entropy(network(batch), y[chosen], label_smoothing=self.label_smoothing)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
            problem.progress(step + 1, self.steps)
        return NetworkStudent(architecture, problem.task, network, problem.device)


def student_network(name: str, problem: Problem) -> str:
    """The architecture that ``default`` stands for, or ``name`` itself."""
    if name != "default":
        return name
    return "student-cnn" if problem.task.inputs.kind == "image" else "mlp"
