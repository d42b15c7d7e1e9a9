"""One process at a time serves a consortium's folder: a lock that dies with its process."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collegium.coordinator.settings.consortium import ConsortiumFolder
from collegium.errors import StorageError


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Hold the lock within; StorageError when another process does."""
    try:
        file = lock.open("a")
    except OSError as error:
        raise StorageError(f"cannot write {lock}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StorageError(f"another process serves {lock.parent}; stop it first") from error
        yield


def is_served(folder: ConsortiumFolder) -> bool:
    """Whether a process serves it now."""
    if not folder.lock.exists():
        return False
    with folder.lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
