"""Noisy class sums, and the classifier that they are filtered into, which scores any input; its file is safetensors.

With b the sum of φ(x) ⊗ (e_y − Pr[y]) over n records, and M the sum of φφᵀ over the same records, M⁻¹b is the
least-squares estimate of Pr[y | x] − Pr[y] where φ has mean 0. Mean and M are estimated by the pool's own. In M's
eigenbasis, b is multiplied by λ/(λ² + λ + κ²) in a direction of eigenvalue λ: a Wiener filter. The λ beside κ² stands
for what the sample of records itself adds to the noise. κ is 3 times the noise on an entry; the factor, like
the other constants of the default, was chosen on records that were held out from the parties' own, never on a test set.
n is read from the sum's last entry, which carries the same noise. The constant entry of φ gives Pr[y] − 1/C.

What the noise hides, the pool's own structure shows in part. The filtered classifier gives every input of the pool a
share in each class (`shares_in_classes`), where the classes are as frequent as the sums say that they are among the
records (`of_frequencies`). The next classifier is the least-squares fit to the sums, to the extent that noise leaves
them trusted, and to these shares, where each input of the pool weighs as much as one record, and all of them at most
0.3 of what the records weigh. It gives shares again; the third such classifier is the final one. With two classes the
first one is the final one, its shares are as they are, and the rarer class is named more often (`threshold`). Where
whole parties are protected, the sums do not say how frequent classes are: with two classes the filtered classifier is
the final one, with more the first fit to the pool. All of this follows from released sums and public inputs.

References
----------
Wiener, "Extrapolation, interpolation, and smoothing of stationary time series", 1949.
Deming and Stephan, "On a least squares adjustment of a sampled frequency table", Ann. Math. Statistics 1940.
Scudder, "Probability of error of some adaptive pattern-recognition machines", 1965 (learning from one's own labels).
Balog, Tolstikhin and Schölkopf, "Differentially private database release via kernel mean embeddings", ICML 2018.
"""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from collegium.data.task import Task
from collegium.errors import CollegiumError, StorageError
from collegium.limits import MAX_LANDMARKS
from collegium.models.arrays import load_arrays, save_arrays
from collegium.models.features import Features, dimensions
from collegium.models.kernels import CONSTANT, RIDGES, KernelMap, KernelSpec
from collegium_accounting.mechanisms.class_sums import ONE, count_of_one
from collegium_accounting.units import IntArray

if TYPE_CHECKING:
    from collegium.models.whole_networks import WholeNetwork

KERNEL_FORMAT = "collegium-kernel-v2"
"""The key of a file's metadata that describes a kernel student."""

_AT_ONCE = 2048
_LARGEST = 2.0**30
_KEPT = 10_000
"""How many inputs of the pool take part in the fits to the pool at most."""
_FEWEST_RECORDS = 10.0
_CLEAR = 0.25
_KAPPA = 3.0
_POOL_WEIGHT = 0.3
_PASSES = 3
PARTY_CONTRIBUTIONS = 3.0
"""What the vector of a whole party counts as in contributions: so much longer is it made than the mean of its records.

On held-out records of three sets it is 2.7 to 4.3 times as long; the filter works alike from 2 to 4.
"""
_SMALLEST = 0.05
"""Of 1/C: the smallest share that a class gets before shares are made to add up to 1."""
_NETWORK = 2.0 / 3.0
"""The weight of the network beside the kernel, whose probabilities are flatter."""


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Class sums as they were released; public.

    Parameters
    ----------
    kernel : the map under which records contributed.
    values : int64 ``[classes · dimensions + 1]``: class by class, then the count.
    noise : standard deviation of the noise on every entry.
    contributions : how many contributions the sum stands for, where that is public; read from the count where None.
    """

    kernel: KernelSpec
    values: IntArray
    noise: float
    contributions: float | None = None
    _found: list[tuple["KernelStudent", NDArray[np.float64], bool]] = field(
        default_factory=list, init=False, repr=False
    )

    def of_pool(
        self, pool: NDArray[Any], task: Task, device: str = "cpu"
    ) -> tuple["KernelStudent", NDArray[np.float64], bool]:
        """The `classifier`, its probabilities of the pool's inputs, and whether these teach features; computed once.

        The probabilities have shape ``[inputs, classes]``. Where the sum stands for less than a quarter of the
        contributions that it needs (`PoolSpectrum.contributions_needed`), so many labels are wrong that features
        learned from them tell less than the same sum taken once more.
        """
        if not self._found:
            spectrum = PoolSpectrum.of_pool(KernelMap.of_pool(self.kernel, pool, task.inputs, device), pool)
            student, classes = self.classifier(pool, task, device, spectrum), len(task.classes)
            clear = self.count(classes) >= _CLEAR * spectrum.contributions_needed(self.noise, classes)
            self._found.append((student, student.probabilities(pool), clear))
        return self._found[0]

    def count(self, classes: int) -> float:
        """How many contributions the sum stands for."""
        if self.contributions is not None:
            return self.contributions
        return max(_FEWEST_RECORDS, float(self.values[-1]) / count_of_one(classes))

    def mean_with(self, other: "NoisySums") -> "NoisySums":
        """The mean with another sum under the same map, whose noise is another."""
        values, count = np.rint((self.values + other.values) / 2).astype(np.int64), self.contributions
        if count is not None and other.contributions is not None:
            count = (count + other.contributions) / 2
        return NoisySums(self.kernel, values, math.hypot(self.noise, other.noise) / 2, count)

    def classifier(
        self, pool: NDArray[Any], task: Task, device: str = "cpu", spectrum: "PoolSpectrum | None" = None
    ) -> "KernelStudent":
        """The filtered classifier.

        Parameters
        ----------
        pool : the one whose inputs are the landmarks.
        spectrum : of that pool under ``kernel``; computed where it is None.
        """
        classes = len(task.classes)
        found = spectrum or PoolSpectrum.of_pool(KernelMap.of_pool(self.kernel, pool, task.inputs, device), pool)
        count = self.count(classes)
        sums = self.values[:-1].reshape(classes, -1).T / (ONE * classes)
        sums = sums - sums.mean(axis=1, keepdims=True)  # contributions add up to 0 over the classes, noise does not
        noise = self.noise / (ONE * classes)
        # How frequent each class is. Where noise hides that, it would decide the class of every input: so much of it
        # is taken off as noise explains (James and Stein 1961).
        frequent = sums[-1] * ONE / (CONSTANT * count)
        variance = classes * (noise * ONE / (CONSTANT * count)) ** 2
        frequent *= max(0.0, 1.0 - variance / max(float(frequent @ frequent), 1e-300))
        differing = found.axes.T @ (sums[:-1] - count * np.outer(found.mean, frequent))
        eigenvalues = (found.eigenvalues * count)[:, None]
        trusted = eigenvalues / (eigenvalues + (_KAPPA * noise) ** 2)
        filtered = trusted / (trusted * eigenvalues + 1.0)
        coefficients = found.axes @ (filtered * differing)
        # How well the scores of records agree with their classes, less what the noise itself adds to that.
        agreement = (float((filtered * differing**2).sum()) - noise**2 * (classes - 1) * float(filtered.sum())) / count
        prior = np.maximum(frequent + 1.0 / classes, 0.1 / classes)
        prior /= prior.sum()
        weight = min(len(found.vectors) / count, _POOL_WEIGHT)
        # A party weights its classes by the roots of their numbers, so that its sums do not say how frequent they are.
        # With two classes, more passes only make the shares surer.
        of_records = self.contributions is None
        matched = of_records and classes > 2
        for _ in range(_PASSES if matched else int(of_records or classes > 2)):
            scores = found.vectors @ coefficients - found.mean @ coefficients
            shares = shares_in_classes(scores, prior, agreement)
            shares = of_frequencies(shares, prior) if matched else shares
            learned = found.axes.T @ (found.vectors.T @ (shares - shares.mean(axis=0))) * (weight * count / len(shares))
            coefficients = found.axes @ ((trusted * differing + learned) / ((trusted + weight) * eigenvalues + 1.0))
        constant = (frequent - found.mean @ coefficients) * ONE / CONSTANT
        if classes == 2 and of_records:
            lead = np.diff(found.vectors @ coefficients + constant * CONSTANT / ONE)[:, 0]
            constant -= np.array([-0.5, 0.5]) * threshold(lead, float(prior[1]), variance / classes) * ONE / CONSTANT
        return KernelStudent(task, found.kernel, np.concatenate([coefficients, constant[None]]))


def shares_in_classes(scores: NDArray[np.float64], prior: NDArray[np.float64], agreement: float) -> NDArray[np.float64]:
    """What share each input has in each class: softmax(scores/t) times the prior.

    t is such that the shares agree with the scores as well as the classes of the records do. So the shares are nearly
    0 or 1 where classes lie apart, and stay near the prior where scores tell little.

    Parameters
    ----------
    scores : ``[inputs, classes]``.
    prior : how frequent each class is, ``[classes]``.
    agreement : mean over records of the score of a record's own class, less the scores' mean under the prior.

    Returns
    -------
    float64 array
        ``[inputs, classes]``; rows add up to 1.
    """
    scores = scores - (scores @ prior)[:, None]
    spread = max(float(scores.std()), 1e-12)

    def shares(temperature: float) -> NDArray[np.float64]:
        raised = np.exp((scores - scores.max(axis=1, keepdims=True)) / temperature) * prior
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))

    low, high = 1e-2 * spread, 1e4 * spread
    for _ in range(30):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if float((shares(middle) * scores).sum(axis=1).mean()) > agreement else (low, middle)
    return shares(high)


def of_frequencies(shares: NDArray[np.float64], frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
    """The shares of inputs in classes, each class scaled so that it is as frequent among the inputs as it should be.

    Classes and inputs are scaled in turn (Deming and Stephan 1940). So no class takes inputs from the others because
    noise made its scores large.

    Parameters
    ----------
    shares : ``[inputs, classes]``; rows add up to 1, as those of the result do.
    frequencies : what the mean of the result's rows nearly is, ``[classes]``, positive.
    """
    for _ in range(30):
        shares = shares * (frequencies / np.maximum(shares.mean(axis=0), 1e-12))
        shares /= shares.sum(axis=1, keepdims=True)
    return shares


def threshold(lead: NDArray[np.float64], frequency: float, variance: float) -> float:
    """Where to part two classes, so that the rarer one is not named too seldom: 0 or a little beside it.

    Least squares names a rare class less often than it occurs. The number of inputs that are named so is moved three
    quarters of the way to the class's frequency among the records, after what chance explains is taken off (James and
    Stein 1961). It is moved by at most a quarter of the inputs already named so: where scores tell little, a rare class
    is rightly named almost never.

    Parameters
    ----------
    lead : by how much the second class's score is above the first's, of the pool's inputs, ``[inputs]``.
    frequency : of the second class among the records.
    variance : of the noise on that frequency.
    """
    if (lead > 0).mean() > frequency:
        return -threshold(-lead, 1.0 - frequency, variance)
    named = float((lead > 0).mean())
    missing = frequency - named
    by_chance = variance + frequency * (1.0 - frequency) / len(lead)
    more = min(0.75 * (missing - by_chance / max(missing, 1e-12)), 0.25 * named)
    return float(np.quantile(lead, 1.0 - named - more)) if more > 0 and frequency < 0.5 else 0.0


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
        return _KAPPA * noise / (ONE * classes) / max(float(directions[-1]), 1e-12)


@dataclass(frozen=True, eq=False)
class KernelStudent:
    """Scores φ(x)ᵀ·coefficients by the kernel map φ.

    Parameters
    ----------
    coefficients : float64 ``[dimensions, classes]``, for φ of length 1.
    network : a network that learned the pool's classes by these scores; its probabilities count twice in the mean.
    """

    task: Task
    kernel: KernelMap
    coefficients: NDArray[np.float64]
    network: "WholeNetwork | None" = None

    def scores(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Estimates of Pr[class | input] − 1/C, drawn towards 0 where noise hides them; ``[n, classes]``.

        Row i depends on ``x[i]`` alone, to the last bit, whichever the coefficients are. These are rounded to whole
        numbers of up to 2^30. φ(x) is whole numbers too, of a Euclidean length of at most 2^16, and has at most 4,097
        of them. So every partial sum of products is a whole number of at most 2^16 · 2^30 · √4097 < 2^53, which is
        exact in any order of addition.
        """
        # Never below the normal range, where torch may be told to take numbers for 0.
        unit = max(float(np.abs(self.coefficients).max()), 1e-290) / _LARGEST
        whole = np.rint(self.coefficients / unit)
        scores = np.empty((len(x), whole.shape[1]))
        for start in range(0, len(x), _AT_ONCE):
            vectors = self.kernel(x[start : start + _AT_ONCE]).astype(np.float64)
            scores[start : start + len(vectors)] = vectors @ whole * (unit / ONE)
        return scores

    def probabilities(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """The scores + 1/C, at least 0.05/C, made to add up to 1, or their mean with a network's; ``[n, classes]``."""
        share = 1.0 / len(self.task.classes)
        raised = np.maximum(self.scores(x) + share, _SMALLEST * share)
        total = np.cumsum(raised, axis=1)[:, -1:]  # one after the other: the same in whatever block a row stands
        own = np.asarray(raised / total)
        return own if self.network is None else (1 - _NETWORK) * own + _NETWORK * self.network.probabilities(x)

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """The class of the highest probability, ``[n]``."""
        return np.asarray(self.probabilities(x).argmax(axis=1), dtype=np.int64)

    def to_onnx(self, graph: Any, x: str) -> str:
        """Add the student to an `onnx_export.OnnxGraph`; returns the name of the probabilities."""
        from collegium.models.kernel_onnx import scores_of, shares_of

        scores = scores_of(graph, x, self.kernel, self.coefficients)
        own = shares_of(graph, scores, len(self.task.classes), _SMALLEST)
        if self.network is None:
            return own
        parts = ((own, 1 - _NETWORK), (self.network.to_onnx(graph, x), _NETWORK))
        mean: str = graph.add("Add", *(graph.add("Mul", part, graph.constant(np.float32(w))) for part, w in parts))
        return mean

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
        bandwidth, ridge = int(about["bandwidth_squared"]), about["ridge"]
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
    )
    if not fits:
        raise StorageError(f"{path.name} holds a damaged kernel student")
    kernel = KernelMap.of_landmarks(features, task.inputs, bandwidth, ridge, landmarks, device)
    student = KernelStudent(task, kernel, coefficients)
    if "beside" not in arrays:
        return student
    from collegium.models.whole_networks import read_whole_network

    beside = read_whole_network(arrays["beside"].tobytes(), path.name)
    if beside.task != task:
        raise StorageError(f"{path.name} holds a kernel student and a network of another task")
    return replace(student, network=beside.on(device))
