"""What can go wrong with files, brought about for real."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def files_no_longer_than(size_bytes: int) -> Iterator[None]:
    """The system refuses each write of this process beyond this length of a file, as it does on a full disk.

    Python ignores SIGXFSZ, so that the write fails with OSError: File too large.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
