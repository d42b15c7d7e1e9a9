"""Pools of public inputs, kept by their SHA-256 in a folder that several processes may share.

A pool there is ``<sha256>.bin`` and, written last, ``<sha256>.json``; what is still on its way has a
name of its own, so that a reader never meets half a pool and two writers never meet each other.
"""

import contextlib
import hashlib
import json
import os
import secrets
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.values import ArraySpec, PoolChunk, PoolState, array_spec, canonical_bytes, canonical_header
from collegium.errors import PoolMismatch, ProtocolViolation, StorageError
from collegium.limits import MAX_POOL_BYTES
from collegium.whole_files import storing, temporary_folder, write_whole

ABANDONED_AFTER_S = 24 * 3600
MAX_ARRIVING = 2
"""Pools of which some bytes are here; whoever begins another one discards the oldest of them."""
MAX_POOLS = 8
MAX_POOLS_BYTES = 2 * MAX_POOL_BYTES
"""So many pools, and bytes of them, are kept of those that others sent; the oldest are deleted."""


@dataclass
class _Arriving:
    """A pool of which some bytes are here, in a file."""

    path: Path
    digest: Any
    received_bytes: int = 0

    @classmethod
    def begun(cls, spec: ArraySpec, folder: Path) -> "_Arriving":
        path = folder / f"{spec.sha256}.{os.getpid()}-{secrets.token_hex(8)}.part"
        with _storing(folder):
            path.touch(exist_ok=False)
        return cls(path, hashlib.sha256(canonical_header(spec.dtype, spec.shape)))

    def append(self, data: bytes | memoryview) -> None:
        self.digest.update(data)
        with self.storing(), self.path.open("r+b") as file:  # not "ab", which would go on with half a pool
            file.seek(self.received_bytes)
            file.write(data)
        self.received_bytes += len(data)

    @contextlib.contextmanager
    def storing(self) -> Iterator[None]:
        """StorageError where the system refuses; what has arrived is then thrown away."""
        try:
            with _storing(self.path.parent):
                yield
        except StorageError:
            self.discard()
            raise

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)


class PoolStore:
    """Pools by their SHA-256.

    Parameters
    ----------
    folder : where to keep them; None for a temporary folder, which goes away with the store.
    keep : the pools to keep from before, by SHA-256; the others are deleted. None keeps all of them.

    Raises
    ------
    StorageError
        When the folder cannot be read or written.
    """

    def __init__(self, folder: Path | None, *, keep: Collection[str] | None = None) -> None:
        self._folder = folder or temporary_folder(self)
        self._arrays: dict[str, NDArray[Any]] = {}
        self._arriving: dict[str, _Arriving] = {}
        self._lock = threading.RLock()
        with _storing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(self._folder)
            self._remove(name for name in self._held() if keep is not None and name not in keep)

    def holds(self, spec: ArraySpec) -> bool:
        """Whether the whole pool is here."""
        with self._lock:
            return self._stored_spec(spec.sha256) == spec

    def state(self, spec: ArraySpec) -> PoolState:
        """How much of the pool is here."""
        with self._lock:
            if self.holds(spec):
                return PoolState(spec.sha256, spec.size_bytes, complete=True)
            arriving = self._arriving.get(spec.sha256)
            return PoolState(spec.sha256, arriving.received_bytes if arriving else 0, complete=False)

    def put(self, array: NDArray[Any]) -> ArraySpec:
        """Keep ``array`` (uint8 or float32) and return its name."""
        spec = array_spec(array)
        with self._lock:
            if not self.holds(spec):
                arriving = _Arriving.begun(spec, self._folder)
                arriving.append(canonical_bytes(array))
                self._finish(spec, arriving)
        return spec

    def accept(self, chunk: PoolChunk) -> PoolState:
        """Add the next piece of a pool; one that is here already, or that leaves a gap, changes nothing.

        The sender learns from the returned state where to go on.

        Raises
        ------
        PoolMismatch
            When the pool is complete and its digest is not its name; what had arrived is thrown away.
        """
        spec = chunk.pool
        with self._lock:
            arriving = self._arriving.get(spec.sha256)
            if self.holds(spec):
                if arriving is not None:  # another process was faster
                    self._arriving.pop(spec.sha256).discard()
                return self.state(spec)
            if arriving is None:
                if chunk.offset_bytes != 0:
                    return self.state(spec)
                self._make_room(spec)
                arriving = self._arriving[spec.sha256] = _Arriving.begun(spec, self._folder)
            if chunk.offset_bytes == arriving.received_bytes:
                try:
                    arriving.append(chunk.data)
                except StorageError:
                    del self._arriving[spec.sha256]
                    raise
                if arriving.received_bytes >= spec.size_bytes:
                    del self._arriving[spec.sha256]
                    self._finish(spec, arriving)
            return self.state(spec)

    def _make_room(self, spec: ArraySpec) -> None:
        """Before a pool arrives, forget the oldest others beyond the limits of number and bytes."""
        while len(self._arriving) >= MAX_ARRIVING:
            self._arriving.pop(next(iter(self._arriving))).discard()
        held = self._held()
        size_bytes = spec.size_bytes + sum(held.values())
        for name, own_bytes in list(held.items()):
            if len(held) < MAX_POOLS and size_bytes <= MAX_POOLS_BYTES:
                break
            self._remove([name])
            del held[name]
            size_bytes -= own_bytes

    def _held(self) -> dict[str, int]:
        """The size in bytes of every pool that is here, by name, the oldest first."""
        found = [(path.stem, path.stat()) for path in self._folder.glob("*.bin")]
        return {name: stat.st_size for name, stat in sorted(found, key=lambda item: item[1].st_mtime)}

    def _remove(self, names: Iterable[str]) -> None:
        for name in list(names):
            self._arrays.pop(name, None)
            for ending in ("json", "bin"):
                with contextlib.suppress(OSError):
                    self._path(name, ending).unlink()

    def open(self, sha256: str) -> NDArray[Any]:
        """The pool itself, read-only; mapped from disk, and checked when first opened.

        Raises
        ------
        PoolMismatch
            When no complete pool of that name is here, or its file was changed since; it then counts as absent.
        """
        with self._lock:
            array = self._arrays.get(sha256)
            if array is None:
                spec = self._stored_spec(sha256)
                if spec is None:
                    raise PoolMismatch(f"no pool {sha256[:12]} is here: the coordinator must send it first")
                array = self._map(spec)
                self._arrays[sha256] = array
            return array

    def contents(self, sha256: str, positions: Sequence[int]) -> list[bytes]:
        """SHA-256 of each of these inputs, the same in whichever pool and place it stands.

        The positions must lie in the pool; PoolMismatch where it is not here.
        """
        return contents_of(self.open(sha256)[np.array(positions)])

    def _map(self, spec: ArraySpec) -> NDArray[Any]:
        path = self._path(spec.sha256, "bin")
        try:
            array = np.memmap(path, dtype=np.dtype(spec.dtype).newbyteorder("<"), mode="r", shape=spec.shape)
            sound = path.stat().st_size == spec.size_bytes and array_spec(array) == spec
        except (OSError, ValueError):
            sound = False
        if not sound:
            with contextlib.suppress(OSError):
                self._path(spec.sha256, "json").unlink(missing_ok=True)
            raise PoolMismatch(f"{path} was damaged and is not used any more: start again, and the pool is sent again")
        return array

    def _stored_spec(self, sha256: str) -> ArraySpec | None:
        array = self._arrays.get(sha256)
        if array is not None:
            return ArraySpec(sha256, array.dtype.newbyteorder("=").name, tuple(map(int, array.shape)))
        missing_or_damaged = (FileNotFoundError, ValueError, KeyError, TypeError, ProtocolViolation)
        with _storing(self._folder), contextlib.suppress(*missing_or_damaged):
            written = json.loads(self._path(sha256, "json").read_text(encoding="ascii"))
            spec = ArraySpec(sha256, written["dtype"], tuple(written["shape"]))
            return spec if self._path(sha256, "bin").is_file() else None
        return None

    def _finish(self, spec: ArraySpec, arriving: _Arriving) -> None:
        if arriving.digest.hexdigest() != spec.sha256:
            arriving.discard()
            raise PoolMismatch(
                f"the bytes that arrived are not the pool {spec.sha256[:12]}: they were removed; send it again"
            )
        written = json.dumps({"dtype": spec.dtype, "shape": list(spec.shape)})
        with arriving.storing():
            with arriving.path.open("r+b") as file:
                os.fsync(file.fileno())
            os.replace(arriving.path, self._path(spec.sha256, "bin"))
            write_whole(self._path(spec.sha256, "json"), written)

    def _path(self, sha256: str, ending: str) -> Path:
        return self._folder / f"{sha256}.{ending}"


def _storing(folder: Path) -> contextlib.AbstractContextManager[None]:
    return storing(f"keep pools in {folder}")


def contents_of(inputs: NDArray[Any]) -> list[bytes]:
    """SHA-256 of each of some inputs, which names it in whichever pool and place it stands."""
    return [hashlib.sha256(row.tobytes()).digest() for row in np.ascontiguousarray(inputs)]


def _remove_abandoned(folder: Path) -> None:
    """Remove what a process left that ended while a pool was arriving."""
    for path in folder.glob("*part"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > ABANDONED_AFTER_S:
                path.unlink()
