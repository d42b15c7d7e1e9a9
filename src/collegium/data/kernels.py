"""A public kernel map φ: every input becomes a vector of whole numbers whose Euclidean length is at most `ONE`.

With a Gaussian kernel k and m landmarks among the pool's inputs, φ(x) = L⁻¹·k(x). k(x) holds the kernel between x and
each landmark, L is the Cholesky factor of K + ρ·I, and K holds the kernel between landmarks. Without rounding,
|φ(x)|² = k(x)ᵀ(K + ρI)⁻¹k(x) ≤ k(x)ᵀK⁻¹k(x) ≤ k(x, x) = 1 for every x, because the third term is the squared length of
the projection of x's feature vector onto the span of the landmarks'. The protection of records does not rest on that:

* Each record by itself. Features and squared distances are whole numbers. The kernel is read from a table of whole
  numbers, and L⁻¹ is rounded to whole numbers. Products and sums stay below 2^53, where double precision is exact in
  any order of addition. So a record's vector is the same whatever other records are computed beside it.
* The length. Every vector is measured in whole numbers and shortened where it is longer than `ONE`. So the bound holds
  for any landmarks, features and bandwidth, even such as a dishonest coordinator chooses.

Two machines may round L⁻¹ differently in its last digit, which changes scores by less than the noise and no bound.

References
----------
Williams and Seeger, "Using the Nyström method to speed up kernel machines", NIPS 2000.
"""

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from collegium import limits
from collegium.data.features import Features, distances_squared, extract
from collegium.data.task import Inputs
from collegium.data.values import require
from collegium.models.devices import resolve_device
from collegium.privacy.mechanisms.class_sums import ONE

BANDWIDTH = 0.4
"""Bandwidth of the kernel in units of the median distance between inputs of the pool and landmarks."""

KERNEL_ONE = 2**18
_WHITENING_ONE = 2**16
_RIDGE = 2.0**-10
# 2^18 (kernel) · 2^16/√ρ = 2^21 (largest entry of L⁻¹) · 2^12 (landmarks) = 2^51 < 2^53.
STEPS = 2**14
_AT_ONCE = 2048
_COLUMNS_AT_ONCE = 256
_MAPS_KEPT = 2

# The kernel by its exponent d²/2h² in steps of 2^-14: whole numbers, and 0 beyond the last.
TABLE = np.rint(KERNEL_ONE * np.exp(-np.arange(16 * STEPS) / STEPS))
TABLE[-1] = 0.0


@dataclass(frozen=True)
class KernelSpec:
    """What both sides must agree on to compute the same kernel map; all of it is public.

    Parameters
    ----------
    features : the features by which inputs are compared.
    landmarks : positions in the pool, distinct.
    bandwidth_squared : h² of k(x, z) = exp(−|x − z|²/(2h²)), in the features' whole-number units squared.
    """

    features: Features
    landmarks: tuple[int, ...]
    bandwidth_squared: int

    def __post_init__(self) -> None:
        most = limits.MAX_LANDMARKS
        require(1 <= len(self.landmarks) <= most, f"a kernel has 1 to {most} landmarks")
        require(len(set(self.landmarks)) == len(self.landmarks), "landmarks differ from each other")
        require(1 <= self.bandwidth_squared < 2**40, "the bandwidth of a kernel is positive and below 2^20")

    def digest(self) -> str:
        """The same text for the same specification."""
        facts = [self.features.digest(), self.landmarks, self.bandwidth_squared]
        return hashlib.sha256(b"collegium-kernel-v1" + json.dumps(facts).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class KernelMap:
    """A kernel map as arrays, made from public inputs alone.

    Parameters
    ----------
    features : the features by which inputs are compared.
    inputs : what an input of the task is.
    bandwidth_squared : see `KernelSpec`.
    landmarks : the landmarks' features, int16 ``[landmarks, features]``.
    whitening : L⁻¹ transposed, whole numbers in double precision, upper triangular, ``[landmarks, landmarks]``.
    device : where a network for features, and `totals`, compute.
    """

    features: Features
    inputs: Inputs
    bandwidth_squared: int
    landmarks: NDArray[np.int16]
    whitening: NDArray[np.float64]
    device: str = "cpu"

    @classmethod
    def of_pool(cls, spec: KernelSpec, pool: NDArray[Any], inputs: Inputs, device: str = "cpu") -> "KernelMap":
        """The map that ``spec`` describes over a public pool of shape ``[inputs, …]``.

        Raises
        ------
        ProtocolViolation
            If a landmark lies outside the pool.
        DataError
            If the features do not suit the task.
        """
        require(0 <= min(spec.landmarks) <= max(spec.landmarks) < len(pool), "a landmark lies outside the pool")
        landmarks = extract(spec.features, pool[list(spec.landmarks)], inputs, device)
        kernel = np.exp(distances_squared(landmarks, landmarks) / (-2.0 * spec.bandwidth_squared))
        kernel[np.diag_indices_from(kernel)] += _RIDGE
        inverse = solve_triangular(np.linalg.cholesky(kernel), np.eye(len(kernel)), lower=True)
        return cls(
            spec.features, inputs, spec.bandwidth_squared, landmarks, np.rint(inverse.T * _WHITENING_ONE), device
        )

    @property
    def dimensions(self) -> int:
        """Numbers in the vector of one input: one for each landmark."""
        return len(self.landmarks)

    def kernel(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """The kernel of inputs ``x`` and the landmarks, whole numbers of 1/2^18, shape ``[n, landmarks]``."""
        squared = distances_squared(extract(self.features, x, self.inputs, self.device), self.landmarks)
        steps = squared * (STEPS / (2.0 * self.bandwidth_squared))
        np.minimum(steps, len(TABLE) - 1, out=steps)
        return np.asarray(TABLE[steps.astype(np.int32)])

    def __call__(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Vectors of ``x``, shape ``[n, dimensions]``, each of Euclidean length at most `ONE`.

        Works through 2,048 inputs at a time.

        Parameters
        ----------
        x : uint8 ``[n, height, width, channels]`` or float32 ``[n, columns]``.

        Returns
        -------
        int64 array
            Row i depends on ``x[i]`` and on public data alone, whatever else is in ``x``.
        """
        vectors = np.empty((len(x), self.dimensions), dtype=np.int64)
        for start in range(0, len(x), _AT_ONCE):
            kernel = self.kernel(x[start : start + _AT_ONCE])
            for first in range(0, self.dimensions, _COLUMNS_AT_ONCE):
                # Rows below a column's own are 0 in a triangular matrix.
                last = min(first + _COLUMNS_AT_ONCE, self.dimensions)
                kernel_part, columns = kernel[:, :last], self.whitening[:last, first:last]
                products, scale = kernel_part @ columns, ONE / (KERNEL_ONE * _WHITENING_ONE)
                into = vectors[start : start + len(kernel), first:last]
                np.multiply(products, scale, out=into, casting="unsafe")  # cut off towards 0
            block = vectors[start : start + len(kernel)]
            block[...] = shortened(block, ONE * ONE)
        return vectors

    def totals(
        self, x: NDArray[Any], labels: NDArray[np.int64], shares: NDArray[np.int64], classes: int
    ) -> NDArray[np.int64]:
        """The vectors of ``x`` summed by class, ``[classes, dimensions]``; on a GPU the same whole numbers.

        Works through so many inputs at a time that what it needs does not grow with their number.

        Parameters
        ----------
        x : inputs, as for a call.
        labels : the class of each input, ``[n]``.
        shares : what each vector is divided by first, cut off towards 0, ``[n]``.
        """
        device = resolve_device(self.device)
        at_once = _AT_ONCE if device == "cpu" else 16 * _AT_ONCE
        totals = np.zeros((classes, self.dimensions), dtype=np.int64)
        for start in range(0, len(x), at_once):
            part = slice(start, start + at_once)
            if device != "cpu":
                totals += self._totals_on_gpu(x[part], labels[part], shares[part], classes, device)
                continue
            vectors = self(x[part])
            if (shares[part] > 1).any():
                vectors = np.sign(vectors) * (np.abs(vectors) // shares[part, None])
            for label in np.unique(labels[part]).tolist():
                totals[label] += vectors[labels[part] == label].sum(axis=0)
        return totals

    def _totals_on_gpu(
        self, x: NDArray[Any], labels: NDArray[np.int64], shares: NDArray[np.int64], classes: int, device: str
    ) -> NDArray[np.int64]:
        import torch

        def there(array: NDArray[Any]) -> torch.Tensor:
            return torch.tensor(array, device=device).double()

        own, landmarks = there(extract(self.features, x, self.inputs, device)), there(self.landmarks)
        squared = own.square().sum(1, keepdim=True) + landmarks.square().sum(1) - 2.0 * (own @ landmarks.T)
        steps = (squared * (STEPS / (2.0 * self.bandwidth_squared))).clamp(max=len(TABLE) - 1).long()
        vectors = (there(TABLE)[steps] @ there(self.whitening) * (ONE / (KERNEL_ONE * _WHITENING_ONE))).trunc()
        # As `shortened` does it; a row that is not too long is multiplied by 1.
        length_squared = vectors.square().sum(1, keepdim=True)
        scale = torch.sqrt(ONE * ONE / length_squared) * (1.0 - 1e-9)
        vectors = (vectors * torch.where(length_squared > ONE * ONE * (1.0 - 1e-9), scale, 1.0)).trunc()
        vectors = (vectors / there(shares)[:, None]).trunc()
        of_class = there(np.arange(classes)[:, None] == labels)
        summed: NDArray[np.int64] = (of_class @ vectors).long().cpu().numpy()
        return summed

    def weights_of(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights ``[landmarks, classes]`` of what `kernel` gives: with them it scores φ(x)ᵀ·``coefficients`` / `ONE`.

        But for the rounding and shortening of φ.
        """
        return np.asarray(self.whitening @ coefficients / (_WHITENING_ONE * KERNEL_ONE))


def shortened(vectors: NDArray[np.int64], most_squared: int) -> NDArray[np.int64]:
    """Rows of whole numbers, each of squared length at most ``most_squared``; a longer one is scaled down.

    Double precision knows a squared length to one part in 2^40. So a row that seems shorter by one part in 10^9 is
    not too long; every other row is scaled to a length that is shorter by that much and then cut off towards 0, which
    makes no row longer.
    """
    values, result = vectors.astype(np.float64), vectors.copy()
    length_squared = np.einsum("ij,ij->i", values, values)
    long = np.flatnonzero(length_squared > most_squared * (1.0 - 1e-9))
    scale = np.sqrt(most_squared / length_squared[long]) * (1.0 - 1e-9)
    result[long] = np.trunc(values[long] * scale[:, None])
    return result


class KernelMaps:
    """The latest kernel maps by what they were made from: parties that share a process share them."""

    def __init__(self) -> None:
        self._maps: OrderedDict[tuple[str, str, str, str], KernelMap] = OrderedDict()

    def of(self, spec: KernelSpec, pool_sha256: str, pool: NDArray[Any], inputs: Inputs, device: str) -> "KernelMap":
        """See `KernelMap.of_pool`."""
        key = (spec.digest(), pool_sha256, inputs.model_dump_json(), device)
        if key not in self._maps:
            self._maps[key] = KernelMap.of_pool(spec, pool, inputs, device)
        self._maps.move_to_end(key)
        while len(self._maps) > _MAPS_KEPT:
            self._maps.popitem(last=False)
        return self._maps[key]


KERNEL_MAPS = KernelMaps()
"""Those of this process."""
