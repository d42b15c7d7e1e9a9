"""The ways to choose inputs of the pool as queries, and the key by which the ledger knows a query.

Queries are chosen at random, by the student's doubt, or so that few of them stand for many other inputs.
"""

import hashlib
from collections.abc import Sequence
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


def query_key(one_input: NDArray[Any], study: str | None = None) -> str:
    """The name of an input by its content, so that the same input asked again, from anywhere, is a repeat.

    Each study of a consortium has labels of its own: what one of them asks is no repeat in another.
    """
    header = f"collegium-query-v1 {one_input.dtype.newbyteorder('=').name} {one_input.shape}\n".encode()
    little = np.ascontiguousarray(one_input, dtype=one_input.dtype.newbyteorder("<"))
    content = hashlib.sha256(header + little.tobytes()).hexdigest()[:32]
    return content if study is None else f"{study}:{content}"


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


def representatives(features: NDArray[Any], count: int, asked: IntArray, seed: int) -> IntArray:
    """``count`` positions of the pool: the inputs nearest to the centres of clusters without an input asked before.

    As in Hacohen, Dekel and Weinshall 2022 (TypiClust, section 3): as many clusters as there are inputs asked and to
    ask; of those not covered yet the largest first, so that where a budget ends early, what was asked stands for most.

    Parameters
    ----------
    features : of the pool, ``[inputs, dimensions]``; public.
    asked : positions asked before.

    Raises
    ------
    ConfigurationError
        If too few inputs differ.
    """
    from sklearn.cluster import KMeans

    _check_distinct(features, len(asked) + count)
    values = np.asarray(features, dtype=np.float32)
    number = len(asked) + count
    clusters = KMeans(number, n_init=4 if number <= _FEW_CLUSTERS else 1, random_state=seed)
    few = max(_CLUSTERED_INPUTS, 16 * number)
    some = values if len(values) <= few else values[np.random.default_rng([seed, 0x72]).permutation(len(values))[:few]]
    distances = clusters.fit(some).transform(values)
    labels = distances.argmin(axis=1)
    covered = set(labels[asked].tolist())
    distances[asked] = np.inf
    chosen: list[int] = []
    sizes = np.bincount(labels, minlength=number)
    for cluster in np.argsort(-sizes, kind="stable"):
        if len(chosen) < count and int(cluster) not in covered:
            chosen.append(int(distances[:, cluster].argmin()))
            distances[chosen[-1]] = np.inf
    return np.array(chosen, dtype=np.int64)


def farthest_first(features: NDArray[Any], count: int, asked: IntArray, seed: int) -> IntArray:
    """``count`` positions, each the input farthest from all asked or taken before (Sener and Savarese 2018, Alg. 1).

    The first one is drawn from ``seed`` where nothing was asked before. Raises ConfigurationError if too few differ.
    """
    _check_distinct(features, len(asked) + count)
    values = np.asarray(features, dtype=np.float64)
    chosen = [] if len(asked) else [int(np.random.default_rng([seed, 0x66]).integers(len(values)))]
    nearest = np.full(len(values), np.inf)
    for position in (*asked.tolist(), *chosen):
        nearest = np.minimum(nearest, _apart(values, position))
    while len(chosen) < count:
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, _apart(values, chosen[-1]))
    return np.array(chosen, dtype=np.int64)


def class_balanced(
    features: NDArray[Any], predicted: IntArray, issued: Sequence[int], count: int, asked: IntArray, seed: int
) -> IntArray:
    """``count`` positions so that labels issued and predictions together are as even over the classes as can be.

    Within a class, those that stand for most of its inputs. The class with the fewest goes first each time, so that an
    early end leaves no class behind.

    Parameters
    ----------
    features : of the pool, ``[inputs, dimensions]``.
    predicted : the student's class of every input, ``[inputs]``.
    issued : labels issued so far per class, ``[classes]``.
    """
    open_to_all = np.setdiff1d(np.arange(len(predicted)), asked)
    of_class = [open_to_all[predicted[open_to_all] == label] for label in range(len(issued))]
    totals, left, order = list(issued), [len(members) for members in of_class], list[int]()
    while len(order) < count:
        label = min((label for label in range(len(totals)) if left[label]), key=lambda label: totals[label])
        totals[label], left[label] = totals[label] + 1, left[label] - 1
        order.append(label)
    ranked = {
        label: iter(_within(features, of_class[label], wanted, seed))
        for label, wanted in zip(*np.unique(order, return_counts=True), strict=True)
    }
    return np.array([next(ranked[label]) for label in order], dtype=np.int64)


def _within(features: NDArray[Any], members: IntArray, wanted: int, seed: int) -> list[int]:
    """``wanted`` of ``members``, those that stand for the others first; as they come where too few of them differ."""
    if wanted == len(members) or len(np.unique(features[members], axis=0)) < wanted:
        return [int(position) for position in members[:wanted]]
    nothing = np.empty(0, dtype=np.int64)
    return [int(position) for position in members[representatives(features[members], wanted, nothing, seed)]]


def _check_distinct(features: NDArray[Any], wanted: int) -> None:
    if all(len(np.unique(part, axis=0)) < wanted for part in (features[: 4 * wanted], features)):
        raise ConfigurationError(f"{wanted} queries are wanted, but the pool has fewer distinct inputs: ask fewer")


def _apart(values: NDArray[np.float64], position: int) -> NDArray[np.float64]:
    apart: NDArray[np.float64] = np.square(values - values[position]).sum(axis=1)
    return apart
