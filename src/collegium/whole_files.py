"""Write files so that a reader finds the whole file or none.

A process writes to a temporary file with its process number in the name, and renames it at the end. If the process is
killed, nobody reads that file, and a later process removes it. A lock between processes is a file that one process
holds at a time; it is released when that process ends.
"""

import hashlib
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from collegium.errors import StorageError
from collegium_accounting.whole_files import replacing as replacing
from collegium_accounting.whole_files import storing as storing
from collegium_accounting.whole_files import write_whole as write_whole


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


_NAME = re.compile(r"\.(?:.*?[.-])??(\d+)(?:\.[0-9a-f]{8})?(?:\.partial)?")
"""``.run.json.4711``, ``.probe-4711``, ``.split-key.4711.0badcafe``, ``.4711.0badcafe.partial``."""


def make_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Make ``folder`` and those above it where they are missing; StorageError where that cannot be done."""
    with storing(f"make {folder}"):
        folder.mkdir(parents=True, exist_ok=True, mode=mode)


def read_whole(path: Path, advice: str = "") -> bytes:
    """What ``path`` holds; StorageError, with ``advice`` at its end, where it cannot be read."""
    with storing(f"read {path}", advice):
        return path.read_bytes()


def write_digested(path: Path, data: bytes) -> None:
    """Write ``data`` as a whole file behind its SHA-256, for `read_digested`."""
    write_whole(path, hashlib.sha256(data).hexdigest().encode() + b"\n" + data)


def read_digested(path: Path) -> bytes:
    """What `write_digested` wrote; StorageError where the file cannot be read, or is not as it was written."""
    digest, _, data = read_whole(path).partition(b"\n")
    if hashlib.sha256(data).hexdigest().encode() != digest:
        raise StorageError(f"{path.name} is not as it was written; restore it from a copy")
    return data


def write_new(path: Path, text: str, advice: str) -> None:
    """Write a file that must not be there yet; StorageError, with ``advice``, where it is."""
    try:
        with storing(f"write {path}"), path.open("x", encoding="utf-8") as file:
            file.write(text)
    except StorageError as error:
        if isinstance(error.__cause__, FileExistsError):
            raise StorageError(f"{path} is there already: {advice}") from None
        raise


def temporary_folder(owner: object) -> Path:
    """A folder that goes away with its owner; StorageError where none can be made."""
    with storing("make a temporary folder"):
        folder = tempfile.mkdtemp(prefix="collegium-")
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def make_private(folder: Path) -> None:
    """Make ``folder`` readable by this user alone, and let this process write files that nobody else can read."""
    os.umask(0o077)
    with storing(f"make {folder} private"):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)


def remove_stale_temp_files(folder: Path) -> None:
    """Remove the temporary files under ``folder`` whose processes have ended. What cannot be removed stays."""
    for path in folder.rglob(".*"):
        named = _NAME.fullmatch(path.name)
        if named is not None and path.is_file() and not _runs(int(named[1])):
            with suppress(OSError):
                path.unlink()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
