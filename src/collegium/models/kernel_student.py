"""The classifier that noisy class sums were fitted to, which scores any input; its file is safetensors."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from collegium.data.task import Task
from collegium.errors import CollegiumError, StorageError
from collegium.limits import MAX_LANDMARKS
from collegium.models.arrays import load_arrays, save_arrays
from collegium.models.codes import Weights, powers_of
from collegium.models.features import Features, dimensions
from collegium.models.kernels import RIDGES, KernelMap

if TYPE_CHECKING:
    from collegium.models.whole_networks import WholeNetwork

KERNEL_FORMAT = "collegium-kernel-v4"
"""The key of a file's metadata that describes a kernel student."""

_AT_ONCE = 2048
SMALLEST = 0.05
"""Of 1/C: the smallest share that a class gets before shares are made to add up to 1."""
NETWORK = 2.0 / 3.0
"""The weight of the network beside the kernel, whose probabilities are flatter."""


@dataclass(frozen=True, eq=False)
class KernelStudent:
    """Scores φ(x)ᵀ·coefficients by the kernel map φ.

    Parameters
    ----------
    coefficients : float64 ``[dimensions, classes]``, for φ of length 1.
    logistic : whether probabilities are those of multinomial logistic regression, rather than the scores + 1/C.
    network : a network that learned the pool's classes by these scores; its probabilities count twice in the mean.
    drawn : whether the landmarks were drawn from the public schema, so that records need not be like them.
    """

    task: Task
    kernel: KernelMap
    coefficients: NDArray[np.float64]
    logistic: bool = False
    network: "WholeNetwork | None" = None
    drawn: bool = False

    def __repr__(self) -> str:
        return f"KernelStudent of {len(self.kernel.landmarks)} landmarks"

    def _scores(self, weights: Weights, x: NDArray[Any]) -> NDArray[np.float64]:
        """φ(x)ᵀ·coefficients in units of ``weights``: estimates of Pr[class | input] − 1/C, or of its logarithm.

        They are drawn towards 0 where noise hides them. Row i depends on ``x[i]`` alone, to the last bit, whichever the
        coefficients are (`codes.Weights`).
        """
        scores = np.empty((len(x), self.coefficients.shape[1]))
        for start in range(0, len(x), _AT_ONCE):
            vectors = self.kernel(x[start : start + _AT_ONCE]).astype(np.float64)
            scores[start : start + len(vectors)] = weights.scores(vectors)
        return scores

    def probabilities(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """In proportion to exp(score), or to the scores + 1/C, at least 0.05/C; or the mean with a network's.

        Shape ``[n, classes]``; rows add up to 1.
        """
        weights, share = Weights.of(self.coefficients), 1.0 / len(self.task.classes)
        scores = self._scores(weights, x)
        if self.logistic:
            raised = powers_of(scores, weights.unit)
        else:
            raised = np.maximum(scores * weights.unit + share, SMALLEST * share)
        total = np.cumsum(raised, axis=1)[:, -1:]  # one after the other: the same in whatever block a row stands
        own = np.asarray(raised / total)
        return own if self.network is None else (1 - NETWORK) * own + NETWORK * self.network.probabilities(x)

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """The class of the highest probability, ``[n]``."""
        return np.asarray(self.probabilities(x).argmax(axis=1), dtype=np.int64)

    def save(self, path: Path) -> None:
        """Write the arrays as safetensors, with the task; StorageError if that fails."""
        kernel = self.kernel
        arrays: dict[str, NDArray[Any]] = {"landmarks": kernel.landmarks, "coefficients": self.coefficients}
        for name in ("projection", "scaling"):
            if (array := getattr(kernel.features, name)) is not None:
                arrays[name] = array
        if kernel.features.network is not None:
            arrays["network"] = np.frombuffer(kernel.features.network, dtype=np.uint8)
        if self.network is not None:
            arrays["beside"] = np.frombuffer(self.network.to_bytes(), dtype=np.uint8)
        numbers = {"bandwidth_squared": kernel.bandwidth_squared, "ridge": kernel.ridge}
        numbers |= {"logistic": self.logistic, "drawn": self.drawn}
        task, features = self.task.model_dump(mode="json"), kernel.features.name
        save_arrays(path, KERNEL_FORMAT, arrays, task=task, features=features, **numbers)


def read_student(path: Path, *, device: str) -> KernelStudent:
    """What `KernelStudent.save` wrote; raises StorageError for another or a damaged file."""
    arrays, about = load_arrays(path, KERNEL_FORMAT)
    try:
        task = Task.model_validate(about["task"])
        network = arrays["network"].tobytes() if "network" in arrays else None
        features = Features(about["features"], arrays.get("projection"), arrays.get("scaling"), network)
        landmarks, coefficients = arrays["landmarks"], arrays["coefficients"]
        bandwidth, ridge, logistic = int(about["bandwidth_squared"]), about["ridge"], about["logistic"]
        drawn = about["drawn"]
    except (ValueError, KeyError, TypeError, ValidationError, CollegiumError) as error:
        raise StorageError(f"{path.name} cannot be read as a kernel student: {error}") from error
    fits = (
        landmarks.dtype == np.int16
        and coefficients.dtype == np.float64
        and landmarks.ndim == coefficients.ndim == 2
        and 1 <= len(landmarks) == len(coefficients) - 1 <= MAX_LANDMARKS
        and landmarks.shape[1] == dimensions(features, task.inputs)
        and coefficients.shape[1] == len(task.classes)
        and bool(np.isfinite(coefficients).all())
        and 1 <= bandwidth < 2**40
        and ridge in RIDGES
        and logistic in (True, False)
        and drawn in (True, False)
    )
    if not fits:
        raise StorageError(f"{path.name} holds a damaged kernel student")
    kernel = KernelMap.of_landmarks(features, task.inputs, bandwidth, ridge, landmarks, device)
    student = KernelStudent(task, kernel, coefficients, logistic, drawn=drawn)
    if "beside" not in arrays:
        return student
    from collegium.models.whole_networks import read_whole_network

    beside = read_whole_network(arrays["beside"].tobytes(), path.name)
    if beside.task != task:
        raise StorageError(f"{path.name} holds a kernel student and a network of another task")
    return replace(student, network=beside.on(device))
