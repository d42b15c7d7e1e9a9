"""A student that looks at the whole pool before it sees a label.

1. Contrast (SimCLR, Chen et al. 2020), without labels: `pretraining`.
2. Spread (Zhou et al. 2004): the issued labels flow over a graph of nearest neighbours among the learned
   features, so that every image of the pool gets an answer and a confidence.
3. Fine-tune: the network learns these answers, then goes on as `Consistency` does.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn

from collegium.coordinator.students.base import NetworkStudent, Problem, Progress, pool_tensor, register
from collegium.coordinator.students.consistency import Consistency
from collegium.coordinator.students.pretraining import Pretraining, pretrained
from collegium.protocol.augmentation import STRONG, augment
from collegium.protocol.devices import mixed_precision
from collegium.protocol.errors import ConfigurationError
from collegium.protocol.task import Frozen, ImageInputs


@register
class Contrastive(Frozen):
    """SimCLR on the pool, label spreading, then consistency training from there. For images."""

    name: ClassVar[str] = "contrastive"

    network: str = "default"
    contrast_steps: int = Field(default=1000, gt=0)
    contrast_batch: int = Field(default=256, gt=1)
    temperature: float = Field(default=0.2, gt=0)
    neighbours: int = Field(default=10, gt=0)
    spread: float = Field(default=0.99, gt=0, lt=1)
    """How far labels flow: the weight of the neighbours' answers against an image's own label."""
    learn_steps: int = Field(default=300, gt=0)
    batch: int = Field(default=128, gt=0)
    learning_rate: float = Field(default=4e-3, gt=0)
    consistency_steps: int = Field(default=600, gt=0)

    @property
    def pretraining(self) -> Pretraining:
        """The first step; whoever chooses queries by pretrained features shares it."""
        return Pretraining(
            network=self.network,
            steps=self.contrast_steps,
            batch=self.contrast_batch,
            temperature=self.temperature,
            learning_rate=self.learning_rate,
        )

    def fit(self, problem: Problem) -> NetworkStudent:
        if not isinstance(problem.task.inputs, ImageInputs):
            raise ConfigurationError("student.method 'contrastive' is for images; use 'consistency' for tables")
        pool = pool_tensor(problem)
        total = self.contrast_steps + self.learn_steps + self.consistency_steps
        encoder = pretrained(problem, self.pretraining, lambda done, _: problem.progress(done, total))
        network = encoder.network
        answers = spread_labels(
            encoder.features(problem.pool),
            problem.indices,
            problem.labels,
            len(problem.task.classes),
            neighbours=self.neighbours,
            alpha=self.spread,
        )
        self._learn(
            network, pool, answers, problem, lambda done, _: problem.progress(self.contrast_steps + done, total)
        )
        average = Consistency(steps=self.consistency_steps).improve(
            problem, network, lambda done, _: problem.progress(self.contrast_steps + self.learn_steps + done, total)
        )
        return NetworkStudent(encoder.architecture, problem.task, average, problem.device)

    def _learn(
        self, network: nn.Module, pool: Tensor, answers: NDArray[np.float64], problem: Problem, progress: Progress
    ) -> None:
        target = torch.as_tensor(answers, dtype=pool.dtype, device=problem.device)
        weight = certainty(target)
        generator = problem.generator()
        optimiser = torch.optim.AdamW(network.parameters(), lr=self.learning_rate / 2, weight_decay=0.02, fused=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, self.learning_rate / 2, total_steps=self.learn_steps)
        network.train()
        for step in range(self.learn_steps):
            chosen = torch.randint(len(pool), (self.batch,), generator=generator, device=problem.device)
            with mixed_precision(problem.device):
                each = F.cross_entropy(
                    network(augment(pool[chosen], STRONG, generator)), target[chosen], reduction="none"
                )
            loss = (each * weight[chosen]).sum() / weight[chosen].sum().clamp_min(1e-6)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
            progress(step + 1, self.learn_steps)


def spread_labels(
    features: NDArray[np.float32],
    indices: NDArray[np.int64],
    labels: NDArray[np.int64],
    classes: int,
    *,
    neighbours: int,
    alpha: float,
) -> NDArray[np.float64]:
    """Class shares of every input, shape ``[inputs, classes]``, rows sum to 1 (Zhou et al. 2004, section 3).

    Solves (I − αS)·F = Y with S the symmetrically normalised graph of nearest neighbours.
    """
    count = len(features)
    graph = NearestNeighbors(n_neighbors=min(neighbours, count - 1)).fit(features).kneighbors_graph(mode="connectivity")
    graph = graph.maximum(graph.T)
    scale = scipy.sparse.diags(1.0 / np.sqrt(np.asarray(graph.sum(axis=1)).ravel()))
    system: Any = scipy.sparse.identity(count) - alpha * (scale @ graph @ scale)
    given = np.zeros((count, classes))
    np.add.at(given, (indices, labels), 1.0)
    flow = np.column_stack([scipy.sparse.linalg.cg(system, given[:, label], rtol=1e-6)[0] for label in range(classes)])
    flow = np.maximum(flow, 0.0)
    # A class with many labels floods the graph: shares are taken class by class first.
    flow /= np.maximum(flow.sum(axis=0, keepdims=True), 1e-12) / np.maximum(given.sum(axis=0, keepdims=True), 1e-12)
    total = flow.sum(axis=1, keepdims=True)
    return np.where(total > 1e-12, flow / np.maximum(total, 1e-12), 1.0 / classes)


def certainty(answers: Tensor) -> Tensor:
    """1 minus the normalised entropy of each row of class shares."""
    entropy = -(answers * answers.clamp_min(1e-12).log()).sum(dim=1)
    return torch.sub(1.0, entropy, alpha=1.0 / math.log(answers.shape[1]))
