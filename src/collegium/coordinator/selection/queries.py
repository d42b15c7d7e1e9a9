"""Which inputs of the pool are asked by chance or by the student's doubt, and the key by which the ledger knows one."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigurationError
from collegium.privacy.units import IntArray


def check_count(count: int, pool_inputs: int) -> None:
    """ConfigurationError when more is asked than there is."""
    if count > pool_inputs:
        raise ConfigurationError(
            f"queries.count is {count}, but the pool has {pool_inputs} inputs; ask fewer or add public inputs"
        )


def choose_queries(pool_inputs: int, count: int, seed: int) -> IntArray:
    """``count`` distinct positions of the pool in an order drawn from ``seed``; more of them only adds at the end."""
    check_count(count, pool_inputs)
    return random_queries(pool_inputs, count, np.empty(0, dtype=np.int64), seed)


def random_queries(pool_inputs: int, count: int, asked: IntArray, seed: int) -> IntArray:
    """``count`` positions of the pool that are not among ``asked``, in an order drawn from ``seed``.

    More of them only adds at the end, in one round or over several.
    """
    order = np.random.default_rng([seed, 0x71]).permutation(pool_inputs)
    chosen: IntArray = order[~np.isin(order, asked)][:count].astype(np.int64)
    return chosen


def least_confident(probabilities: NDArray[np.float64], count: int, asked: IntArray) -> IntArray:
    """The ``count`` positions, not among ``asked``, whose likeliest class the student finds least likely.

    The least sure one first. Papernot et al. 2017, Appendix B.2.

    Parameters
    ----------
    probabilities : the student's, of the whole pool, ``[inputs, classes]``.
    """
    sureness = probabilities.max(axis=1)
    sureness[asked] = np.inf
    return np.argsort(sureness, kind="stable")[:count].astype(np.int64)


def sure_answers(probabilities: NDArray[np.float64], confidence: float) -> IntArray:
    """The likeliest class of each row of ``[inputs, classes]`` where it is at least ``confidence``, -1 elsewhere."""
    best = probabilities.argmax(axis=1)
    return np.where(probabilities.max(axis=1) >= confidence, best, -1).astype(np.int64)


def query_key(one_input: NDArray[Any]) -> str:
    """The name of an input by its content, so that the same input asked again, from anywhere, is a repeat."""
    header = f"collegium-query-v1 {one_input.dtype.newbyteorder('=').name} {one_input.shape}\n".encode()
    little = np.ascontiguousarray(one_input, dtype=one_input.dtype.newbyteorder("<"))
    return hashlib.sha256(header + little.tobytes()).hexdigest()[:32]
