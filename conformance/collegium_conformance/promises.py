"""What the suites share: one way to state a broken promise, small tasks and records, and what a file may hold."""

import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from collegium.data import Examples
from collegium.data.task import ImageInputs, NumberColumn, TableInputs, Task
from collegium.errors import CollegiumError, ConfigurationError

CLASSES = ("low", "middle", "high")

TABLE = Task(
    classes=CLASSES,
    inputs=TableInputs(columns=tuple(NumberColumn(name=f"value-{n}", low=0.0, high=1.0) for n in range(6))),
)
IMAGES = Task(classes=CLASSES, inputs=ImageInputs(height=8, width=8))

Made = TypeVar("Made")


def easy_examples(task: Task, records: int, *, seed: int, spread: float = 0.12) -> Examples:
    """Records in one cluster per class of ``task``; the clusters are the same for every seed.

    Parameters
    ----------
    records : how many; the classes come in turn.
    seed : of the records.
    spread : standard deviation around a cluster's centre, as a share of an input's range.
    """
    classes = task.label_numbers
    centres = np.random.default_rng(0).uniform(0.15, 0.85, (classes, *task.inputs.shape))
    y = np.arange(records, dtype=np.int64) % classes
    x = centres[y] + np.random.default_rng(seed).normal(0.0, spread, (records, *task.inputs.shape))
    x = np.clip(x, 0.0, 1.0)
    if isinstance(task.inputs, ImageInputs):
        return Examples(np.rint(255 * x).astype(np.uint8), y)
    return Examples(x.astype(np.float32), y)


def on_a_suitable_task(what: str, task: Task | None, make: Callable[[Task], Made]) -> tuple[Made, Task]:
    """What ``make`` makes of ``task``, or else of the table or the images: the first that it does not refuse."""
    refusal: ConfigurationError | None = None
    for suitable in (TABLE, IMAGES) if task is None else (task,):
        try:
            return make(suitable), suitable
        except ConfigurationError as error:
            refusal = error
    raise AssertionError(f"{what} suits neither tables nor images: {refusal}")


def promise(kept: bool, broken: str) -> None:
    """Raise AssertionError with the text ``broken`` unless the promise is kept."""
    if not kept:
        raise AssertionError(broken)


def refuses(error: type[Exception], action: Callable[[], object], broken: str) -> None:
    """AssertionError unless ``action`` raises ``error`` and nothing else."""
    try:
        action()
    except error:
        return
    except Exception as other:
        raise AssertionError(f"{broken}; it raised {type(other).__name__} instead of {error.__name__}") from other
    raise AssertionError(f"{broken}; it raised nothing")


@contextmanager
def random_state(seed: int) -> Iterator[None]:
    """Python's and numpy's process-wide generators start from ``seed``, and are put back at the end."""
    python, theirs = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(theirs)


def _holds_arrays_alone(path: Path, whose: str) -> None:
    """AssertionError unless the file at ``path`` is safetensors whose arrays do not hide a pickle."""
    promise(path.is_file(), f"{whose} does not write one file where it is told to")
    try:
        arrays = load_file(path)
    except (SafetensorError, ValueError, OSError) as error:
        raise AssertionError(
            f"{whose} writes a file that is no safetensors file ({error}): a file of named arrays is the only kind "
            "that runs no code when it is read"
        ) from error
    for name, array in arrays.items():
        promise(not _is_pickle(array), f"{whose} hides a pickle in the array {name!r}: reading it would run code")


def check_file(
    whose: str, fitted: Any, read: Callable[[Path], Any], error: type[Exception], probes: NDArray[Any]
) -> Any:
    """What ``read`` makes of the file that ``fitted`` saves.

    AssertionError unless that file holds arrays alone and what is read predicts the same classes of ``probes``, and
    unless ``read`` raises ``error`` for the file cut short and for another kind of file.
    """
    with tempfile.TemporaryDirectory() as folder:
        kept, damaged = Path(folder) / "kept.safetensors", Path(folder) / "damaged.safetensors"
        fitted.save(kept)
        _holds_arrays_alone(kept, whose)
        try:
            again = read(kept)
        except CollegiumError as refusal:
            raise AssertionError(f"{whose}: what it saved cannot be read: {refusal}") from refusal
        same = bool((again.predict(probes) == fitted.predict(probes)).all())
        promise(same, f"{whose} read back from its file predicts other classes")
        for content, what in (
            (kept.read_bytes()[:-9], "a file that is cut short"),
            (b"neither arrays nor names" * 20, "a file of another kind"),
        ):
            damaged.write_bytes(content)
            refuses(error, lambda: read(damaged), f"{whose} must refuse {what} with {error.__name__}")
        return again


def _is_pickle(array: NDArray[Any]) -> bool:
    """Whether the bytes are what Python's pickle writes from protocol 2 on: 0x80, the protocol, …, a full stop."""
    if array.dtype.itemsize != 1 or array.size < 4:
        return False
    content = array.tobytes().rstrip(b"\0")
    return content[:1] == b"\x80" and content[1] in range(2, 6) and content[-1:] == b"."


def class_numbers(labels: Any, inputs: int, classes: int, whose: str) -> None:
    """AssertionError unless ``labels`` are ``inputs`` class numbers, int64, below ``classes``."""
    promise(
        isinstance(labels, np.ndarray) and labels.shape == (inputs,) and labels.dtype == np.int64,
        f"{whose} must predict an int64 array of shape [{inputs}] for {inputs} inputs; "
        f"got {type(labels).__name__} {getattr(labels, 'dtype', '')}{list(getattr(labels, 'shape', []))}",
    )
    promise(
        bool(((labels >= 0) & (labels < classes)).all()),
        f"{whose} predicts outside the task's classes 0 to {classes - 1}: {sorted(set(labels.tolist()))[:5]} …",
    )
