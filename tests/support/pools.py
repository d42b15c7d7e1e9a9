"""A pool in pieces, as a coordinator sends it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from collegium.data.values import ArraySpec, PoolChunk, canonical_bytes
from collegium.limits import MAX_CHUNK_BYTES


def chunks(array: NDArray[Any], spec: ArraySpec) -> Iterator[PoolChunk]:
    """The pieces of ``array``, in order, each of at most MAX_CHUNK_BYTES."""
    data = canonical_bytes(array)
    for offset in range(0, len(data), MAX_CHUNK_BYTES):
        yield PoolChunk(spec, offset, bytes(data[offset : offset + MAX_CHUNK_BYTES]))
