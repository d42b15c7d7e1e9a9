"""Features by a named network: what its last layer takes in, as a unit vector in whole numbers.

A record's features must not depend on which other records share its block, to the last bit: a record that comes or
goes would otherwise change others. Floating-point sums do depend on a block's size and on a record's place in it.
So blocks are computed in double precision, which places a value within far less than `GUARD` of what the record
gives alone, and a record with a value that close to where rounding turns is computed again, alone: every record's
features are those that it gives alone.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from collegium.data.task import Inputs
from collegium.errors import DataError
from collegium.models.devices import resolve_device
from collegium.models.networks import network_inputs, read_network

ONE = 8192
"""What stands for 1 in a feature."""

GUARD = 1e-6
"""Of a unit: values this close to a turn of the rounding are computed alone. Double precision errs by far less."""

_AT_ONCE = 256
_SHORTEST = 1e-6


def width(network: bytes, inputs: Inputs) -> int:
    """How many features a record has; DataError where the network is none or is not for ``inputs``."""
    return _width(network, inputs)


def embed(network: bytes, x: NDArray[Any], inputs: Inputs, device: str = "cpu") -> NDArray[np.int16]:
    """Features of ``x``, shape ``[n, width]``; each depends on its own record alone.

    Parameters
    ----------
    device : ``auto``, ``cpu``, ``cuda`` or ``cuda:<number>``.

    Raises DataError where the network is none, is not for ``inputs``, or gives numbers that are not finite.
    """
    device = resolve_device(device)
    kept = np.empty((len(x), width(network, inputs)), dtype=np.int16)
    encoder = _encoder(network)[0].to(device)
    unsure: list[int] = []
    for start in range(0, len(x), _AT_ONCE):
        values = _units(encoder, x[start : start + _AT_ONCE], device)
        kept[start : start + len(values)] = np.floor(values)
        unsure += (start + np.flatnonzero((np.abs(values - np.rint(values)) < GUARD).any(axis=1))).tolist()
    alone = encoder.to("cpu")
    for row in unsure:
        kept[row] = np.floor(_units(alone, x[row : row + 1], "cpu")[0])
    return kept


def encoder_of(network: nn.Module) -> nn.Module:
    """Everything before the last layer; its weights are the network's own.

    Raises DataError when the network does not end in a linear layer.
    """
    layers = list(network.children())
    if len(layers) < 2 or not isinstance(layers[-1], nn.Linear):
        raise DataError("features come from a network that ends in a linear layer, with layers before it")
    return nn.Sequential(*layers[:-1])


def _units(encoder: nn.Module, x: NDArray[Any], device: str) -> NDArray[np.float64]:
    with torch.no_grad():
        raw = encoder(network_inputs(x).double().to(device)).flatten(1).cpu().numpy()
    if not np.isfinite(raw).all():
        raise DataError("the network for features gives numbers that are infinite or NaN: train it again")
    length = np.sqrt(np.square(raw).sum(axis=1, keepdims=True))
    units: NDArray[np.float64] = raw / np.maximum(length, _SHORTEST) * ONE + 0.5
    return units


@lru_cache(maxsize=2)
def _encoder(network: bytes) -> tuple[nn.Module, Inputs]:
    saved = read_network(network, "the network for features")
    return encoder_of(saved.network.eval()).double(), saved.task.inputs


@lru_cache(maxsize=8)
def _width(network: bytes, inputs: Inputs) -> int:
    encoder, made_for = _encoder(network)
    if made_for != inputs:
        raise DataError("the network for features was made for other inputs: compute it from this task's pool")
    one = np.zeros((1, *inputs.shape), dtype=inputs.dtype)
    return int(_units(encoder, one, "cpu").shape[1])
