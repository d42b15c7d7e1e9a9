"""Named networks to be trained: teachers are made of them, and so is a student before it is published.

A network is a name, a task and a few options. What travels and meets records is in whole numbers:
`models.whole_networks`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from collegium.data.task import ImageInputs, Task
from collegium.errors import ConfigurationError, DataError, StorageError
from collegium.extras import installed, load_plugin
from collegium.models.quantising import quantised
from collegium.models.whole_layers import NETWORKS, Layer
from collegium.models.whole_networks import WholeNetwork

_BATCH = 256
_MIN_IMAGE_SIDE = 8
_MAX_WIDTH = 4096

Option = int | float | str | bool


@dataclass(frozen=True)
class Architecture:
    """A way to build a network for a task; ``defaults`` lists every option that it takes."""

    build: Callable[..., nn.Module]
    suits: str
    defaults: dict[str, Option]
    pretrain: Callable[[nn.Module, NDArray[Any], int], None] | None = None
    """How the network learns features from a pool ``[inputs, …]`` without labels, given a seed; by contrast if None."""
    layer: type[Layer] | None = None
    """Its own layer in whole numbers, whose kind is the name of the architecture."""


def _cnn(task: Task, width: int, dropout: float, first: int, pool: Callable[[int], nn.Module], side: int) -> nn.Module:
    """Three convolutions, the ``first`` of so many pixels, and one ``pool`` that leaves ``side`` × ``side`` values."""
    channels, _, _ = image_shape(task)
    return nn.Sequential(
        *_convolution(channels, width, size=first),
        nn.MaxPool2d(2),
        *_convolution(width, 2 * width),
        nn.MaxPool2d(2),
        *_convolution(2 * width, 4 * width),
        pool(side),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(4 * width * side**2, len(task.classes)),
    )


_small_cnn = partial(_cnn, first=3, pool=nn.AdaptiveMaxPool2d, side=1)
_student_cnn = partial(_cnn, first=5, pool=nn.AdaptiveAvgPool2d, side=2)


def _convolution(inputs: int, outputs: int, *, size: int = 3) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


def _linear(task: Task) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(task.inputs.shape), len(task.classes)))


def _mlp(task: Task, hidden: int, dropout: float) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(task.inputs.shape), hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, len(task.classes)),
    )


ARCHITECTURES: dict[str, Architecture] = {
    "linear": Architecture(_linear, "any", {}),
    "mlp": Architecture(_mlp, "any", {"hidden": 128, "dropout": 0.1}),
    "small-cnn": Architecture(_small_cnn, "image", {"width": 16, "dropout": 0.1}),
    "student-cnn": Architecture(_student_cnn, "image", {"width": 24, "dropout": 0.0}),
}


def network_names() -> list[str]:
    """The names of all architectures, those of other installed packages among them, sorted."""
    return sorted({*ARCHITECTURES, *installed(NETWORKS).names})


def find_architecture(name: str) -> Architecture:
    """The architecture of that name, of this package or an entry point of the group ``collegium.networks``.

    ConfigurationError where there is none; the papers' own come with the package collegium-reproduction.
    """
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    if name not in installed(NETWORKS).names:
        raise ConfigurationError(
            f"unknown network {name[:64]!r}: install the package that has it, or use one of "
            f"{', '.join(network_names())}"
        )
    found: Architecture = load_plugin(installed(NETWORKS)[name], f"the network {name!r}")
    return found


def build_network(name: str, task: Task, **options: Option) -> nn.Module:
    """A network with fresh weights from torch's generator: inputs as `network_inputs` gives, outputs logits.

    Parameters
    ----------
    name : str
        ``small-cnn``: three 3 × 3 convolutions with batch normalisation, for a few hundred images on a CPU.
        ``student-cnn``: wider, and it keeps where things are, for a student that sees a whole pool.
        ``linear`` and ``mlp``: for tables.
        Another installed package may bring more: see `find_architecture`.
    task : Task
        Gives the input shape and the number of outputs.
    options : int, float, str or bool
        ``hidden``, ``width``: layer sizes from 1 to 4,096; ``dropout``: from 0 to below 1.

    Raises
    ------
    ConfigurationError
        If the name or an option is unknown, out of range, or does not suit the task.
    """
    architecture = find_architecture(name)
    if architecture.suits == "image" and not isinstance(task.inputs, ImageInputs):
        raise ConfigurationError(f"the network {name} needs images; this task has a table: use mlp or linear")
    return architecture.build(task, **checked_options(name, architecture.defaults, options))


def checked_options(what: str, defaults: dict[str, Option], options: dict[str, Option]) -> dict[str, Option]:
    """Defaults overridden by ``options``; ConfigurationError for an unknown name, another type or a bad value."""
    unknown = sorted(set(options) - set(defaults))
    if unknown:
        raise ConfigurationError(
            f"{what} takes no option {unknown[0][:64]!r}: it takes {', '.join(defaults) or 'none'}"
        )
    merged = defaults | options
    for name, value in merged.items():
        kind = type(defaults[name])
        if not (type(value) is kind or (kind is float and type(value) is int)):
            raise ConfigurationError(f"{what}: option {name} must be of type {kind.__name__}")
        if name == "dropout" and not 0 <= float(value) < 1:
            raise ConfigurationError(f"{what}: option dropout must be at least 0 and below 1")
        if name in ("hidden", "width") and not 1 <= int(value) <= _MAX_WIDTH:
            raise ConfigurationError(f"{what}: option {name} must be from 1 to {_MAX_WIDTH}")
    return merged


def image_shape(task: Task) -> tuple[int, int, int]:
    """Channels, height and width; ConfigurationError for images of less than 8 × 8 pixels."""
    height, width, channels = task.inputs.shape
    if min(height, width) < _MIN_IMAGE_SIDE:
        raise ConfigurationError(f"networks need images of at least 8 × 8 pixels, not {height} × {width}")
    return channels, height, width


def network_inputs(x: NDArray[Any]) -> torch.Tensor:
    """Inputs as a network takes them, float32: images become ``[n, c, h, w]`` in [0, 1], tables stay as they are."""
    return tensor_inputs(torch.from_numpy(np.ascontiguousarray(x)))


def tensor_inputs(x: torch.Tensor) -> torch.Tensor:
    """`network_inputs` of a tensor, on whatever device it lies."""
    return x.permute(0, 3, 1, 2).float().div_(255) if x.dtype == torch.uint8 else x.float()


def weights_of(network: nn.Module) -> dict[str, NDArray[Any]]:
    """What a network has learned, by name, as arrays on the CPU."""
    # Copies, because weights that a module ties are one tensor, which files of arrays do not know.
    return {name: value.detach().cpu().numpy().copy() for name, value in network.state_dict().items()}


def put_weights(network: nn.Module, weights: Mapping[str, NDArray[Any]], origin: str) -> None:
    """Give a network what `weights_of` one like it gave; StorageError where these are others than it has."""
    own = {name: value.cpu().numpy() for name, value in network.state_dict().items()}
    fits = {name: (value.shape, value.dtype) for name, value in own.items()}
    if {name: (value.shape, value.dtype) for name, value in weights.items()} != fits:
        raise StorageError(f"{origin} holds other weights than the network has")
    network.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})


def encoder_of(network: nn.Module) -> nn.Module:
    """Everything before the last layer; its weights are the network's own.

    Raises DataError when the network does not end in a linear layer.
    """
    layers = list(network.children())
    if len(layers) < 2 or not isinstance(layers[-1], nn.Linear):
        raise DataError("features come from a network that ends in a linear layer, with layers before it")
    return nn.Sequential(*layers[:-1])


@dataclass(frozen=True, eq=False)
class FittedNetwork:
    """A torch network of a task while it is trained; `published` gives what labels records and is kept."""

    task: Task
    network: nn.Module
    device: str

    def probabilities(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Class probabilities of public inputs, shape ``[n, classes]``, by floating point."""
        self.network.eval()
        rows = []
        with torch.no_grad():
            for start in range(0, len(x), _BATCH):
                logits = self.network(network_inputs(x[start : start + _BATCH]).to(self.device))
                of_logits = torch.sigmoid if self.task.multilabel else partial(torch.softmax, dim=1)
                rows.append(of_logits(logits.float()).cpu().numpy())
        return np.concatenate(rows).astype(np.float64)

    def published(self, public: NDArray[Any]) -> WholeNetwork:
        """The network in whole numbers, which are learned from public inputs; see `quantised` for errors."""
        return quantised([self.network], self.task, network_inputs(public)).on(self.device)
