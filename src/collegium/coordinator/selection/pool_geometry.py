"""Features of the public pool, the projection that it gives, and radii around its inputs.

Nothing here may look at anything but public data: the privacy of neighbours rests on it
(docs/research/individual-neighbours.md).
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.task import Inputs
from collegium.errors import ConfigurationError
from collegium.models.features import PROJECTION_ONE, Features, distances_squared, extract

_DISTANCES_AT_ONCE = 2**22


def fit_features(
    name: str, kept: int | None, pool: NDArray[Any], inputs: Inputs, network: bytes | None = None
) -> Features:
    """The extractor, followed by the ``kept`` principal components of the pool; None keeps the features as they are.

    Parameters
    ----------
    network : of ``network``: the file of a network in whole numbers, trained on public data or released labels.

    Raises ConfigurationError when fewer than ``kept`` components exist; DataError when the extractor does not suit.
    """
    scaling = {"standard": standard_scaling, "ranks": rank_knots}.get(name, lambda pool: None)(pool)
    plain = Features(name, scaling=scaling, network=network)
    if kept is None:
        return plain
    return replace(plain, projection=principal_components(extract(plain, pool, inputs), kept))


def standard_scaling(pool: NDArray[Any]) -> NDArray[np.float32]:
    """Mean and 1/deviation of each of the pool's columns, ``[2, columns]``; a constant column counts nothing."""
    columns = pool.reshape(len(pool), -1).astype(np.float64)
    deviation = columns.std(axis=0)
    factor = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    return np.stack([columns.mean(axis=0), factor]).astype(np.float32)


_KNOTS = 64


def rank_knots(pool: NDArray[Any]) -> NDArray[np.float32]:
    """Quantiles of each of the pool's columns, ``[64, columns]``, for the features ``ranks``.

    A column of at most two values has its knots between them, so that these are ranked 0 and 1.
    """
    columns = pool.reshape(len(pool), -1).astype(np.float32)
    knots = np.quantile(columns, (np.arange(_KNOTS) + 0.5) / _KNOTS, axis=0, method="inverted_cdf")
    for number, values in enumerate(columns.T):
        distinct = np.unique(values)
        if len(distinct) <= 2:
            knots[:, number] = (distinct[0] + (distinct[1] if len(distinct) == 2 else distinct[0] + 1.0)) / 2.0
    return np.asarray(knots, dtype=np.float32)


def principal_components(values: NDArray[np.int16], kept: int) -> NDArray[np.float32]:
    """The first ``kept`` axes of ``values`` ``[n, d]``, as a projection ``[d, kept]`` in whole numbers."""
    most = min(values.shape[1], len(values) - 1)
    if kept > most:
        raise ConfigurationError(
            f"neighbours.dimensions is {kept}, but the pool's features have at most {most} components: set fewer"
        )
    projection: NDArray[np.float32] = np.rint(principal_axes(values, kept) * PROJECTION_ONE).astype(np.float32)
    return projection


def principal_axes(values: NDArray[Any], kept: int) -> NDArray[np.float64]:
    """The first ``kept`` axes of ``values`` ``[n, d]``, of length 1 each, ``[d, kept]``."""
    centred = values.astype(np.float64)
    centred -= centred.mean(axis=0)
    if centred.shape[1] > len(centred):  # the smaller of the two products has the same axes
        _, sides = np.linalg.eigh(centred @ centred.T)
        chosen = centred.T @ sides[:, ::-1][:, :kept]
        chosen /= np.maximum(np.linalg.norm(chosen, axis=0), 1e-300)
    else:
        chosen = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :kept]
    # An axis has two directions: one is fixed, so that the same pool names the same projection.
    signs = np.sign(chosen[np.abs(chosen).argmax(axis=0), np.arange(kept)])
    return np.asarray(chosen * np.where(signs == 0.0, 1.0, signs))


def public_radii_squared(features: NDArray[np.int16], queries: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """Squared radii within which the ``share`` of the pool nearest to each query lies, shape ``[queries]``.

    Parameters
    ----------
    features : of the whole pool, ``[inputs, dimensions]``.
    queries : positions in the pool; a query is no neighbour of its own.
    """
    rank = min(max(1, math.ceil(share * (len(features) - 1))), len(features) - 1)
    radii = np.empty(len(queries), dtype=np.int64)
    for row, distances in enumerate(distances_of_pool(features, queries)):
        radii[row] = np.partition(distances, rank)[rank]
    return radii


def distances_of_pool(features: NDArray[np.int16], queries: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Squared distances of the whole pool from each of ``queries`` in turn, ``[inputs]``."""
    at_once = max(1, min(64, _DISTANCES_AT_ONCE // len(features)))
    for start in range(0, len(queries), at_once):
        yield from np.ascontiguousarray(distances_squared(features, features[queries[start : start + at_once]]).T)
