"""The networks of the papers, and the teachers that are made of them."""

from __future__ import annotations

import math

from torch import nn

from collegium.data.task import Task
from collegium.models.networks import Architecture, image_shape
from collegium.parties.teachers.networks import NetworkTeacher
from collegium.parties.teachers.training import Recipe


def _paper_cnn(task: Task, width: int, hidden: int) -> nn.Module:
    return nn.Sequential(*_paper_layers(task, width, hidden), nn.Linear(hidden, len(task.classes)))


def _paper_cnn_svhn(task: Task, width: int, hidden: int) -> nn.Module:
    added = max(1, hidden // 2)
    return nn.Sequential(
        *_paper_layers(task, width, hidden),
        nn.Linear(hidden, added),
        nn.ReLU(),
        nn.Linear(added, added),
        nn.ReLU(),
        nn.Linear(added, len(task.classes)),
    )


def _paper_layers(task: Task, filters: int, hidden: int) -> tuple[nn.Module, ...]:
    """Everything of PATE's network below its output."""
    channels, height, width = image_shape(task)
    pooled = math.ceil(math.ceil(height / 2) / 2) * math.ceil(math.ceil(width / 2) / 2)
    return (
        nn.Conv2d(channels, filters, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
        nn.Conv2d(filters, 2 * filters, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
        nn.Flatten(),
        nn.Linear(2 * filters * pooled, hidden),
        nn.ReLU(),
    )


def _private_knn_cnn(task: Task, width: int, hidden: int) -> nn.Module:
    channels, height, pixels_wide = image_shape(task)
    halved = math.ceil(math.ceil(height / 2) / 2) * math.ceil(math.ceil(pixels_wide / 2) / 2)
    convolutions: list[nn.Module] = []
    before = channels
    # (filters, side of the kernel, stride); the table names no pooling: the third and the sixth halve the image.
    for filters, side, stride in (
        *((width, 3, 1), (width, 3, 1), (width, 3, 2)),
        *((2 * width, 3, 1), (2 * width, 3, 1), (2 * width, 3, 2)),
        (2 * width, 5, 1),
    ):
        convolutions += [nn.Conv2d(before, filters, side, stride=stride, padding=side // 2), nn.ReLU()]
        before = filters
    network = nn.Sequential(
        *convolutions,
        nn.Flatten(),
        nn.Linear(2 * width * halved, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, len(task.classes)),
    )
    # Nine layers of rectified units without normalisation learn nothing from torch's own initial weights.
    for layer in network:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
    return network


PAPER_CNN = Architecture(_paper_cnn, "image", {"width": 64, "hidden": 384})
"""PATE's network for MNIST (Papernot et al. 2017, section 4), for any image size.

Two convolutions with max-pooling, one fully connected layer of rectified units, and the softmax layer.
"""

PAPER_CNN_SVHN = Architecture(_paper_cnn_svhn, "image", {"width": 64, "hidden": 384})
"""The same with two more hidden layers, as the paper has it for SVHN.

Their size, half of the first one's, is ours: the paper does not say it.
"""

PRIVATE_KNN_CNN = Architecture(_private_knn_cnn, "image", {"width": 96, "hidden": 192})
"""Seven convolutions and two fully connected layers (Zhu et al. 2020, Table 5)."""


class PaperCnnTeacher(NetworkTeacher):
    """PATE's network as the paper trains it: no augmentation."""

    version = "2"
    architecture = "paper-cnn"
    recipe = Recipe(steps=100, batch=32, learning_rate=0.001, weight_decay=0.0, label_smoothing=0.0, augment=False)


class PaperCnnSvhnTeacher(NetworkTeacher):
    """PATE's network for SVHN, for the two thousand records of one of 250 teachers."""

    architecture = "paper-cnn-svhn"
    recipe = Recipe(steps=600, batch=64, learning_rate=0.001, weight_decay=0.0, label_smoothing=0.0, augment=False)


class PrivateKnnCnnTeacher(NetworkTeacher):
    """The seven convolutions of Private-kNN's appendix."""

    architecture = "private-knn-cnn"
    recipe = Recipe(steps=600, batch=64, learning_rate=0.001, weight_decay=0.0, label_smoothing=0.0, augment=False)
