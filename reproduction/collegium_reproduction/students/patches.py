"""A student that is not trained by steps: least squares on codes of patches, which the pool alone has taught.

For images with colours and textures where there is no GPU: it takes seconds, and much noise in thousands of labels
averages out. With few labels, or on images of a few strokes, other students learn more.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from sklearn.linear_model import RidgeCV
from torch import nn

from collegium.coordinator.students import LearningProblem, register
from collegium.coordinator.students.pretraining import Pretraining
from collegium.data.task import ImageInputs
from collegium.errors import ConfigurationError
from collegium.models.networks import FittedNetwork, Option, build_network, encoder_of, network_inputs
from collegium.settings import Frozen
from collegium_reproduction.students.patch_learning import ARCHITECTURE, learn_patches

_PENALTIES = 10.0 ** np.arange(-3.0, 3.5, 0.5)
"""Tried, each times the number of labels and the mean variance of a feature."""
_AT_ONCE = 1024


@register
class Patches(Frozen):
    """Ridge regression of the classes' indicators; the penalty by leaving out one label at a time, in closed form."""

    name: ClassVar[str] = "patches"

    filters: int = Field(default=400, gt=0, le=4096)
    dimensions: int = Field(default=1024, gt=0, le=4096)
    """Principal components of the codes that are regressed on."""

    @property
    def pretraining(self) -> Pretraining:
        """Whoever chooses queries, or finds records, by features learned without labels uses patches too."""
        return Pretraining(network=ARCHITECTURE)

    def fit(self, problem: LearningProblem) -> FittedNetwork:
        if not isinstance(problem.task.inputs, ImageInputs):
            raise ConfigurationError("student.method 'patches' is for images; use 'random-forest' for tables")
        options: dict[str, Option] = {"width": self.filters, "hidden": self.dimensions}
        network = build_network(ARCHITECTURE, problem.task, **options).eval().to(problem.device)
        learn_patches(network, problem.pool, problem.seed, whiten=False)
        problem.progress(1, 2)
        weight, bias = self._regressed(network, problem)
        last = list(network.children())[-1]
        assert isinstance(last, nn.Linear)
        with torch.no_grad():
            last.weight.copy_(weight)
            last.bias.copy_(bias)
        problem.progress(2, 2)
        return FittedNetwork(problem.task, network, problem.device)

    def _regressed(self, network: nn.Module, problem: LearningProblem) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights ``[classes, dimensions]`` and offsets ``[classes]`` of the last layer."""
        encoder, images = encoder_of(network), network_inputs(problem.pool[problem.indices])
        with torch.no_grad():
            parts = [encoder(part.to(problem.device)).cpu() for part in torch.split(images, _AT_ONCE)]
        features = torch.cat(parts).numpy()
        wanted = np.eye(len(problem.task.classes), dtype=np.float32)[problem.labels]
        scale = len(features) * float(features.var(axis=0).mean()) + 1e-9
        head = RidgeCV(alphas=_PENALTIES * scale).fit(features, wanted)
        return torch.as_tensor(head.coef_), torch.as_tensor(head.intercept_)
