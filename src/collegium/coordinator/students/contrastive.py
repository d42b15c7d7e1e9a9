"""A student that looks at the whole pool before it sees a label.

1. Contrast (SimCLR, Chen et al. 2020), without labels: `pretraining`.
2. Spread: the issued labels flow over a graph of nearest neighbours among the learned features, and a label that
   all around it contradicts is put right: `spreading`.
3. Learn: the network learns the answers that are most certain in each class as if they were labels.
"""

from __future__ import annotations

import copy
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from collegium.coordinator.students.base import LearningProblem, register
from collegium.coordinator.students.networks import NetworkStudent, generator_of, pool_tensor
from collegium.coordinator.students.pretraining import Pretraining, pretrained
from collegium.coordinator.students.spreading import most_certain, spread_labels
from collegium.data.task import ImageInputs
from collegium.errors import ConfigurationError
from collegium.models.augmentation import TEACHER, augment
from collegium.models.devices import mixed_precision
from collegium.models.training import Learner, StepCallback, accuracy, move_average, train
from collegium.models.training_curves import Value
from collegium.settings import Frozen


@register
class Contrastive(Frozen):
    """SimCLR on the pool, label spreading, and training on the answers that are certain. For images."""

    name: ClassVar[str] = "contrastive"

    network: str = "default"
    contrast_steps: int = Field(default=1000, gt=0)
    contrast_batch: int = Field(default=256, gt=1)
    temperature: float = Field(default=0.2, gt=0)
    neighbours: int = Field(default=10, gt=0)
    spread: float = Field(default=0.9, gt=0, lt=1)
    """How far labels flow: the weight of the neighbours' answers against an image's own label."""
    share: float = Field(default=0.92, gt=0, le=1)
    """Fraction of each class, the most certain, whose answers are learned."""
    learn_steps: int = Field(default=1000, gt=0)
    batch: int = Field(default=128, gt=0)
    learning_rate: float = Field(default=3e-3, gt=0)
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)

    @property
    def pretraining(self) -> Pretraining:
        """The first step; whoever chooses queries by pretrained features shares it."""
        return Pretraining(
            network=self.network,
            steps=self.contrast_steps,
            batch=self.contrast_batch,
            temperature=self.temperature,
        )

    def fit(self, problem: LearningProblem) -> NetworkStudent:
        if not isinstance(problem.task.inputs, ImageInputs):
            raise ConfigurationError("student.method 'contrastive' is for images; use 'consistency' for tables")
        total = self.contrast_steps + self.learn_steps
        encoder = pretrained(problem, self.pretraining, lambda done, _: problem.progress(done, total))
        answers = spread_labels(
            encoder.features(problem.pool),
            problem.indices,
            problem.labels,
            len(problem.task.classes),
            neighbours=self.neighbours,
            alpha=self.spread,
        )
        average = self._learn(
            encoder.network,
            answers,
            problem,
            lambda done, _: problem.progress(self.contrast_steps + done, total),
        )
        return NetworkStudent(encoder.architecture, problem.task, average, problem.device)

    def _learn(
        self, network: nn.Module, answers: NDArray[np.float64], problem: LearningProblem, progress: StepCallback
    ) -> nn.Module:
        """Train ``network`` on the certain answers; returns its moving average."""
        pool, draws = pool_tensor(problem), generator_of(problem)
        certain = torch.as_tensor(most_certain(answers, self.share), device=problem.device)
        y = torch.as_tensor(answers.argmax(axis=1), device=problem.device)
        average = copy.deepcopy(network).eval()

        def loss(step: int) -> tuple[Tensor, dict[str, Value]]:
            chosen = certain[torch.randint(len(certain), (self.batch,), generator=draws, device=problem.device)]
            with mixed_precision(problem.device):
                logits = network(augment(pool[chosen], TEACHER, draws))
                of_labels = F.cross_entropy(logits, y[chosen], label_smoothing=self.label_smoothing)
            return of_labels, {"accuracy": accuracy(logits, y[chosen])}

        network.train()
        train(
            loss,
            Learner.one_cycle(network.parameters(), self.learn_steps, self.learning_rate, warm_up=0.1),
            self.learn_steps,
            name="student-learning",
            progress=progress,
            after=lambda step: move_average(average, network, step),
        )
        return average
