"""The second moment of the records under a map whose pool was drawn, as far as released rounds show it.

A drawn pool says nothing of how records lie. Where their φ have much in common, the pool's moment M is far too small in
that direction, and Newton steps by it overshoot. The rounds tell: the first sum less that of a round under weights W is
about h·n·E[φφᵀ]·W, where the expectation is over the records. So M is changed as little as explains what is seen, less
what noise explains, and only upwards: a step that is too short is made up for by the next round.

References
----------
Powell, "A new algorithm for unconstrained optimization", 1970 (the least change of a symmetric matrix that fits what
was seen along a step).
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from collegium.models.pool_spectrum import SHORT, PoolSpectrum

_Floats = NDArray[np.float64]


def of_records(pool: PoolSpectrum, weights: _Floats, seen: _Floats, variance: float) -> PoolSpectrum:
    """The spectrum of ``pool``, its mean and covariance raised by what was seen of the records.

    Parameters
    ----------
    weights : along which it was seen, ``[dimensions, columns]``.
    seen : E[φφᵀ]·weights over the records, with noise, ``[dimensions, columns]``.
    variance : of the noise on an entry of ``seen``.
    """
    moment = _moment(pool)
    missed = seen - moment @ weights
    # The mean square of an entry of the change, less what noise alone would show.
    square = float((missed**2).sum()) - variance * missed.size
    square /= max(len(moment) * float((weights**2).sum()), 1e-300)
    if square <= 0.0:
        return pool
    gram = weights.T @ weights + variance / square * np.eye(weights.shape[1])
    change = missed @ np.linalg.pinv(gram, rcond=1e-10, hermitian=True) @ weights.T
    raised, directions = np.linalg.eigh((change + change.T) / 2.0)
    moment += (directions * np.maximum(raised, 0.0)) @ directions.T
    mean = moment[:-1, -1] / SHORT
    eigenvalues, axes = np.linalg.eigh(moment[:-1, :-1] - np.outer(mean, mean))
    return replace(pool, mean=mean, eigenvalues=np.maximum(eigenvalues, 0.0), axes=axes)


def _moment(pool: PoolSpectrum) -> _Floats:
    """E[φφᵀ] over the pool, constant entry included, ``[dimensions, dimensions]``."""
    mean = np.append(pool.mean, SHORT)
    moment = np.outer(mean, mean)
    moment[:-1, :-1] += (pool.axes * pool.eigenvalues) @ pool.axes.T
    return moment
