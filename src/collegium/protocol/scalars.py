"""Curves of a fit for TensorBoard: recorded where a process asked for it, and next to no work elsewhere.

A recorder belongs to its process, as a log does: a fit draws its curve without knowing whether anybody looks.
A teacher's curve comes from private records: it stays in the folder that its institution named, and goes nowhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, SupportsFloat

from collegium.protocol.errors import ConfigurationError, StorageError

EVERY_STEPS = 10
"""Of so many steps one is written, and the first. Reading a value waits for a GPU, so the others cost nothing."""

Value = SupportsFloat | Callable[[], SupportsFloat]


class Curve(Protocol):
    """One fit, step by step."""

    def __call__(self, step: int, **values: Value) -> None:
        """Note values after ``step`` steps; a function is called only where its value is written."""


class _Writer(Protocol):
    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...

    def close(self) -> None: ...


class _Recorder:
    """Writes each curve to a folder of its own, so that TensorBoard lays them over each other."""

    def __init__(self, folder: Path, new_writer: Callable[[str], _Writer]) -> None:
        self._folder, self._new_writer = folder, new_writer
        self._lock = threading.Lock()
        self._fits: dict[str, int] = {}
        self._writers: list[_Writer] = []

    def curve(self, name: str) -> Curve:
        with self._lock:
            number = self._fits.get(name, 0) + 1
            while (folder := self._folder / f"{name}-{number:03}").exists():  # of an earlier process
                number += 1
            self._fits[name] = number
            writer = self._new_writer(str(folder))
            self._writers.append(writer)

        def note(step: int, **values: Value) -> None:
            if step % EVERY_STEPS and step != 1:
                return
            for tag, value in values.items():
                writer.add_scalar(tag, float(value() if callable(value) else value), step)

        return note

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


_recorder: _Recorder | None = None


def curve(name: str) -> Curve:
    """A curve called ``name`` and a number; one that is written nowhere unless this process is `recording`."""
    return _nowhere if _recorder is None else _recorder.curve(name)


def _nowhere(step: int, **values: Value) -> None:
    pass


@contextmanager
def recording(folder: Path | None) -> Iterator[None]:
    """Record the curves of this process in ``folder`` within; none at all where it is None.

    ConfigurationError where TensorBoard is not installed; StorageError where the folder cannot be made.
    """
    global _recorder
    if folder is None:
        yield
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigurationError("--tensorboard needs TensorBoard: pip install 'collegium[tensorboard]'") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot write {folder}: {error.strerror}; name another folder for --tensorboard") from error
    _recorder = _Recorder(folder, SummaryWriter)
    try:
        yield
    finally:
        _recorder.close()
        _recorder = None


__all__ = ["Curve", "curve", "recording"]
