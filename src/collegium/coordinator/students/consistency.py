"""A semi-supervised student: the labels, and agreement with itself on the unlabelled pool.

Each unlabelled image is labelled by a moving average of the student (Tarvainen and Valpola 2017) as
seen under a weak change; where that answer is confident, the student must give it under a strong change
(FixMatch, Sohn et al. 2020; UDA, Xie et al. 2020). The answers are first drawn towards the class
frequencies of the issued labels (distribution alignment, Berthelot et al. 2020), which keeps a class
from swallowing others.
"""

import copy
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from collegium.coordinator.students import LearningProblem, register
from collegium.coordinator.students.networks import generator_of, new_network, pool_tensor, student_network
from collegium.models.augmentation import STRONG, WEAK, Strength, augment
from collegium.models.devices import mixed_precision
from collegium.models.networks import FittedNetwork
from collegium.models.training import Learner, move_average, train
from collegium.settings import Frozen


@register
class Consistency(Frozen):
    """FixMatch with a moving-average teacher and distribution alignment."""

    name: ClassVar[str] = "consistency"

    network: str = "default"
    steps: int = Field(default=1200, gt=0)
    labelled_batch: int = Field(default=64, gt=0)
    unlabelled_batch: int = Field(default=160, gt=0)
    learning_rate: float = Field(default=4e-3, gt=0)
    confidence: float = Field(default=0.9, gt=0, lt=1)
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    ramp: float = Field(default=0.2, gt=0, le=1)
    """Fraction of the steps over which the unlabelled loss gains its full weight."""

    def fit(self, problem: LearningProblem) -> FittedNetwork:
        architecture = student_network(self.network, problem)
        network = new_network(problem, architecture)
        average = copy.deepcopy(network).eval()
        pool = pool_tensor(problem)
        positions = torch.as_tensor(problem.indices, device=problem.device)
        y = torch.as_tensor(problem.labels, device=problem.device)
        draws = generator_of(problem)
        alignment = Alignment(y, len(problem.task.classes))

        def loss(step: int) -> Tensor:
            chosen = torch.randint(len(y), (self.labelled_batch,), generator=draws, device=problem.device)
            others = torch.randint(len(pool), (self.unlabelled_batch,), generator=draws, device=problem.device)
            labelled = _change(pool[positions[chosen]], STRONG, draws)
            unlabelled = pool[others]
            with torch.no_grad(), mixed_precision(problem.device):
                answers = torch.softmax(average(_change(unlabelled, WEAK, draws)).float(), dim=1)
            confidence, pseudo = alignment(answers).max(dim=1)
            with mixed_precision(problem.device):
                logits = network(torch.cat([labelled, _change(unlabelled, STRONG, draws)]))
                supervised = F.cross_entropy(logits[: len(chosen)], y[chosen], label_smoothing=self.label_smoothing)
                each = F.cross_entropy(logits[len(chosen) :], pseudo, reduction="none")
            agreement = (each * (confidence > self.confidence)).mean()
            weight = min(1.0, step / (self.ramp * self.steps))
            return supervised + weight * agreement

        network.train()
        train(
            loss,
            Learner.one_cycle(network.parameters(), self.steps, self.learning_rate, warm_up=0.1),
            self.steps,
            progress=problem.progress,
            after=lambda step: move_average(average, network, step),
        )
        return FittedNetwork(problem.task, average, problem.device)


class Alignment:
    """Scales answers so that on average the classes are as frequent as among the issued labels.

    Few labels say little about frequencies: ten imaginary labels of each class are added to them.
    """

    def __init__(self, labels: Tensor, classes: int) -> None:
        counts = torch.bincount(labels, minlength=classes).float() + 10.0
        self._wanted = counts / counts.sum()
        self._mean = self._wanted.clone()

    def __call__(self, answers: Tensor) -> Tensor:
        self._mean = 0.99 * self._mean + 0.01 * answers.mean(dim=0)
        aligned = answers * (self._wanted / self._mean)
        return aligned / aligned.sum(dim=1, keepdim=True)


def _change(x: Tensor, strength: Strength, generator: torch.Generator) -> Tensor:
    """Augment images; rows of a table get a little noise in proportion instead."""
    if x.ndim == 4:
        return augment(x, strength, generator)
    spread = 0.02 if strength is WEAK else 0.1
    return x + spread * torch.randn(x.shape, generator=generator, device=x.device)
