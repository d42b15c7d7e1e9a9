"""Locks between processes: one file each, held by one process at a time and released when that process ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from collegium.errors import StorageError


@contextmanager
def exclusive(path: Path, taken: str | None = None) -> Iterator[None]:
    """Hold the lock file ``path`` within.

    Parameters
    ----------
    taken : str or None
        What the error says where another process holds the lock; None waits until that process releases it.

    Raises
    ------
    StorageError
        If another process holds the lock, or the file cannot be written.
    """
    lock = FileLock(path, mode=0o600, thread_local=False)
    try:
        lock.acquire(blocking=taken is None)
    except Timeout as error:
        raise StorageError(str(taken)) from error
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


def is_held(path: Path) -> bool:
    """Whether a process holds the lock file ``path`` now."""
    if not path.exists():
        return False
    try:
        with exclusive(path, "held"):
            return False
    except StorageError:
        return True
