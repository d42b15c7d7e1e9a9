"""Write a file so that a reader finds the whole file or none.

A process writes to a temporary file with its process number in the name, and renames it at the end.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from collegium_accounting.errors import StorageError


@contextmanager
def storing(doing: str, advice: str = "") -> Iterator[None]:
    """Name what the system refuses within: StorageError, "cannot ``doing``: the reason" and then ``advice``."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot {doing}: {error.strerror or error}{advice}") from error


@contextmanager
def replacing(path: Path, doing: str) -> Iterator[Path]:
    """Give a temporary path beside ``path`` to write to, and rename that file to ``path`` at the end of the context.

    After an exception the temporary file is removed and ``path`` stays as it was. Raises StorageError, "cannot
    ``doing`` ``path``", if the system refuses.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield beside
        os.replace(beside, path)
    except BaseException as error:
        with suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):
            raise StorageError(f"cannot {doing} {path}: {error.strerror}") from error
        raise


def write_whole(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Replace ``path`` by a file of this content in one step that survives a loss of power.

    Parameters
    ----------
    mode : int
        Permissions of the file, before the process's umask; 0o600 for what only its owner may read.

    Raises
    ------
    StorageError
        If the system refuses.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    with replacing(path, "write") as beside:
        beside.unlink(missing_ok=True)  # left by a process of the same number that was killed
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
