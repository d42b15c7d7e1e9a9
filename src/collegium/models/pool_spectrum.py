"""Mean and covariance of a public pool under a kernel map, and how many records stand out from noise there.

A drawn pool says nothing of how records lie. Where their φ have much in common, the pool's moment M is far too small in
that direction, and Newton steps by it overshoot. The rounds tell: the first sum less that of a round under weights W is
about h·n·E[φφᵀ]·W, where the expectation is over the records. So M is changed as little as explains what is seen, less
what noise explains, and only upwards: a step that is too short is made up for by the next round.

References
----------
Powell, "A new algorithm for unconstrained optimization", 1970 (the least change of a symmetric matrix that fits what
was seen along a step).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.task import Inputs
from collegium.models.kernels import CONSTANT, KernelMap, KernelSpec
from collegium_accounting.mechanisms.class_sums import ONE, code_one

KAPPA = 3.0
"""The noise of an entry times this is what an eigenvalue is compared with."""
DROWNED, CLEAR = 10, 4
"""With a tenth of the needed contributions most labels were wrong; with four times as many, nine tenths of the
accuracy without noise were there (digits, Banking77, medical abstracts, the patients of docs/differing-files.md)."""
SHORT = CONSTANT / ONE
"""The constant entry of φ, where φ has length 1."""
_AT_ONCE = 2048
_KEPT = 10_000
"""How many inputs of the pool take part in the fits to the pool at most."""


@dataclass(frozen=True, eq=False)
class PoolSpectrum:
    """Mean and covariance over the pool of φ without its constant entry, the latter by eigenvalues and axes.

    Parameters
    ----------
    mean, eigenvalues : ``[landmarks]``.
    axes : ``[landmarks, landmarks]``.
    vectors : φ without its constant entry of at most 10,000 inputs at equal distances in the pool, float32
        ``[inputs, landmarks]``.
    """

    kernel: KernelMap
    mean: NDArray[np.float64]
    eigenvalues: NDArray[np.float64]
    axes: NDArray[np.float64]
    vectors: NDArray[np.float32]

    @classmethod
    def under(cls, spec: KernelSpec, pool: NDArray[Any], inputs: Inputs, device: str = "cpu") -> "PoolSpectrum":
        """Under the map that ``spec`` describes: of the ``pool``, or of the inputs that are drawn in its place."""
        among = spec.inputs_among(pool, inputs)
        return cls.of_pool(KernelMap.of_pool(spec, pool, inputs, device), among)

    @classmethod
    def of_pool(cls, kernel: KernelMap, pool: NDArray[Any]) -> "PoolSpectrum":
        """Works through 2,048 inputs of the pool ``[inputs, …]`` at a time."""
        size = len(kernel.landmarks)
        every, kept = -(-len(pool) // _KEPT), []
        mean, moment = np.zeros(size), np.zeros((size, size))
        for start in range(0, len(pool), _AT_ONCE):
            vectors = kernel(pool[start : start + _AT_ONCE])[:, :-1] / ONE
            mean += vectors.sum(axis=0) / len(pool)
            moment += vectors.T @ vectors / len(pool)
            kept.append(vectors[-start % every :: every].astype(np.float32))
        eigenvalues, axes = np.linalg.eigh(moment - np.outer(mean, mean))
        return cls(kernel, mean, np.maximum(eigenvalues, 0.0), axes, np.concatenate(kept))

    def contributions_needed(self, noise: float, classes: int) -> float:
        """How many contributions a sum needs for as many directions as tell the classes apart to be above its noise.

        That is λ ≥ κ in the C − 1 directions of the largest eigenvalues, where the filter keeps half or more.

        Parameters
        ----------
        noise : standard deviation of the noise on every entry of the sum.
        """
        directions = np.sort(self.eigenvalues)[::-1][: classes - 1]
        return KAPPA * noise / (ONE * code_one(classes) * classes) / max(float(directions[-1]), 1e-12)

    def moment_times(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """E[φφᵀ]·weights over the pool, ``[dimensions, classes]``, where φ has length 1."""
        of_axes = self.axes @ (self.eigenvalues[:, None] * (self.axes.T @ weights[:-1]))
        mean = self.mean @ weights[:-1] + SHORT * weights[-1]
        return np.concatenate([of_axes + np.outer(self.mean, mean), SHORT * mean[None]])

    def scores(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """φᵀ·weights of `vectors`, ``[inputs, classes]``."""
        return np.asarray(self.vectors @ weights[:-1] + SHORT * weights[-1])

    def sum_of(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean of φ ⊗ share over `vectors`, whose shares are ``[inputs, classes]``; ``[dimensions, classes]``."""
        return np.concatenate([self.vectors.T @ shares, SHORT * shares.sum(axis=0)[None]]) / len(shares)

    def raised(self, weights: NDArray[np.float64], seen: NDArray[np.float64], variance: float) -> "PoolSpectrum":
        """This one, its mean and covariance raised by what was seen of the records.

        Parameters
        ----------
        weights : along which it was seen, ``[dimensions, columns]``.
        seen : E[φφᵀ]·weights over the records, with noise, ``[dimensions, columns]``.
        variance : of the noise on an entry of ``seen``.
        """
        missed = seen - self.moment_times(weights)
        # The mean square of an entry of the change, less what noise alone would show.
        square = float((missed**2).sum()) - variance * missed.size
        square /= max(len(weights) * float((weights**2).sum()), 1e-300)
        if square <= 0.0:
            return self
        gram = weights.T @ weights + variance / square * np.eye(weights.shape[1])
        change = missed @ np.linalg.pinv(gram, rcond=1e-10, hermitian=True) @ weights.T
        upwards, directions = np.linalg.eigh((change + change.T) / 2.0)
        moment = self.moment_times(np.eye(len(weights))) + (directions * np.maximum(upwards, 0.0)) @ directions.T
        mean = moment[:-1, -1] / SHORT
        eigenvalues, axes = np.linalg.eigh(moment[:-1, :-1] - np.outer(mean, mean))
        return replace(self, mean=mean, eigenvalues=np.maximum(eigenvalues, 0.0), axes=axes)
