"""The ways to choose inputs of the pool as queries, and the key by which the ledger knows a query.

Queries are chosen at random, or so that few of them stand for many other inputs.
"""

import hashlib
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigurationError
from collegium_accounting.units import IntArray


def check_count(count: int, pool_inputs: int) -> None:
    """ConfigurationError when more is asked than there is."""
    if count > pool_inputs:
        raise ConfigurationError(
            f"queries.count is {count}, but the pool has {pool_inputs} inputs; ask fewer or add public inputs"
        )


def choose_queries(pool_inputs: int, count: int, seed: int) -> IntArray:
    """``count`` distinct positions of the pool in an order drawn from ``seed``; more of them only adds at the end."""
    check_count(count, pool_inputs)
    order = np.random.default_rng([seed, 0x71]).permutation(pool_inputs)
    chosen: IntArray = order[:count].astype(np.int64)
    return chosen


def query_key(one_input: NDArray[Any], study: str | None = None) -> str:
    """The name of an input by its content, so that the same input asked again, from anywhere, is a repeat.

    Each study of a consortium has labels of its own: what one of them asks is no repeat in another.
    """
    header, kind = _header(one_input.dtype, one_input.shape)
    little = np.ascontiguousarray(one_input, dtype=kind)
    content = hashlib.sha256(header + little.tobytes()).hexdigest()[:32]
    return content if study is None else f"{study}:{content}"


@lru_cache(maxsize=64)
def _header(kind: np.dtype[Any], shape: tuple[int, ...]) -> tuple[bytes, np.dtype[Any]]:
    """What is hashed before an input, which takes longer to write than to hash, and how its numbers are written."""
    header = f"collegium-query-v1 {kind.newbyteorder('=').name} {shape}\n".encode()
    return header, kind.newbyteorder("<")


def study_of(key: str) -> str | None:
    """The study that `query_key` was given."""
    return key.rpartition(":")[0] or None


def content_of(key: str) -> str:
    """The name of the input alone, which every study's key of it ends with."""
    return key.rpartition(":")[2]


_FEW_CLUSTERS = 256
"""Up to so many, k-means is started four times and the best kept; beyond, one start is as good and takes long."""

_CLUSTERED_INPUTS = 2**15
"""Of a larger pool, the centres of clusters are found among so many inputs at random: its time then grows linearly."""


def representatives(features: NDArray[Any], count: int, seed: int) -> IntArray:
    """``count`` positions of the pool: the inputs nearest to the centres of as many clusters.

    As in Hacohen, Dekel and Weinshall 2022 (TypiClust, section 3): those of the largest clusters come first, so that
    where a budget ends early, what was asked stands for most.

    Parameters
    ----------
    features : of the pool, ``[inputs, dimensions]``; public.

    Raises
    ------
    ConfigurationError
        If too few inputs differ.
    """
    from sklearn.cluster import KMeans

    _check_distinct(features, count)
    values = np.asarray(features, dtype=np.float32)
    clusters = KMeans(count, n_init=4 if count <= _FEW_CLUSTERS else 1, random_state=seed)
    few = max(_CLUSTERED_INPUTS, 16 * count)
    some = values if len(values) <= few else values[np.random.default_rng([seed, 0x72]).permutation(len(values))[:few]]
    distances = clusters.fit(some).transform(values)
    sizes = np.bincount(distances.argmin(axis=1), minlength=count)
    chosen: list[int] = []
    for cluster in np.argsort(-sizes, kind="stable"):
        chosen.append(int(distances[:, cluster].argmin()))
        distances[chosen[-1]] = np.inf
    return np.array(chosen, dtype=np.int64)


def _check_distinct(features: NDArray[Any], wanted: int) -> None:
    if all(len(np.unique(part, axis=0)) < wanted for part in (features[: 4 * wanted], features)):
        raise ConfigurationError(f"{wanted} queries are wanted, but the pool has fewer distinct inputs: ask fewer")
