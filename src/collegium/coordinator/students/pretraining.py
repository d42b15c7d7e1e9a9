"""What a network learns from the public pool before any label: by contrast (SimCLR, Chen et al. 2020), or its own way.

By contrast, two strong changes of one image should be alike, and unlike all others. An architecture with a function
``pretrain`` learns by that instead. No label is used, so nothing private is. Query choice and students need the same
network: it is kept by what it was made from and made once.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from collegium.coordinator.students import LearningProblem
from collegium.coordinator.students.networks import generator_of, new_network, pool_tensor, student_network
from collegium.data import array_spec
from collegium.data.task import ImageInputs
from collegium.errors import ConfigurationError, StorageError
from collegium.models.arrays import load_arrays, save_arrays
from collegium.models.augmentation import STRONG, WEAK, augment
from collegium.models.devices import mixed_precision
from collegium.models.networks import (
    FittedNetwork,
    encoder_of,
    find_architecture,
    network_inputs,
    put_weights,
    weights_of,
)
from collegium.models.training import Learner, StepCallback, train
from collegium.settings import Frozen
from collegium.whole_files import replacing

_PROCEDURE = "collegium-pretraining-1"
"""Names this way to pretrain: to be raised with any change of what it computes."""
_AT_ONCE = 1024
_VIEWS = 6
_PROJECTED = 64


class Pretraining(Frozen):
    """Settings of the contrast; an architecture that learns in its own way has none but its name."""

    network: str = "default"
    steps: int = Field(default=1000, gt=0)
    batch: int = Field(default=256, gt=1)
    temperature: float = Field(default=0.2, gt=0)
    learning_rate: float = Field(default=4e-3, gt=0)


@dataclass(frozen=True, eq=False)
class Encoder(FittedNetwork):
    """A pretrained network: all of it, the last layer still fresh, for fine-tuning, and its features as they are."""

    def features(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """The mean of what several weak changes of each image look like, shape ``[n, d]``, of images as the task says.

        A mean of unit vectors: neighbours among them agree in class more often than among single looks. Leaves the
        network in evaluation mode.
        """
        encoder, draws, rows = encoder_of(self.network.eval()), torch.Generator().manual_seed(0), []
        with torch.no_grad():
            for start in range(0, len(x), _AT_ONCE):
                images = network_inputs(x[start : start + _AT_ONCE]).to(self.device)
                looks = [augment(images, WEAK, draws) for _ in range(_VIEWS)]
                units = [F.normalize(encoder(look).float().flatten(1), dim=1) for look in looks]
                rows.append(torch.stack(units).mean(dim=0).cpu().numpy())
        return np.concatenate(rows).astype(np.float32)


def pretrained(problem: LearningProblem, settings: Pretraining, progress: StepCallback | None = None) -> Encoder:
    """The network that ``settings`` make of the problem's pool: from its cache where it is there, else made and kept.

    Labels of ``problem`` are not looked at. Every call gives a network of its own.

    Raises
    ------
    ConfigurationError
        For tables, or a pool of one image.
    DataError
        For a network that does not end in a linear layer.
    StorageError
        If the result cannot be kept.
    """
    if not isinstance(problem.task.inputs, ImageInputs):
        raise ConfigurationError("pretraining by contrast is for images: a table's columns serve as they are")
    if len(problem.pool) < 2:
        raise ConfigurationError("pretraining needs a pool of at least two images: add public inputs")
    architecture = student_network(settings.network, problem)
    tell = progress or problem.progress
    kept = None if problem.cache is None else problem.cache / f"pretrained-{_origin(problem, settings)}.safetensors"
    network = new_network(problem, architecture)
    if kept is not None and _restore(network, kept):
        tell(settings.steps, settings.steps)
    else:
        own_way = find_architecture(architecture).pretrain
        if own_way is not None:
            own_way(network, problem.pool, problem.seed)
            tell(settings.steps, settings.steps)
        else:
            _contrast(network, problem, settings, tell)
        if kept is not None:
            with replacing(kept, "keep the pretrained network") as beside:
                kept.parent.mkdir(parents=True, exist_ok=True)
                save_arrays(beside, _PROCEDURE, weights_of(network))
    return Encoder(problem.task, network, problem.device)


def contrast_loss(views: Tensor, temperature: float) -> Tensor:
    """NT-Xent (Chen et al. 2020, equation 1) of ``views``, shape ``[2n, d]``: rows i and i + n show one image."""
    unit = F.normalize(views, dim=1)
    alike = unit @ unit.T / temperature
    alike.fill_diagonal_(-torch.inf)
    n = len(views) // 2
    partner = torch.arange(2 * n, device=views.device).roll(n)
    return F.cross_entropy(alike, partner)


def _contrast(network: nn.Module, problem: LearningProblem, settings: Pretraining, progress: StepCallback) -> None:
    encoder, pool, draws = encoder_of(network), pool_tensor(problem), generator_of(problem)
    last = list(network.children())[-1]
    assert isinstance(last, nn.Linear)
    width = last.in_features
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(problem.seed + 1)
        projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, _PROJECTED))
    projection.to(problem.device)
    size = min(settings.batch, len(pool))

    def loss(step: int) -> Tensor:
        chosen = torch.randperm(len(pool), generator=draws, device=problem.device)[:size]
        views = torch.cat([augment(pool[chosen], STRONG, draws), augment(pool[chosen], STRONG, draws)])
        with mixed_precision(problem.device):
            return contrast_loss(projection(encoder(views)).float(), settings.temperature)

    encoder.train()
    parameters = [*encoder.parameters(), *projection.parameters()]
    learner = Learner.one_cycle(parameters, settings.steps, settings.learning_rate, weight_decay=1e-3)
    train(loss, learner, settings.steps, progress=progress)


def _origin(problem: LearningProblem, settings: Pretraining) -> str:
    """A digest of everything that the network is made from. Devices differ in rounding alone: whose is first counts."""
    made_of = {
        "procedure": _PROCEDURE,
        "torch": str(torch.__version__),
        "pool": array_spec(problem.pool).sha256,
        "task": problem.task.model_dump(mode="json"),
        "settings": settings.model_dump(mode="json"),
        "seed": problem.seed,
    }
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:32]


def _restore(network: nn.Module, kept: Path) -> bool:
    """Take the kept weights over; False where there are none that fit, as after damage: then they are made again."""
    try:
        weights, _ = load_arrays(kept, _PROCEDURE)
        if not all(bool(np.isfinite(values).all()) for values in weights.values()):
            return False
        put_weights(network, weights, kept.name)
    except StorageError:
        return False
    return True
