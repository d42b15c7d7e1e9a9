"""Which public inputs to ask when few labels must do: inputs that stand for many others, far from each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.queries import choose_queries
from collegium.protocol.errors import ConfigurationError
from collegium.protocol.features import distances_squared

IntArray = NDArray[np.int64]


def representatives(features: NDArray[np.int16], count: int, choice: str, seed: int) -> IntArray:
    """``count`` distinct positions of the pool.

    Parameters
    ----------
    features : of the pool, ``[inputs, dimensions]``; public.
    choice : ``k-means`` takes the inputs nearest to the cluster centres, ``farthest-first`` goes each time to the
        input farthest from all taken before, ``random`` draws.

    Raises
    ------
    ConfigurationError
        If the pool has fewer inputs, or too few distinct ones.
    """
    if choice == "random" or count > len(features):
        return choose_queries(len(features), count, seed)
    if len(np.unique(features, axis=0)) < count:
        raise ConfigurationError(f"queries.count is {count}, but the pool has fewer distinct inputs: ask fewer")
    return _cluster_centres(features, count, seed) if choice == "k-means" else _farthest_first(features, count, seed)


def _cluster_centres(features: NDArray[np.int16], count: int, seed: int) -> IntArray:
    from sklearn.cluster import KMeans

    values = features.astype(np.float32)
    clusters = KMeans(count, n_init=4, random_state=seed).fit(values)
    distances = clusters.transform(values)
    taken: list[int] = []
    # Large clusters first: where a budget ends a run early, what was asked stands for most of the pool.
    sizes = np.bincount(clusters.labels_, minlength=count)
    for cluster in np.argsort(-sizes, kind="stable"):
        nearest = np.argsort(distances[:, cluster], kind="stable")
        taken.append(int(next(position for position in nearest if position not in taken)))
    return np.array(taken, dtype=np.int64)


def _farthest_first(features: NDArray[np.int16], count: int, seed: int) -> IntArray:
    taken = [int(np.random.default_rng([seed, 0x66]).integers(len(features)))]
    nearest = distances_squared(features, features[taken])[:, 0]
    while len(taken) < count:
        taken.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, distances_squared(features, features[taken[-1:]])[:, 0])
    return np.array(taken, dtype=np.int64)
