"""A student that looks at the whole pool before it sees a label.

1. Contrast (SimCLR, Chen et al. 2020), without labels: `pretraining`.
2. Spread: the issued labels flow over a graph of nearest neighbours among the learned features, and a label that
   all around it contradicts is put right. Zhou et al. 2004, "Learning with local and global consistency", section 3,
   with each label's own flow kept apart, so that a label can be held against what all the others say of its input.
3. Learn: the network learns the answers that are most certain in each class as if they were labels.
"""

import copy
from typing import ClassVar

import numpy as np
import scipy.sparse
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn

from collegium.coordinator.students import LearningProblem, register
from collegium.coordinator.students.networks import generator_of, pool_tensor
from collegium.coordinator.students.pretraining import Pretraining, pretrained
from collegium.data.task import ImageInputs
from collegium.errors import ConfigurationError
from collegium.models.augmentation import TEACHER, augment
from collegium.models.devices import mixed_precision
from collegium.models.networks import FittedNetwork
from collegium.models.training import Learner, StepCallback, move_average, train
from collegium.settings import Frozen
from collegium_accounting.units import IntArray

_TOLERANCE = 1e-4
_SURE = 0.8
_UNLIKELY = 0.1


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

    def fit(self, problem: LearningProblem) -> FittedNetwork:
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
        return FittedNetwork(problem.task, average, problem.device)

    def _learn(
        self, network: nn.Module, answers: NDArray[np.float64], problem: LearningProblem, progress: StepCallback
    ) -> nn.Module:
        """Train ``network`` on the certain answers; returns its moving average."""
        pool, draws = pool_tensor(problem), generator_of(problem)
        certain = torch.as_tensor(most_certain(answers, self.share), device=problem.device)
        y = torch.as_tensor(answers.argmax(axis=1), device=problem.device)
        average = copy.deepcopy(network).eval()

        def loss(step: int) -> Tensor:
            chosen = certain[torch.randint(len(certain), (self.batch,), generator=draws, device=problem.device)]
            with mixed_precision(problem.device):
                logits = network(augment(pool[chosen], TEACHER, draws))
                return F.cross_entropy(logits, y[chosen], label_smoothing=self.label_smoothing)

        network.train()
        train(
            loss,
            Learner.one_cycle(network.parameters(), self.learn_steps, self.learning_rate, warm_up=0.1),
            self.learn_steps,
            progress=progress,
            after=lambda step: move_average(average, network, step),
        )
        return average


def spread_labels(
    features: NDArray[np.float32],
    indices: IntArray,
    labels: IntArray,
    classes: int,
    *,
    neighbours: int,
    alpha: float,
) -> NDArray[np.float64]:
    """Class shares of every input, shape ``[inputs, classes]``, rows sum to 1.

    Noise makes some issued labels wrong. One that the flow of all other labels contradicts (one other class has more
    than 0.8 of it, the label's own class less than 0.1) is replaced by that class before the shares are taken, but
    never the only label of its class.
    """
    flow = flows(features, indices, neighbours=neighbours, alpha=alpha)
    return _shares(flow, contradicted(flow, indices, labels, classes), classes)


def flows(features: NDArray[np.float32], indices: IntArray, *, neighbours: int, alpha: float) -> NDArray[np.float32]:
    """What flows from each labelled input to each input, shape ``[inputs, labels]``.

    The solution of (I − αS)·F = Y, with S the symmetrically normalised graph of nearest neighbours and a column of Y
    for each label; by iteration, until a step changes nothing by more than 1e-4 of a label.
    """
    count = len(features)
    graph = NearestNeighbors(n_neighbors=min(neighbours, count - 1)).fit(features).kneighbors_graph(mode="connectivity")
    graph = graph.maximum(graph.T)
    scale = scipy.sparse.diags(1.0 / np.sqrt(np.asarray(graph.sum(axis=1)).ravel()))
    step = (alpha * (scale @ graph @ scale)).tocsr().astype(np.float32)
    given = np.zeros((count, len(indices)), dtype=np.float32)
    given[indices, np.arange(len(indices))] = 1.0
    flow = given
    while True:
        following = step @ flow + given
        if np.abs(following - flow).max(initial=0.0) <= _TOLERANCE:
            return np.asarray(following)
        flow = following


def contradicted(flow: NDArray[np.float32], indices: IntArray, labels: IntArray, classes: int) -> IntArray:
    """``labels`` with those replaced that all the others contradict; the only label of a class is believed."""
    others = flow[indices].astype(np.float64)
    np.fill_diagonal(others, 0.0)
    said = _shares(others, labels, classes)
    rows = np.arange(len(labels))
    alone = np.bincount(labels, minlength=classes)[labels] == 1
    wrong = (said.max(axis=1) > _SURE) & (said[rows, labels] < _UNLIKELY) & ~alone
    return np.where(wrong, said.argmax(axis=1), labels)


def most_certain(answers: NDArray[np.float64], share: float) -> IntArray:
    """Positions of the ``share`` of each class whose answers are most certain, by the entropy of their shares.

    An answer that leaves all classes alike is never among them.
    """
    entropy = -(answers * np.log(np.maximum(answers, 1e-12))).sum(axis=1)
    undecided = entropy > np.log(answers.shape[1]) - 1e-6
    chosen = []
    for label in range(answers.shape[1]):
        of_class = np.flatnonzero((answers.argmax(axis=1) == label) & ~undecided)
        kept = int(np.ceil(share * len(of_class)))
        chosen.append(of_class[np.argsort(entropy[of_class], kind="stable")[:kept]])
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def _shares(flow: NDArray[np.float32] | NDArray[np.float64], labels: IntArray, classes: int) -> NDArray[np.float64]:
    """The flow of each class as a share of all flow, shape ``[inputs, classes]``; alike where nothing flows."""
    summed = flow.astype(np.float64) @ np.eye(classes)[labels]
    total = summed.sum(axis=1, keepdims=True)
    return np.where(total > 1e-12, summed / np.maximum(total, 1e-12), 1.0 / classes)
