"""What lies in folders, and what can go wrong with files, brought about for real."""

from __future__ import annotations

import importlib.util
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType


def contents_of(folder: Path) -> dict[Path, bytes]:
    """Every file below it."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def module_at(path: Path) -> ModuleType:
    """A program that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
