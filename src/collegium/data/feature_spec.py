"""Which features describe an input: the public description that both sides of a request for neighbours share."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium import limits
from collegium.data.values import require

FEATURES = ("hog", "hog+raw", "raw", "standard", "ranks", "network")
"""Extractors by name; see `collegium.data.features`."""


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
    network : of ``network``: a safetensors file as `models.save_network` writes it.
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
