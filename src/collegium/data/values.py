"""What requests and replies are made of: checked names, and arrays, named by a digest and sent in pieces."""

import hashlib
import math
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium import limits
from collegium.data.task import PARTY_NAME
from collegium.errors import CollegiumError, ProtocolViolation

SHA256 = re.compile(r"[0-9a-f]{64}")
IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
DTYPES = {"uint8": 1, "float32": 4}


def require(holds: bool, what: str) -> None:
    """Raise ProtocolViolation, saying ``what`` should hold, unless it does."""
    if not holds:
        raise ProtocolViolation(what)


def check_party_name(name: str, error: type[CollegiumError] = ProtocolViolation) -> str:
    """The name itself; raises ``error`` unless it is 1 to 63 lower-case letters, digits and inner hyphens."""
    if PARTY_NAME.fullmatch(name) is None:
        raise error(f"{name[:64]!r} is not a name: use up to 63 lower-case letters, digits and inner hyphens")
    return name


@dataclass(frozen=True)
class ArraySpec:
    """An array named by the SHA-256 of its header and row-major little-endian bytes (`inputs.array_spec`)."""

    sha256: str
    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        require(SHA256.fullmatch(self.sha256) is not None, "an array is named by 64 hexadecimal digits")
        require(self.dtype in DTYPES, f"arrays are uint8 or float32, not {self.dtype[:32]!r}")
        require(1 <= len(self.shape) <= limits.MAX_DIMENSIONS, "an array has 1 to 4 dimensions")
        require(all(size > 0 for size in self.shape), "an array's sizes are positive")
        require(self.shape[0] <= limits.MAX_POOL_INPUTS, f"at most {limits.MAX_POOL_INPUTS} inputs")
        require(self.size_bytes <= limits.MAX_POOL_BYTES, f"at most {limits.MAX_POOL_BYTES} bytes")

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype]


@dataclass(frozen=True)
class PoolChunk:
    """A piece of the pool, in order."""

    pool: ArraySpec
    offset_bytes: int
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        require(0 < len(self.data) <= limits.MAX_CHUNK_BYTES, f"a chunk holds 1 to {limits.MAX_CHUNK_BYTES} bytes")
        require(0 <= self.offset_bytes <= self.pool.size_bytes - len(self.data), "a chunk lies within its pool")


@dataclass(frozen=True)
class PoolState:
    """How much of a pool the party holds."""

    sha256: str
    received_bytes: int
    complete: bool

    def __post_init__(self) -> None:
        require(SHA256.fullmatch(self.sha256) is not None, "a pool is named by 64 hexadecimal digits")
        require(0 <= self.received_bytes <= limits.MAX_POOL_BYTES, "a pool's size is bounded")


def canonical_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """What is hashed before an array's bytes, so that equal bytes of another shape have another name."""
    return f"collegium-array-v1 {dtype} {','.join(map(str, shape))}\n".encode("ascii")


def canonical_bytes(array: NDArray[Any]) -> memoryview:
    """The row-major little-endian bytes of ``array``, without a copy where it has them already."""
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return little.reshape(-1).view(np.uint8).data


def array_spec(array: NDArray[Any]) -> ArraySpec:
    """The name of ``array``: SHA-256 over its dtype, its shape and its row-major little-endian bytes.

    Raises
    ------
    ProtocolViolation
        When it is not uint8 or float32, has no element, or is beyond the protocol's limits.
    """
    shape = tuple(map(int, array.shape))
    dtype = array.dtype.newbyteorder("=").name
    digest = hashlib.sha256(canonical_header(dtype, shape))
    ArraySpec(digest.hexdigest(), dtype, shape)
    digest.update(canonical_bytes(array))
    return ArraySpec(digest.hexdigest(), dtype, shape)
