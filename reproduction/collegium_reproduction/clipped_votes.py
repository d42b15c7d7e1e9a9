"""The vote of a record that holds several of a task's classes at once, clipped to L1 ≤ τ.

A vote is fractions, and sums are of integers: votes travel in whole parts of 1/`RESOLUTION`, rounded towards zero,
which keeps L1 ≤ τ.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from collegium.errors import ConfigurationError, DataError
from collegium_accounting.units import IntArray

RESOLUTION = 256
"""Parts of a vote that a clipped vote is counted in."""


def clipped_votes(votes: ArrayLike, tau: float) -> IntArray:
    """Each voter's 0/1 votes scaled to L1 ≤ τ, in parts of 1/RESOLUTION.

    Parameters
    ----------
    votes : shape ``[..., labels]``, entries in [0, 1]; raises DataError otherwise.
    tau : largest L1 norm of one voter's votes on one query.
    """
    check_tau(tau)
    array = np.asarray(votes, dtype=np.float64)
    if not ((array >= 0.0) & (array <= 1.0)).all():
        raise DataError("multi-label votes must lie between 0 and 1")
    norm = array.sum(axis=-1, keepdims=True)
    scale = np.minimum(1.0, tau / np.maximum(norm, tau))
    parts: IntArray = np.floor(array * scale * RESOLUTION).astype(np.int64)
    return parts


def swap_l2(tau: float, labels: int) -> float:
    """Most by which the votes of exactly k neighbours move, in votes, when a record comes or goes.

    One clipped vote takes the place of another, or of a mean of others: entries move by at most 1, and their
    squares add up to at most those of both votes, which are at most their L1 norms. The party and the coordinator
    each round an entry down once, by less than a part. Proved in docs/research/private-knn.md.
    """
    return math.sqrt(min(2.0 * tau, float(labels))) + 2.0 * math.sqrt(labels) / RESOLUTION


def check_tau(tau: float) -> None:
    """Raise ConfigurationError unless τ is a positive number."""
    if not (tau > 0.0 and math.isfinite(tau)):
        raise ConfigurationError(f"tau must be a positive number, not {tau}")
