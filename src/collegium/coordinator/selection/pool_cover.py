"""By which cells parties say how well the pool covers their records, and how many of the pool's own inputs lie in each.

Everything comes from the pool alone. Landmarks are drawn at random and the other inputs are counted like records. So
where records and pool come from one distribution, both are counted in cells that depend on neither.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.selection.kernel_choice import kernel_spec
from collegium.coordinator.settings.run_config import SumsConfig
from collegium.data.coverage import CoverageSpec
from collegium.data.features import distances_squared, extract
from collegium.data.task import Inputs
from collegium.errors import ConfigurationError
from collegium.privacy.units import IntArray

_LANDMARKS = 1000
_REGIONS = 16
_INPUTS_PER_REGION = 100
_FEWEST = 40
_BELOW = (0.9, 0.97, 0.995)
"""Shares of the pool's inputs that lie nearer to a landmark than each edge."""
MOST_CELLS = _REGIONS + len(_BELOW)


def pool_cover(
    settings: SumsConfig, pool: NDArray[Any], inputs: Inputs, classes: int, seed: int
) -> tuple[CoverageSpec, IntArray]:
    """The cells of a public pool ``[inputs, …]``, and its inputs in each that are no landmarks, ``[cells]``.

    Parameters
    ----------
    settings : of class sums; their features are used here as well, fitted to the landmarks alone.

    Raises
    ------
    ConfigurationError
        If the pool has fewer than 40 inputs.
    """
    from sklearn.cluster import KMeans

    if len(pool) < _FEWEST:
        raise ConfigurationError(f"whether a pool fits can be told of {_FEWEST} inputs at least; it has {len(pool)}")
    order = np.random.default_rng([seed, 0x63]).permutation(len(pool))
    number = min(_LANDMARKS, len(pool) // 2)
    landmarks, others = order[:number], order[number:]
    features = kernel_spec(settings, pool[landmarks], inputs, classes, seed).features
    near, far = extract(features, pool[landmarks], inputs), extract(features, pool[others], inputs)
    wanted = max(1, min(_REGIONS, len(others) // _INPUTS_PER_REGION))
    clusters = KMeans(wanted, n_init=1, random_state=seed).fit_predict(near.astype(np.float64))
    regions = np.unique(clusters, return_inverse=True)[1]
    edges = np.quantile(distances_squared(far, near).min(axis=1), _BELOW, method="higher")
    spec = CoverageSpec(features, tuple(landmarks.tolist()), tuple(regions.tolist()), tuple(edges.tolist()))
    return spec, np.bincount(spec.cells_of(pool[others], pool, inputs), minlength=spec.cells)
