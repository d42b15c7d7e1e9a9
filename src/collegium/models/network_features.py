"""Features by a named network: what its last layer takes in, as a unit vector in whole numbers; of a pair `OfPair`.

A record's features must not depend on which other records are computed with it, to the last bit: else a record that
comes or goes would change those of others. Sums of floating-point numbers do depend on the size of a block and on a
record's place in it, and weights that somebody chose make whole features of such rounding. So every record goes
through the network alone (`devices.each_alone`), which takes no longer on one core than blocks do. A record whose
features are not finite numbers has features 0: an error would tell that the party holds such a record.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from collegium.data.task import Inputs
from collegium.errors import DataError
from collegium.models.devices import each_alone, resolve_device
from collegium.models.networks import Pair, network_inputs, read_network

ONE = 8192
"""What stands for 1 in a feature."""

SHORTEST = 1e-6
"""The length of a vector that is shorter, as it counts."""
_LEAST = math.log(1e-4)


@lru_cache(maxsize=8)
def width(network: bytes, inputs: Inputs) -> int:
    """How many features a record has; DataError where the network is none or is not for ``inputs``."""
    encoder, made_for = encoder_in(network)
    if made_for != inputs:
        raise DataError("the network for features was made for other inputs: compute it from this task's pool")
    one = np.zeros((1, *inputs.shape), dtype=inputs.dtype)
    return len(_feature_vector(encoder.to("cpu"), one, "cpu"))


def embed(network: bytes, x: NDArray[Any], inputs: Inputs, device: str = "cpu") -> NDArray[np.int16]:
    """Features of ``x``, shape ``[n, width]``; each depends on its own record alone.

    Parameters
    ----------
    device : ``auto``, ``cpu``, ``cuda`` or ``cuda:<number>``.

    Raises DataError where the network is none, is not for ``inputs``, or has weights that are not finite.
    """
    device, columns = resolve_device(device), width(network, inputs)
    encoder = encoder_in(network)[0].to(device)
    return each_alone(lambda record: _feature_vector(encoder, record, device), x, columns).astype(np.int16)


def encoder_of(network: nn.Module) -> nn.Module:
    """Everything before the last layer; its weights are the network's own.

    Raises DataError when the network does not end in a linear layer.
    """
    layers = list(network.children())
    if len(layers) < 2 or not isinstance(layers[-1], nn.Linear):
        raise DataError("features come from a network that ends in a linear layer, with layers before it")
    return nn.Sequential(*layers[:-1])


class OfPair(nn.Module):
    """What the last layers of a pair of networks take in, and half as long by which classes they tell an image.

    The latter are the log-probabilities, at least those of 1/10,000, less their mean over the classes, at length 1.
    """

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self.pair = pair

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[n, features + classes]`` of images ``[n, channels, height, width]``."""
        inside, logarithms = self.pair.passed(x)
        told = logarithms.clamp(min=_LEAST)
        told = F.normalize(told - told.mean(dim=1, keepdim=True))
        return torch.cat([F.normalize(inside), 0.5 * told], dim=1)


def _feature_vector(encoder: nn.Module, record: NDArray[Any], device: str) -> NDArray[np.float64]:
    """Features of one record ``[1, …]``, whole numbers from -ONE to ONE, or NaN, shape ``[width]``."""
    with torch.no_grad():
        raw = encoder(network_inputs(record).double().to(device)).flatten().cpu()
        length = raw.square().sum().sqrt().clamp(min=SHORTEST)
        features: NDArray[np.float64] = (raw / length * ONE + 0.5).floor().numpy()
    return features


@lru_cache(maxsize=2)
def encoder_in(network: bytes) -> tuple[nn.Module, Inputs]:
    """What gives the features of a network in this file, in double precision, and the inputs that it is for."""
    saved = read_network(network, "the network for features")
    read = saved.network.eval()
    return (OfPair(read) if isinstance(read, Pair) else encoder_of(read)).double(), saved.task.inputs
