"""Generators: they make inputs of a task out of random numbers, for `Gan`, and are thrown away afterwards."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from collegium.coordinator.students import LearningProblem
from collegium.data.task import ImageInputs

_HIDDEN = 500
_CHANNELS = 128
_FLAT_VALUES = 1024


class FlatGenerator(nn.Module):
    """Two hidden layers of softplus units with batch normalisation (Salimans et al. 2016, for MNIST)."""

    def __init__(self, latent: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self._shape = shape
        self.layers = nn.Sequential(
            nn.Linear(latent, _HIDDEN, bias=False),
            nn.BatchNorm1d(_HIDDEN),
            nn.Softplus(),
            nn.Linear(_HIDDEN, _HIDDEN, bias=False),
            nn.BatchNorm1d(_HIDDEN),
            nn.Softplus(),
            weight_norm(nn.Linear(_HIDDEN, math.prod(shape))),
            nn.Sigmoid(),
        )

    def forward(self, z: Tensor) -> Tensor:
        made: Tensor = self.layers(z)
        return made.view(-1, *self._shape)


class ImageGenerator(nn.Module):
    """Transposed convolutions with batch normalisation from a quarter of the size, cropped to the task's."""

    def __init__(self, latent: int, shape: tuple[int, int, int]) -> None:
        super().__init__()
        channels, self._height, self._width = shape
        small = math.ceil(self._height / 4), math.ceil(self._width / 4)
        self.layers = nn.Sequential(
            nn.Linear(latent, _CHANNELS * small[0] * small[1], bias=False),
            nn.BatchNorm1d(_CHANNELS * small[0] * small[1]),
            nn.ReLU(),
            nn.Unflatten(1, (_CHANNELS, *small)),
            nn.ConvTranspose2d(_CHANNELS, _CHANNELS // 2, 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(_CHANNELS // 2),
            nn.ReLU(),
            weight_norm(nn.ConvTranspose2d(_CHANNELS // 2, channels, 4, stride=2, padding=1), dim=1),
            nn.Sigmoid(),
        )

    def forward(self, z: Tensor) -> Tensor:
        made: Tensor = self.layers(z)
        return made[:, :, : self._height, : self._width]


def is_flat(problem: LearningProblem) -> bool:
    """Whether inputs go through fully connected layers, as the paper has it for MNIST: tables and small images."""
    inputs = problem.task.inputs
    return not isinstance(inputs, ImageInputs) or math.prod(inputs.shape) <= _FLAT_VALUES


def new_generator(problem: LearningProblem, latent: int) -> nn.Module:
    """A fresh generator of inputs as the networks take them, in [0, 1], from ``latent`` uniform numbers."""
    inputs = problem.task.inputs
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(problem.seed + 1)
        if isinstance(inputs, ImageInputs):
            shape = (inputs.channels, inputs.height, inputs.width)
            made = FlatGenerator(latent, shape) if is_flat(problem) else ImageGenerator(latent, shape)
        else:
            made = FlatGenerator(latent, inputs.shape)
    return made.to(problem.device)
