"""A public kernel map φ: every input becomes a vector of whole numbers whose Euclidean length is at most `ONE`.

With a Gaussian kernel k and m landmarks among the pool's inputs, ψ(x) = L⁻¹·(k(x) − μ). k(x) holds the kernel between x
and each landmark, μ is its mean over the landmarks, L is the Cholesky factor of K + ρ·I, and K holds the kernel between
landmarks. φ(x) is ψ(x) brought to one fixed length, and one more entry that is `CONSTANT` for every x.

All of the length that the noise pays for carries signal in this way. What all inputs have in common (μ) tells no class
from another, the last entry counts the records of each class, and a record far from all landmarks counts as much as
one beside them. The ridge ρ lets directions fade in which the landmarks hardly differ: the larger it is, the fewer
directions share the length.

The protection of records rests on two properties alone:

* Each record by itself. Features and squared distances are whole numbers. The kernel is read from a table of whole
  numbers, and L⁻¹ is rounded to whole numbers. Products and sums stay below 2^53, where double precision is exact in
  any order of addition. So a record's vector is the same whatever other records are computed beside it.
* The length. Every vector is measured in whole numbers and brought to its length by itself. So the bound holds for any
  landmarks, features and bandwidth, even such as a dishonest coordinator chooses.

Two machines may round L⁻¹ differently in its last digit, which changes scores by less than the noise and no bound.

References
----------
Williams and Seeger, "Using the Nyström method to speed up kernel machines", NIPS 2000.
"""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.drawn_pool import drawn_by
from collegium.data.task import Inputs
from collegium.data.values import require
from collegium.latest import Latest
from collegium.limits import MAX_SUM_LENGTH
from collegium.models.codes import KERNEL_ONE as KERNEL_ONE
from collegium.models.codes import STEPS as STEPS
from collegium.models.codes import TABLE as TABLE
from collegium.models.codes import Codes
from collegium.models.devices import resolve_device
from collegium.models.features import Features, check_landmarks, distances_squared, extract, features_of_landmarks
from collegium_accounting.mechanisms.class_sums import ONE

CONSTANT = ONE // 10
"""The last entry of every vector."""
REST = ONE**2 - CONSTANT**2
"""The squared length of the other entries."""

_WHITENING_ONE = 2**16
RIDGES = (0.25, 1.0, 4.0, 16.0)
"""Those that a specification may name."""
# 2^18 (kernel less its mean) · 2^16/√ρ ≤ 2^17 (largest entry of L⁻¹) · 2^12 (landmarks) = 2^47 < 2^53.
FINER = 2.0**19 / (KERNEL_ONE * _WHITENING_ONE)
"""From products to ψ in units of 2^-19: |ψ| ≤ √landmarks/√ρ ≤ 2^7, so its squared length in them is below 2^53."""
_AT_ONCE = 512
_AT_ONCE_ON_GPU = 2**15
_COLUMNS_AT_ONCE = 128


@dataclass(frozen=True)
class KernelSpec:
    """What both sides must agree on to compute the same kernel map; all of it is public.

    Parameters
    ----------
    features : the features by which inputs are compared.
    landmarks : positions in the pool, distinct.
    bandwidth_squared : h² of k(x, z) = exp(−|x − z|²/(2h²)), in the features' whole-number units squared.
    ridge : ρ, one of `RIDGES`.
    shares : where the landmarks are positions among rows that are drawn by these (`data.drawn_pool.drawn_by`), in place
        of the pool's own inputs.
    """

    features: Features
    landmarks: tuple[int, ...]
    bandwidth_squared: int
    ridge: float = 1.0
    shares: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_landmarks(self.landmarks)
        require(1 <= self.bandwidth_squared < 2**40, "the bandwidth of a kernel is positive and below 2^20")
        require(self.ridge in RIDGES, f"the ridge of a kernel is one of {', '.join(map(str, RIDGES))}")
        require(self.shares is None or len(self.shares) <= 8 * MAX_SUM_LENGTH, "shares of too many cells")

    @property
    def dimensions(self) -> int:
        """Numbers in the vector of one input: one for each landmark, and `CONSTANT`."""
        return len(self.landmarks) + 1

    def digest(self) -> str:
        """The same text for the same specification."""
        facts = [self.features.digest(), self.landmarks, self.bandwidth_squared, self.ridge]
        facts += [] if self.shares is None else [hashlib.sha256(self.shares).hexdigest()]
        return hashlib.sha256(b"collegium-kernel-v2" + json.dumps(facts).encode()).hexdigest()

    def inputs_among(self, pool: NDArray[Any], inputs: Inputs) -> NDArray[Any]:
        """The inputs among which the landmarks are: the ``pool``'s, or those that are drawn by the shares.

        Raises
        ------
        ProtocolViolation
            If the shares are not of this task's cells.
        """
        return pool if self.shares is None else drawn_by(self.shares, inputs)[0]


@dataclass(frozen=True, eq=False)
class KernelMap:
    """A kernel map as arrays, made from public inputs alone.

    Parameters
    ----------
    features : the features by which inputs are compared.
    inputs : what an input of the task is.
    bandwidth_squared, ridge : see `KernelSpec`.
    landmarks : the landmarks' features, int16 ``[landmarks, features]``.
    centre : μ in whole numbers of 1/2^18, ``[landmarks]``.
    whitening : L⁻¹ transposed, whole numbers in double precision, upper triangular, ``[landmarks, landmarks]``.
    device : where a network for features, and `totals`, compute.
    """

    features: Features
    inputs: Inputs
    bandwidth_squared: int
    ridge: float
    landmarks: NDArray[np.int16]
    centre: NDArray[np.float64]
    whitening: NDArray[np.float64]
    device: str = "cpu"

    @classmethod
    def of_pool(cls, spec: KernelSpec, pool: NDArray[Any], inputs: Inputs, device: str = "cpu") -> "KernelMap":
        """The map that ``spec`` describes over a public pool of shape ``[inputs, …]``.

        Raises
        ------
        ProtocolViolation
            If a landmark lies outside the pool, or shares are not of this task's cells.
        DataError
            If the features do not suit the task.
        """
        among = spec.inputs_among(pool, inputs)
        landmarks = features_of_landmarks(spec.features, spec.landmarks, among, inputs, device)
        return cls.of_landmarks(spec.features, inputs, spec.bandwidth_squared, spec.ridge, landmarks, device)

    @classmethod
    def shared(cls, spec: KernelSpec, pool_sha256: str, pool: NDArray[Any], inputs: Inputs, device: str) -> "KernelMap":
        """`of_pool`, once for all parties that share this process."""
        made_of = (spec.digest(), pool_sha256, inputs.model_dump_json(), device)
        return MAPS.of(made_of, lambda: cls.of_pool(spec, pool, inputs, device))

    @classmethod
    def of_landmarks(
        cls,
        features: Features,
        inputs: Inputs,
        bandwidth_squared: int,
        ridge: float,
        landmarks: NDArray[np.int16],
        device: str = "cpu",
    ) -> "KernelMap":
        """The map among these landmarks' features; the other parameters are the map's."""
        from scipy.linalg import solve_triangular  # most commands use no map

        kernel = np.exp(distances_squared(landmarks, landmarks) / (-2.0 * bandwidth_squared))
        centre = np.rint(kernel.mean(axis=0) * KERNEL_ONE)
        kernel[np.diag_indices_from(kernel)] += ridge
        inverse = solve_triangular(np.linalg.cholesky(kernel), np.eye(len(kernel)), lower=True)
        whitening = np.rint(inverse.T * _WHITENING_ONE)
        return cls(features, inputs, bandwidth_squared, ridge, landmarks, centre, whitening, device)

    @property
    def dimensions(self) -> int:
        """Numbers in the vector of one input: one for each landmark, and `CONSTANT`."""
        return len(self.landmarks) + 1

    def kernel(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """The kernel of inputs ``x`` and the landmarks, whole numbers of 1/2^18, shape ``[n, landmarks]``."""
        squared = distances_squared(extract(self.features, x, self.inputs, self.device), self.landmarks)
        steps = squared * (STEPS / (2.0 * self.bandwidth_squared))
        np.minimum(steps, len(TABLE) - 1, out=steps)
        return np.asarray(TABLE[steps.astype(np.int32)])

    def __call__(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Vectors of ``x``, shape ``[n, dimensions]``, each of Euclidean length at most `ONE`.

        Works through 512 inputs at a time.

        Parameters
        ----------
        x : uint8 ``[n, height, width, channels]`` or float32 ``[n, columns]``.

        Returns
        -------
        int64 array
            Row i depends on ``x[i]`` and on public data alone, whatever else is in ``x``.
        """
        vectors = np.full((len(x), self.dimensions), CONSTANT)
        for start in range(0, len(x), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            vectors[part, :-1] = of_length(self._centred(x[part]), REST)
        return vectors

    def _centred(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """ψ of ``x`` in whole numbers of 2^-19, before it is brought to its length, ``[n, landmarks]``."""
        kernel = self.kernel(x)
        kernel -= self.centre
        vectors = np.empty_like(kernel)
        for first in range(0, kernel.shape[1], _COLUMNS_AT_ONCE):
            # Rows below a column's own are 0 in a triangular matrix.
            last = min(first + _COLUMNS_AT_ONCE, kernel.shape[1])
            np.matmul(kernel[:, :last], self.whitening[:last, first:last], out=vectors[:, first:last])
        vectors *= FINER
        return np.trunc(vectors, out=vectors)

    def totals(
        self, x: NDArray[Any], labels: NDArray[np.int64], shares: NDArray[np.int64], codes: Codes
    ) -> NDArray[np.int64]:
        """The sum of φ(x) ⊗ code, ``[classes, dimensions]``; on a GPU the same whole numbers.

        Works through so many inputs at a time that what it needs does not grow with their number. Every product and
        every partial sum is a whole number below 2^15 · 2^16 · 2^10 < 2^53, so that double precision is exact.

        Parameters
        ----------
        x : inputs, as for a call.
        labels : the class of each input, ``[n]``.
        shares : what each vector is divided by before it is summed, cut off towards 0, ``[n]``.
        codes : of inputs by their vectors and classes.
        """
        device = resolve_device(self.device)
        at_once = _AT_ONCE if device == "cpu" else _AT_ONCE_ON_GPU
        totals = np.zeros((codes.classes, self.dimensions), dtype=np.int64)
        for start in range(0, len(x), at_once):
            part = slice(start, start + at_once)
            if device == "cpu":
                totals += totals_of(self(x[part]), labels[part], shares[part], codes)
            else:
                totals += self._totals_on_gpu(x[part], labels[part], shares[part], codes, device)
        return totals

    def _totals_on_gpu(
        self, x: NDArray[Any], labels: NDArray[np.int64], shares: NDArray[np.int64], codes: Codes, device: str
    ) -> NDArray[np.int64]:
        import torch

        def there(array: NDArray[Any]) -> torch.Tensor:
            return torch.tensor(array, device=device).double()

        own, landmarks = there(extract(self.features, x, self.inputs, device)), there(self.landmarks)
        squared = own.square().sum(1, keepdim=True) + landmarks.square().sum(1) - 2.0 * (own @ landmarks.T)
        steps = (squared * (STEPS / (2.0 * self.bandwidth_squared))).clamp(max=len(TABLE) - 1).long()
        centred = there(TABLE)[steps] - there(self.centre)
        vectors = (centred @ there(self.whitening) * FINER).trunc()
        # As `of_length` does it.
        scale = torch.sqrt(REST / vectors.square().sum(1, keepdim=True).clamp(min=1.0)) * (1.0 - 1e-9)
        vectors = torch.cat([(vectors * scale).trunc(), torch.full_like(scale, CONSTANT)], dim=1)
        scores = None if codes.weights is None else (vectors @ there(codes.weights.whole)).cpu().numpy()
        of_block = there(codes.of_scores(scores, labels))
        vectors = (vectors / there(shares)[:, None]).trunc()
        summed: NDArray[np.int64] = (of_block.T @ vectors).long().cpu().numpy()
        return summed


def totals_of(
    vectors: NDArray[np.integer[Any]], labels: NDArray[np.int64], shares: NDArray[np.int64], codes: Codes
) -> NDArray[np.int64]:
    """What `KernelMap.totals` adds up of at most 32,768 vectors ``[n, dimensions]``."""
    exact = vectors.astype(np.float64)
    of_block = codes.of(exact, labels).astype(np.float64)
    if (shares > 1).any():
        exact = np.trunc(exact / shares[:, None])
    return np.asarray((of_block.T @ exact).astype(np.int64))


def of_length(vectors: NDArray[np.int64 | np.float64], most_squared: int) -> NDArray[np.int64]:
    """Rows of whole numbers brought to a squared length of ``most_squared`` or, by rounding, a little less.

    A row of zeros stays. Double precision knows a squared length to one part in 2^40. So every row is scaled to a
    length that is shorter by one part in 10^9 and then cut off towards 0, which makes no row longer.
    """
    values = vectors.astype(np.float64)
    scale = np.sqrt(most_squared / np.maximum(np.einsum("ij,ij->i", values, values), 1.0)) * (1.0 - 1e-9)
    return np.asarray(np.trunc(values * scale[:, None]).astype(np.int64))


MAPS: Latest[tuple[str, ...], KernelMap] = Latest(2)
"""Those of this process, by what they were made from."""
