"""What is chosen from the public pool alone: the kernel map of class sums, and the cells of the pool's cover.

The map has features, landmarks and a bandwidth. By the cells parties say how well the pool covers their records, and
of the pool's own inputs it is counted how many lie in each. Landmarks are drawn at random and the other inputs are
counted like records: where records and pool come from one distribution, both are counted in cells that depend on
neither.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.selection.pool_geometry import fit_features, principal_axes
from collegium.coordinator.settings.run_config import SumsConfig
from collegium.data.task import ImageInputs, Inputs, TableInputs
from collegium.errors import ConfigurationError
from collegium.limits import MAX_PROJECTION_ENTRIES, MAX_SUM_LENGTH
from collegium.models.coverage import CoverageSpec
from collegium.models.features import PROJECTION_ONE, Features, dimensions, distances_squared, extract, pyramid_parts
from collegium.models.kernels import RIDGES, KernelSpec
from collegium_accounting.units import IntArray

_SOME = 512
_LEAST_VARIANCE = 4096.0
"""Of a column of a table that counts: 1/256 of its range squared, as where one input in 500 has another value."""


def kernel_spec(  # noqa: PLR0913 -- all that a kernel follows from
    settings: SumsConfig,
    pool: NDArray[Any],
    inputs: Inputs,
    classes: int,
    noise: float,
    seed: int,
    network: bytes | None = None,
) -> KernelSpec:
    """The kernel of a public pool; the same for the same pool, settings, ``noise``, ``seed`` and ``network``.

    Parameters
    ----------
    pool : shape ``[inputs, …]`` as the task says.
    classes : the task's; they limit the number of landmarks, as the sum has an entry for each class and landmark.
    noise : of the sums, in contributions.
    network : whose features are used; those of ``settings`` where it is None.

    Raises
    ------
    ConfigurationError, DataError
        If the features do not suit the task or the pool.
    """
    features = _features(settings, pool, inputs) if network is None else Features("network", network=network)
    order = np.random.default_rng([seed, 0x73]).permutation(len(pool))
    landmarks = order[: min(settings.landmarks, (MAX_SUM_LENGTH - 1) // classes - 1)]
    some = extract(features, pool[order[:_SOME]], inputs)
    squared = distances_squared(some, extract(features, pool[landmarks], inputs))
    median = float(np.median(np.sqrt(squared[squared > 0]))) if (squared > 0).any() else 1.0
    _, bandwidth = settings.usual_for(inputs.kind)
    bandwidth_squared = max(1, round((bandwidth * median) ** 2))
    ridge = ridge_for(noise, len(pool), classes)
    return KernelSpec(features, tuple(landmarks.tolist()), bandwidth_squared, ridge)


def ridge_for(noise: float, pool: int, classes: int) -> float:
    """The one of `RIDGES` nearest to 2·noise/√pool, by ratio: the more noise, the fewer directions share the length.

    √pool is about the deviation of a sum of as many records as the ``pool`` has inputs. Two classes differ in one
    direction: they have a ridge of at least 1.
    """
    wanted = math.log(max(2.0 * noise / math.sqrt(pool), 1e-12))
    return min(RIDGES[1:] if classes == 2 else RIDGES, key=lambda ridge: abs(math.log(ridge) - wanted))


def _features(settings: SumsConfig, pool: NDArray[Any], inputs: Inputs) -> Features:
    name, _ = settings.usual_for(inputs.kind)
    if inputs.kind == "vector" and name == "raw":
        return Features("standard", scaling=_one_scale(pool))
    if isinstance(inputs, TableInputs) and name == "ranks":
        return _balanced(fit_features(name, None, pool, inputs), pool, inputs)
    if not isinstance(inputs, ImageInputs):
        return fit_features(name, None, pool, inputs)
    plain = Features(name)
    kept = min(settings.dimensions, len(pool) - 1, MAX_PROJECTION_ENTRIES // dimensions(plain, inputs))
    if name != "pyramid":
        return fit_features(name, kept, pool, inputs)
    values = extract(plain, pool, inputs).astype(np.float64)
    # Every part counts the same: the median distance between two inputs is the same in all of them.
    ends = np.cumsum(pyramid_parts(inputs))
    parts = np.split(values[:_SOME], ends[:-1], axis=1)
    weights = np.concatenate([np.full(part.shape[1], 1.0 / _median_distance(part)) for part in parts])
    weights /= weights.max()
    axes = principal_axes(values * weights, kept) * weights[:, None]
    projection = np.rint(axes * (PROJECTION_ONE / np.abs(axes).max())).astype(np.float32)
    return Features(name, projection)


def _balanced(ranks: Features, pool: NDArray[Any], inputs: TableInputs) -> Features:
    """Ranks of which each column counts by the root of its deviation: neither many categories nor few decide alone.

    One in which nearly all of the pool's inputs are alike does not count: records that differ from them there, such as
    those of others in a column that tells institutions apart, would be far from all landmarks, and all alike.
    """
    variances = extract(ranks, pool, inputs).var(axis=0)
    if len(variances) ** 2 > MAX_PROJECTION_ENTRIES:
        return ranks
    widths = [column.width for column in inputs.columns]
    of_columns = np.add.reduceat(variances, np.cumsum([0, *widths[:-1]]))
    weights = np.where(of_columns >= _LEAST_VARIANCE, np.maximum(of_columns, 1e-9) ** -0.25, 0.0)
    weights = np.rint(weights * (PROJECTION_ONE / max(float(weights.max()), 1e-300)))
    return replace(ranks, projection=np.diag(np.repeat(weights, widths)).astype(np.float32))


def _one_scale(pool: NDArray[Any]) -> NDArray[np.float32]:
    """A scaling of vectors that takes the pool's mean off and has one factor for all numbers: 1 / their deviation."""
    mean = pool.mean(axis=0, dtype=np.float64)
    deviation = max(float(np.sqrt(np.square(pool - mean).mean())), 1e-30)
    return np.stack([mean, np.full(len(mean), 1.0 / deviation)]).astype(np.float32)


def _median_distance(values: NDArray[np.float64]) -> float:
    squared = np.square(values).sum(axis=1)
    apart = squared[:, None] + squared - 2.0 * values @ values.T
    return max(1.0, float(np.sqrt(max(0.0, float(np.median(apart))))))


_LANDMARKS = 1000
_REGIONS = 16
_INPUTS_PER_REGION = 100
_FEWEST = 40
_BELOW = (0.9, 0.97, 0.995)
"""Shares of the pool's inputs that lie nearer to a landmark than each edge."""
MOST_CELLS = _REGIONS + len(_BELOW)


def pool_cover(settings: SumsConfig, pool: NDArray[Any], inputs: Inputs, seed: int) -> tuple[CoverageSpec, IntArray]:
    """The cells of a public pool ``[inputs, …]``, and its inputs in each that are no landmarks, ``[cells]``.

    Parameters
    ----------
    settings : of class sums; their features are used here as well, fitted to the landmarks alone.

    Raises
    ------
    ConfigurationError
        If the pool has fewer than 40 inputs.
    """
    if len(pool) < _FEWEST:
        raise ConfigurationError(f"whether a pool fits can be told of {_FEWEST} inputs at least; it has {len(pool)}")
    order = np.random.default_rng([seed, 0x63]).permutation(len(pool))
    number = min(_LANDMARKS, len(pool) // 2)
    landmarks, others = order[:number], order[number:]
    features = _features(settings, pool[landmarks], inputs)
    near, far = extract(features, pool[landmarks], inputs), extract(features, pool[others], inputs)
    wanted = max(1, min(_REGIONS, len(others) // _INPUTS_PER_REGION))
    regions = np.zeros(number, dtype=np.int64)
    if wanted > 1:
        from sklearn.cluster import KMeans  # takes seconds to load, and a small pool is one region

        clusters = KMeans(wanted, n_init=1, random_state=seed).fit_predict(near.astype(np.float64))
        regions = np.unique(clusters, return_inverse=True)[1]
    edges = np.quantile(distances_squared(far, near).min(axis=1), _BELOW, method="higher")
    spec = CoverageSpec(features, tuple(landmarks.tolist()), tuple(regions.tolist()), tuple(edges.tolist()))
    return spec, np.bincount(spec.cells_of(pool[others], pool, inputs), minlength=spec.cells)
