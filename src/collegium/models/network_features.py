"""Features by a named network in whole numbers: what its last layer takes in, as a vector of length `ONE`.

A record's features must not depend on which other records are computed with it, to the last bit: else a record that
comes or goes would change those of others. See `models.whole_networks` for why they do not.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.task import Inputs
from collegium.errors import DataError
from collegium.models.devices import resolve_device
from collegium.models.whole_layers import ONE as ONE
from collegium.models.whole_networks import WholeNetwork, read_whole_network


def width(network: bytes, inputs: Inputs) -> int:
    """How many features a record has; DataError where the network is none or is not for ``inputs``."""
    return network_for(network, inputs, "cpu").dimensions


def embed(network: bytes, x: NDArray[Any], inputs: Inputs, device: str = "cpu") -> NDArray[np.int16]:
    """Features of ``x``, shape ``[n, width]``; each depends on its own record alone.

    Parameters
    ----------
    device : ``auto``, ``cpu``, ``cuda`` or ``cuda:<number>``.

    Raises DataError where the network is none or is not for ``inputs``.
    """
    return network_for(network, inputs, resolve_device(device)).features(x)


def network_for(network: bytes, inputs: Inputs, device: str) -> WholeNetwork:
    """The network in this file, which is for ``inputs``; the errors of `width`."""
    found = _read(network, device)
    if found.task.inputs != inputs:
        raise DataError("the network for features was made for other inputs: compute it from this task's pool")
    return found


@lru_cache(maxsize=4)
def _read(network: bytes, device: str) -> WholeNetwork:
    return read_whole_network(network, "the network for features").on(device)
