"""Curves of a fit for TensorBoard: recorded where a process asked for it, and next to no work elsewhere.

A recorder belongs to its process, as a log does: a fit draws its curve whether or not the process records. A process
that fits for another one records in the same folder. A teacher's curve comes from private records: it is written to
the folder that its institution named and to no other place.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, SupportsFloat

from collegium.extras import optional_import
from collegium.whole_files import storing

EVERY_STEPS = 10
"""Of so many steps one is written, and the first. Reading a value waits for a GPU, so the others cost nothing."""

Value = SupportsFloat | Callable[[], SupportsFloat]

_folder: Path | None = None
_writers: list[Any] = []


def curve(name: str) -> Callable[..., None]:
    """A curve called ``name`` and a number; one that is written nowhere unless this process is `recording`.

    It is called with the number of steps made and, by name, values; a function is called only where its value is
    written. Each curve is in a folder of its own, so that TensorBoard lays them over each other.
    """
    if _folder is None:
        return lambda step, **values: None
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(_new_folder(_folder, name)))
    _writers.append(writer)

    def note(step: int, **values: Value) -> None:
        if step == 1 or step % EVERY_STEPS == 0:
            for tag, value in values.items():
                writer.add_scalar(tag, float(value() if callable(value) else value), step)
            writer.flush()  # a process that fits for another one may be ended before it could do this

    return note


def _new_folder(folder: Path, name: str) -> Path:
    """A folder that no fit has had, of this process or of another one."""
    number = 1
    while True:
        with suppress(FileExistsError):
            (found := folder / f"{name}-{number:03}").mkdir()
            return found
        number += 1


def recording_folder() -> Path | None:
    """Where this process records; None where it does not."""
    return _folder


@contextmanager
def recording(folder: Path | None) -> Iterator[None]:
    """Record the curves of this process in ``folder`` within; none at all where it is None.

    MissingExtra where TensorBoard is not installed; StorageError where the folder cannot be made.
    """
    global _folder
    if folder is None:
        yield
        return
    with optional_import("--tensorboard"):
        import tensorboard  # noqa: F401
    with storing(f"write {folder}", "; name another folder for --tensorboard"):
        folder.mkdir(parents=True, exist_ok=True)
    _folder = folder
    try:
        yield
    finally:
        _folder = None
        while _writers:
            _writers.pop().close()
