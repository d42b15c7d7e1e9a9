"""Arrays as both sides name them: a digest over one canonical form, and the pieces in which they travel."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.values import ArraySpec, PoolChunk
from collegium.errors import PoolMismatch
from collegium.limits import MAX_CHUNK_BYTES


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


def chunks(array: NDArray[Any], spec: ArraySpec, offset_bytes: int = 0) -> Iterator[PoolChunk]:
    """The pieces of ``array`` from ``offset_bytes`` on, in order, each of at most MAX_CHUNK_BYTES.

    Raises PoolMismatch when the array's form is not that of ``spec``.
    """
    if tuple(array.shape) != spec.shape or array.dtype.newbyteorder("=").name != spec.dtype:
        raise PoolMismatch(f"an array of form {array.dtype}{list(array.shape)} is not the pool {spec.sha256[:12]}")
    data = canonical_bytes(array)
    for offset in range(offset_bytes, len(data), MAX_CHUNK_BYTES):
        yield PoolChunk(spec, offset, bytes(data[offset : offset + MAX_CHUNK_BYTES]))
