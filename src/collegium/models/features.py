"""Features by name, in whole numbers: each input's features depend on that input alone, to the last bit.

`Features` is the public description that both sides of a request for neighbours share, `extract` computes them.

Floating point enters only through single correctly rounded operations on exact values, never through
sums, whose rounding could depend on which other records share a block.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium import limits
from collegium.computing import computed
from collegium.data.task import ImageInputs, Inputs
from collegium.data.values import require
from collegium.errors import DataError
from collegium.models.whole_networks import network_for

FEATURES = ("hog", "pyramid", "raw", "unit", "standard", "ranks", "network")
"""Extractors by name; see `collegium.models.features`."""


PROJECTION_ONE = 1024
"""What stands for 1 in a projection, and the largest entry of one."""


@dataclass(frozen=True, eq=False)
class Features:
    """An extractor and, where there is one, the public projection behind it.

    Parameters
    ----------
    name : one of `FEATURES`.
    projection : float32 ``[extracted, kept]`` of whole numbers from -1024 to 1024; None keeps all.
    scaling : float32 ``[rows, columns]``; of ``standard`` two rows, what is taken off a column and what it is then
        multiplied by; of ``ranks`` ascending values of each column, among which an input's value is ranked.
    network : of ``network``: the file of a network in whole numbers, `models.whole_networks`.
    """

    name: str
    projection: NDArray[Any] | None = field(default=None, repr=False)
    scaling: NDArray[Any] | None = field(default=None, repr=False)
    network: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        require(self.name in FEATURES, f"features are one of {', '.join(FEATURES)}, not {self.name[:32]!r}")
        scaled = self.name in ("standard", "ranks")
        require(scaled == (self.scaling is not None), "the features 'standard' and 'ranks' have a scaling")
        require((self.name == "network") == (self.network is not None), "the features 'network' have a network")
        if self.scaling is not None:
            fits = self.scaling.dtype == np.float32 and self.scaling.ndim == 2
            rows = len(self.scaling) if fits else 0
            require(rows == 2 if self.name == "standard" else 1 <= rows <= 256, "a scaling has rows of 32-bit floats")
            require(self.scaling.shape[1] <= limits.MAX_FEATURES, f"at most {limits.MAX_FEATURES} features")
            require(bool(np.isfinite(self.scaling).all()), "a scaling has finite numbers")
            # A search among values out of order starts from where the search for the record before it ended.
            sorted_ = self.name != "ranks" or bool((np.diff(self.scaling, axis=0) >= 0).all())
            require(sorted_, "the values of a column, among which inputs are ranked, are ascending")
        if self.network is not None:
            require(len(self.network) <= limits.MAX_NETWORK_BYTES, "a network for features is too large")
        weights = self.projection
        if weights is not None:
            require(weights.dtype == np.float32 and weights.ndim == 2, "a projection is a matrix of 32-bit floats")
            require(weights.shape[0] <= limits.MAX_FEATURES, f"at most {limits.MAX_FEATURES} features")
            require(0 < weights.size <= limits.MAX_PROJECTION_ENTRIES, "a projection of so many entries is too large")
            whole = bool((np.abs(weights) <= PROJECTION_ONE).all() and (weights == np.rint(weights)).all())
            require(whole, f"a projection holds whole numbers from -{PROJECTION_ONE} to {PROJECTION_ONE}")

    def digest(self) -> str:
        """The same text for the same features."""
        hasher = hashlib.sha256(f"collegium-features-v1 {self.name}\n".encode())
        if self.projection is not None:
            hasher.update(f"{self.projection.shape}\n".encode())
            hasher.update(np.ascontiguousarray(self.projection, dtype="<f4").tobytes())
        if self.scaling is not None:
            hasher.update(b"scaling\n" + np.ascontiguousarray(self.scaling, dtype="<f4").tobytes())
        if self.network is not None:
            hasher.update(b"network\n" + self.network)
        return hasher.hexdigest()


BINS = 9
"""Orientations of a gradient, over half a turn."""
BLOCK = 2
"""Cells along the side of a block that is normalised together."""
ONE = 1024
"""What stands for 1 in a feature."""

SHORTEST = 1e-30
"""A vector that is shorter is not made longer in full: nothing is divided by 0."""

_LARGEST = 2**15 - 1
CLIP = ONE // 5
_INPUTS_AT_ONCE = 512
_RECORDS_AT_ONCE = 4096


def dimensions(features: Features, inputs: Inputs) -> int:
    """How many numbers an input of the task becomes.

    Raises
    ------
    DataError
        If the extractor does not suit the task, or the projection is for features of another dimension.
    """
    extracted = _extracted(features, inputs)
    if features.projection is None:
        return extracted
    if features.projection.shape[0] != extracted:
        raise DataError(
            f"the projection is for {features.projection.shape[0]} features, {features.name} gives {extracted} here: "
            "make it from this task's pool"
        )
    return int(features.projection.shape[1])


def extract(features: Features, x: NDArray[Any], inputs: Inputs, device: str = "cpu") -> NDArray[np.int16]:
    """Features of ``x``, shape ``[n, dimensions]``.

    Parameters
    ----------
    x : uint8 ``[n, height, width, channels]`` or float32 ``[n, columns]`` in [0, 1].
    device : where a network computes.

    Raises
    ------
    DataError
        If the extractor does not suit the task, or the projection is for features of another dimension.
    """
    kept = np.empty((len(x), dimensions(features, inputs)), dtype=np.int16)
    for start in range(0, len(x), _INPUTS_AT_ONCE):
        block = np.asarray(x[start : start + _INPUTS_AT_ONCE])
        values = _values(features, block, inputs, device)
        if features.projection is not None:
            # Products and sums of whole numbers far below 2^53 are exact in any order.
            summed = values.astype(np.float64) @ features.projection.astype(np.float64)
            values = np.clip(np.floor(summed / PROJECTION_ONE), -_LARGEST, _LARGEST)
        kept[start : start + len(block)] = values
        computed(len(block))
    return kept


def distances_squared(records: NDArray[np.int16], queries: NDArray[np.int16]) -> NDArray[np.int64]:
    """Squared Euclidean distances, shape ``[records, queries]``; exact.

    Works through 4,096 records at a time, so that ``4096 × (dimensions + queries)`` doubles are needed beside the
    result. Raises DataError when the two differ in dimension.
    """
    if records.shape[1] != queries.shape[1]:
        raise DataError(f"features of {records.shape[1]} and of {queries.shape[1]} dimensions have no distance")
    asked = queries.astype(np.float64)
    asked_squared = np.square(asked).sum(axis=1)
    result = np.empty((len(records), len(queries)), dtype=np.int64)
    for start in range(0, len(records), _RECORDS_AT_ONCE):
        block = records[start : start + _RECORDS_AT_ONCE].astype(np.float64)
        squared = block @ (-2.0 * asked.T)
        squared += np.einsum("ij,ij->i", block, block)[:, None]
        squared += asked_squared
        result[start : start + len(block)] = squared
    return result


def _values(features: Features, block: NDArray[Any], inputs: Inputs, device: str) -> NDArray[Any]:
    if features.scaling is not None:
        return (_standard if features.name == "standard" else _ranks)(block, features.scaling)
    if features.network is not None:
        return network_for(features.network, inputs, device).features(block)
    if features.name == "unit":
        return _unit(block)
    if features.name == "pyramid":
        scales = [_hog(block, cell) for cell in pyramid_cells(inputs)]
        return np.concatenate([*scales, _thumbnail(block, inputs)], axis=1)
    return _hog(block, cell_of(*block.shape[1:3])) if features.name == "hog" else _raw(block)


def _extracted(features: Features, inputs: Inputs) -> int:
    columns = int(np.prod(inputs.shape))
    if features.scaling is not None and features.scaling.shape[1] != columns:
        raise DataError(
            f"the scaling is for {features.scaling.shape[1]} columns, this task has {columns}: "
            "make it from this task's pool"
        )
    if features.network is not None:
        return network_for(features.network, inputs).dimensions
    if features.name not in ("hog", "pyramid"):
        return columns
    if inputs.kind != "image":
        raise DataError("gradient histograms are for images: use the features 'standard' for a table")
    if features.name == "pyramid":
        return sum(pyramid_parts(inputs))
    return _histogram_size(inputs, cell_of(inputs.height, inputs.width))


def pyramid_parts(inputs: ImageInputs) -> tuple[int, ...]:
    """How many numbers the parts of the features ``pyramid`` have: gradient histograms by scale, then the thumbnail."""
    pixels = math.prod(-(-side // thumbnail_step(inputs)) for side in inputs.shape[:2]) * inputs.channels
    return (*(_histogram_size(inputs, cell) for cell in pyramid_cells(inputs)), pixels)


def _histogram_size(inputs: ImageInputs, cell: int) -> int:
    rows, columns = -(-inputs.height // cell), -(-inputs.width // cell)
    if min(rows, columns) < BLOCK:
        raise DataError(f"images of {inputs.height} × {inputs.width} pixels are too small for gradient histograms")
    return (rows - BLOCK + 1) * (columns - BLOCK + 1) * BLOCK * BLOCK * BINS


def cell_of(height: int, width: int) -> int:
    """Pixels along the side of a cell: 4, and 2 for tiny images."""
    return 4 if min(height, width) >= 16 else 2


def pyramid_cells(inputs: Inputs) -> list[int]:
    """Pixels along the side of a cell at each scale: a seventh and a quarter of an image, at least 2."""
    assert isinstance(inputs, ImageInputs)
    side = min(inputs.height, inputs.width)
    return sorted({max(2, side // 7), max(2, round(side / 4))})


def thumbnail_step(inputs: Inputs) -> int:
    """Pixels along the side of a square that becomes one pixel; the thumbnail has at most 32 along its shorter side."""
    assert isinstance(inputs, ImageInputs)
    return -(-min(inputs.height, inputs.width) // 32)


def _thumbnail(x: NDArray[Any], inputs: Inputs) -> NDArray[np.int64]:
    """Pixels, those of a larger image averaged over squares; rounded down."""
    step = thumbnail_step(inputs)
    missing = [(0, -size % step) for size in x.shape[1:3]]
    padded = np.pad(x, ((0, 0), *missing, (0, 0)), mode="edge").astype(np.int64)
    rows, columns = padded.shape[1] // step, padded.shape[2] // step
    squares = padded.reshape(len(x), rows, step, columns, step, x.shape[3]).sum(axis=(2, 4)) // step**2
    return np.asarray(squares.reshape(len(x), -1), dtype=np.int64)


def _raw(x: NDArray[Any]) -> NDArray[np.int64]:
    flat = x.reshape(len(x), -1)
    if flat.dtype == np.uint8:
        return flat.astype(np.int64)
    return _rounded(flat.astype(np.float64) * ONE).astype(np.int64)


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.clip(np.floor(values + 0.5), -_LARGEST, _LARGEST))


def unit_one(columns: int) -> float:
    """What stands for a length of 1 in the features ``unit``: an entry is `ONE` in the root mean square."""
    return ONE * math.sqrt(columns)


def _unit(x: NDArray[Any]) -> NDArray[np.float64]:
    """Every vector at one length, whatever its own is; squares are added one after the other, vector by vector."""
    flat = x.reshape(len(x), -1).astype(np.float64)
    length = np.sqrt(np.cumsum(np.square(flat), axis=1)[:, -1:])
    return _rounded(flat * (unit_one(flat.shape[1]) / np.maximum(length, SHORTEST)))


def _standard(x: NDArray[Any], scaling: NDArray[Any]) -> NDArray[np.float64]:
    """(column − centre) · factor in parts of 1/1024: one subtraction and two products of each number alone."""
    centre, factor = scaling.astype(np.float64)
    return _rounded((x.reshape(len(x), -1).astype(np.float64) - centre) * factor * ONE)


def _ranks(x: NDArray[Any], knots: NDArray[Any]) -> NDArray[np.int64]:
    """The share of a column's knots below each value, equal ones counted half, in parts of 1/1024."""
    flat = x.reshape(len(x), -1)
    below = [
        np.searchsorted(column, values, "left") + np.searchsorted(column, values, "right")
        for column, values in zip(knots.T, flat.T, strict=True)
    ]
    return np.stack(below, axis=1).astype(np.int64) * ONE // (2 * len(knots))


@cache
def orientation_votes() -> NDArray[np.int32]:
    """Votes of a gradient (right − left, below − above) for each orientation, shape ``[bins, 511, 511]``.

    Its length, divided between the two nearest orientations, in sixteenths.
    """
    right, below = np.meshgrid(np.arange(-255, 256), np.arange(-255, 256), indexing="ij")
    length = np.hypot(right, below)
    turn = np.mod(np.arctan2(below, right), np.pi) / np.pi * BINS
    votes = np.empty((BINS, 511, 511), dtype=np.int32)
    for number in range(BINS):
        away = np.abs(turn - number)
        away = np.minimum(away, BINS - away)
        votes[number] = np.rint(16 * length * np.maximum(0.0, 1.0 - away))
    return votes


def _hog(x: NDArray[Any], cell: int) -> NDArray[np.int64]:
    """Histograms of oriented gradients (Dalal and Triggs 2005): 9 orientations, 2 × 2 cells a block, clipped at 0.2."""
    height, width = x.shape[1:3]
    grey = x.astype(np.int32).sum(axis=3) // x.shape[3]
    padded = np.pad(grey, ((0, 0), (1, 1), (1, 1)), mode="edge")
    right = padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2] + 255
    below = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1] + 255
    gradient = right * 511 + below
    rows, columns = -(-height // cell), -(-width // cell)
    missing = ((0, 0), (0, rows * cell - height), (0, columns * cell - width))
    cells = np.empty((len(x), rows, columns, BINS), dtype=np.int64)
    for number, votes in enumerate(orientation_votes()):
        voted = np.pad(votes.reshape(-1)[gradient], missing)
        cells[..., number] = voted.reshape(len(x), rows, cell, columns, cell).sum(axis=(2, 4))
    down, across = rows - BLOCK + 1, columns - BLOCK + 1
    parts = [cells[:, i : i + down, j : j + across] for i in range(BLOCK) for j in range(BLOCK)]
    blocks = np.concatenate(parts, axis=3)
    once = np.minimum(_normalised(blocks), CLIP)
    return _normalised(once).reshape(len(x), -1)


def _normalised(blocks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each block's vector at length 1, rounded down: sums of whole numbers, then a root and a quotient."""
    length = np.sqrt((np.square(blocks).sum(axis=3, keepdims=True) + 1).astype(np.float64))
    normalised: NDArray[np.int64] = np.floor(blocks * ONE / length).astype(np.int64)
    return normalised


def check_landmarks(landmarks: Sequence[int]) -> None:
    """Raise ProtocolViolation unless these can be positions of landmarks in a pool."""
    most = limits.MAX_LANDMARKS
    require(1 <= len(landmarks) <= most, f"there are 1 to {most} landmarks")
    require(len(set(landmarks)) == len(landmarks), "landmarks differ from each other")
    require(min(landmarks) >= 0, "positions in a pool are numbered from 0")


def features_of_landmarks(
    features: Features, landmarks: Sequence[int], pool: NDArray[Any], inputs: Inputs, device: str = "cpu"
) -> NDArray[np.int16]:
    """The features of these inputs of the pool ``[inputs, …]``, shape ``[landmarks, features]``.

    Raises
    ------
    ProtocolViolation
        If a landmark lies outside the pool.
    DataError
        If the features do not suit the task.
    """
    require(0 <= min(landmarks) <= max(landmarks) < len(pool), "a landmark lies outside the pool")
    return extract(features, pool[list(landmarks)], inputs, device)
