"""Which inputs of the pool are asked, and the key by which the ledger knows an input for good."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.protocol.errors import ConfigurationError


def choose_queries(pool_inputs: int, count: int, seed: int) -> NDArray[np.int64]:
    """``count`` distinct positions of the pool in an order drawn from ``seed``; more of them only adds at the end.

    The choice looks at nothing private, so it costs nothing.
    """
    if count > pool_inputs:
        raise ConfigurationError(
            f"queries.count is {count}, but the pool has {pool_inputs} inputs; ask fewer or add public inputs"
        )
    return np.random.default_rng([seed, 0x71]).permutation(pool_inputs)[:count].astype(np.int64)


def query_key(one_input: NDArray[Any]) -> str:
    """The name of an input by its content, so that the same input asked again, from anywhere, is a repeat."""
    header = f"collegium-query-v1 {one_input.dtype.newbyteorder('=').name} {one_input.shape}\n".encode()
    little = np.ascontiguousarray(one_input, dtype=one_input.dtype.newbyteorder("<"))
    return hashlib.sha256(header + little.tobytes()).hexdigest()[:32]
