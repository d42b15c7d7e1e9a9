"""Virtual adversarial training with entropy minimisation (Miyato et al. 2018), for images and tables.

The student's answers should not change under the small change of an input that changes them most, found
without a label by one step of the power method (their section 3.3), and should be decided (section 4.3:
conditional entropy).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from collegium.coordinator.students import LearningProblem, register
from collegium.coordinator.students.networks import generator_of, new_network, pool_tensor, student_network
from collegium.models.augmentation import STRONG, WEAK, augment
from collegium.models.networks import FittedNetwork
from collegium.models.training import Learner, train
from collegium.settings import Frozen

_PROBE = 0.1
"""The probing change of the power method, as a fraction of the final one."""


@register
class Vat(Frozen):
    """Labels, virtual adversarial training and low entropy on the pool."""

    name: ClassVar[str] = "vat"

    network: str = "default"
    steps: int = Field(default=1200, gt=0)
    labelled_batch: int = Field(default=64, gt=0)
    unlabelled_batch: int = Field(default=128, gt=0)
    learning_rate: float = Field(default=4e-3, gt=0)
    radius: float = Field(default=0.07, gt=0)
    """Length ε of the change per value of an input: over all d values it is ``radius · √d`` (2 for 28 × 28)."""
    power_iterations: int = Field(default=1, gt=0)
    entropy: float = Field(default=1.0, ge=0)
    """Weight of the entropy of the answers on the pool."""
    ramp: float = Field(default=0.2, gt=0, le=1)
    """Fraction of the steps over which the unlabelled losses gain their full weight."""

    def fit(self, problem: LearningProblem) -> FittedNetwork:
        architecture = student_network(self.network, problem)
        network = new_network(problem, architecture)
        pool = pool_tensor(problem)
        positions = torch.as_tensor(problem.indices, device=problem.device)
        y = torch.as_tensor(problem.labels, device=problem.device)
        draws = generator_of(problem)

        def loss(step: int) -> Tensor:
            chosen = torch.randint(len(y), (self.labelled_batch,), generator=draws, device=problem.device)
            others = torch.randint(len(pool), (self.unlabelled_batch,), generator=draws, device=problem.device)
            labelled, unlabelled = pool[positions[chosen]], pool[others]
            if pool.ndim == 4:
                labelled, unlabelled = augment(labelled, STRONG, draws), augment(unlabelled, WEAK, draws)
            # In full precision: the power method takes small differences.
            logits = network(torch.cat([labelled, unlabelled]))
            supervised, answers = F.cross_entropy(logits[: len(chosen)], y[chosen]), logits[len(chosen) :]
            smooth = self.smoothness(network, unlabelled, answers.detach(), draws)
            entropy = -(answers.softmax(dim=1) * answers.log_softmax(dim=1)).sum(dim=1).mean()
            weight = min(1.0, step / (self.ramp * self.steps))
            together: Tensor = supervised + weight * (smooth + self.entropy * entropy)
            return together

        network.train()
        learner = Learner.one_cycle(network.parameters(), self.steps, self.learning_rate, warm_up=0.1)
        train(loss, learner, self.steps, progress=problem.progress)
        return FittedNetwork(problem.task, network, problem.device)

    def smoothness(self, network: nn.Module, x: Tensor, logits: Tensor, draws: torch.Generator) -> Tensor:
        """Mean divergence between the answers ``logits`` to ``x`` and those after the worst change (equation 5)."""
        length = self.radius * math.sqrt(x[0].numel())
        with _statistics_kept(network):
            worst = _unit(torch.randn(x.shape, generator=draws, device=x.device))
            for _ in range(self.power_iterations):
                probe = (_PROBE * length * worst).requires_grad_()
                (gradient,) = torch.autograd.grad(_divergence(logits, network(x + probe)), probe)
                worst = _unit(gradient)
            return _divergence(logits, network(x + length * worst))


def _divergence(before: Tensor, after: Tensor) -> Tensor:
    """Mean Kullback-Leibler divergence between the answers of two batches of logits."""
    return F.kl_div(after.log_softmax(dim=1), before.log_softmax(dim=1), log_target=True, reduction="batchmean")


def _unit(x: Tensor) -> Tensor:
    """Each row at length 1; a row of zeros stays."""
    return F.normalize(x.flatten(1), dim=1).view_as(x)


@contextmanager
def _statistics_kept(network: nn.Module) -> Iterator[None]:
    """Batch normalisation uses changed inputs' own statistics but does not remember them."""
    layers = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)]
    kept = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 0.0
    try:
        yield
    finally:
        for layer, momentum in zip(layers, kept, strict=True):
            layer.momentum = momentum
