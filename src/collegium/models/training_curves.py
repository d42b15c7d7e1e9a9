"""Curves of a fit for TensorBoard: recorded where a process asked for it, and next to no work elsewhere.

A recorder belongs to its process, as a log does: a fit draws its curve whether or not the process records. A process
that fits for another one sends its values there. A teacher's curve comes from private records: it is written to the
folder that its institution named and to no other place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, SupportsFloat

from collegium.errors import StorageError
from collegium.extras import optional_import

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
            if _is_written(step):
                for tag, value in _read(values).items():
                    writer.add_scalar(tag, value, step)

        return note

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@dataclass(frozen=True)
class Noted:
    """Values of one step of a fit in another process, where it was the ``number``-th."""

    name: str
    number: int
    step: int
    values: Mapping[str, float]


class _Sender:
    """Sends each value instead of writing it."""

    def __init__(self, send: Callable[[Noted], object]) -> None:
        self._send, self._fits = send, 0

    def curve(self, name: str) -> Curve:
        self._fits += 1
        number = self._fits

        def note(step: int, **values: Value) -> None:
            if _is_written(step):
                self._send(Noted(name, number, step, _read(values)))

        return note


class Received:
    """Draws in this process, where it is `recording`, what others have `sending`."""

    def __init__(self) -> None:
        self._curves: dict[tuple[object, int], Curve] = {}

    def draw(self, source: object, noted: Noted) -> None:
        """Draw values that came from ``source``, which stands for the process."""
        key = (source, noted.number)
        if key not in self._curves:
            self._curves[key] = curve(noted.name)
        self._curves[key](noted.step, **noted.values)


def _is_written(step: int) -> bool:
    return step == 1 or step % EVERY_STEPS == 0


def _read(values: Mapping[str, Value]) -> dict[str, float]:
    return {tag: float(value() if callable(value) else value) for tag, value in values.items()}


_recorder: _Recorder | _Sender | None = None


def curve(name: str) -> Curve:
    """A curve called ``name`` and a number; one that is written nowhere unless this process is `recording`."""
    return _nowhere if _recorder is None else _recorder.curve(name)


def is_recording() -> bool:
    """Whether this process writes or sends curves."""
    return _recorder is not None


@contextmanager
def sending(send: Callable[[Noted], object]) -> Iterator[None]:
    """Have the values of this process's fits sent within, to be drawn by another (`Received`)."""
    global _recorder
    _recorder = _Sender(send)
    try:
        yield
    finally:
        _recorder = None


def _nowhere(step: int, **values: Value) -> None:
    pass


@contextmanager
def recording(folder: Path | None) -> Iterator[None]:
    """Record the curves of this process in ``folder`` within; none at all where it is None.

    MissingExtra where TensorBoard is not installed; StorageError where the folder cannot be made.
    """
    global _recorder
    if folder is None:
        yield
        return
    with optional_import("--tensorboard"):
        import tensorboard  # noqa: F401
        from torch.utils.tensorboard import SummaryWriter
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot write {folder}: {error.strerror}; name another folder for --tensorboard") from error
    _recorder = recorder = _Recorder(folder, SummaryWriter)
    try:
        yield
    finally:
        _recorder = None
        recorder.close()


__all__ = ["Curve", "Noted", "Received", "Value", "curve", "is_recording", "recording", "sending"]
