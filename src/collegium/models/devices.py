"""Where torch computes: the device, its threads and its precision. Torch is imported only when it is needed."""

import ctypes
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collegium.errors import ConfigurationError, MissingExtra
from collegium.extras import optional_import

_DEVICE = re.compile(r"auto|cpu|cuda(?::\d{1,3})?")


def check_device(name: str) -> str:
    """The name itself; ConfigurationError unless it is ``auto``, ``cpu``, ``cuda`` or ``cuda:<number>``.

    Torch is asked only about CUDA devices, so that a process without networks never loads it.
    """
    if name != "auto":
        resolve_device(name)
    return name


def resolve_device(name: str) -> str:
    """The torch device that ``name`` stands for: ``cpu``, ``cuda`` or ``cuda:<number>``; ``auto`` takes CUDA if any.

    Raises
    ------
    ConfigurationError
        If the name is unknown, or the CUDA device that it asks for is absent.
    MissingExtra
        If a CUDA device is named and torch is not installed; ``auto`` is then ``cpu``.
    """
    if _DEVICE.fullmatch(name) is None:
        raise ConfigurationError(f"unknown device {name[:32]!r}: use auto, cpu, cuda or cuda:0")
    if name == "cpu" or (name == "auto" and "torch" not in sys.modules and not _has_driver()):
        return "cpu"
    try:
        with optional_import(f"device {name}"):
            import torch
    except MissingExtra:
        if name == "auto":
            return "cpu"  # nothing that computes on another device can run either
        raise
    present = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return "cuda" if present else "cpu"
    number = int(name.partition(":")[2] or 0)
    if number >= present:
        raise ConfigurationError(f"device {name} is not there ({present} CUDA devices found): use auto or cpu")
    return name


def _has_driver() -> bool:
    """Whether this machine has a GPU's driver. Torch takes seconds to load, and without a driver finds no GPU."""
    if Path("/dev/kfd").exists():  # AMD's, which torch calls CUDA too
        return True
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def set_threads(threads: int) -> None:
    """Let torch use this many CPU threads in this process; nothing happens where torch is not loaded.

    Raises
    ------
    ConfigurationError
        If ``threads`` is not positive.
    """
    if threads < 1:
        raise ConfigurationError(f"threads must be at least 1, not {threads}")
    if "torch" in sys.modules:
        import torch

        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch, BLAS and OpenMP compute with one thread within; torch's own number is put back afterwards.

    The order in which threads add numbers changes a sum's last bits: with one thread a fit depends on no machine.
    """
    torch = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    set_threads(1)  # first: once OpenMP is limited, torch takes its own algebra for limited, which it is not
    try:
        with _pools(len(sys.modules), next(reversed(sys.modules))).limit(limits=1):
            yield
    finally:
        if before is not None:
            set_threads(before)


@lru_cache(maxsize=1)
def _pools(modules: int, newest: str) -> Any:
    """The thread pools of all libraries; to look for them takes milliseconds, and a new one comes with a module."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def _without_subnormals() -> Iterator[None]:
    """Let torch take numbers below the normal range for 0 within: processors compute with them many times as long."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_flush_denormal(True)
    try:
        yield
    finally:
        if torch is not None:
            torch.set_flush_denormal(False)


_CACHE_LINE = 64


def each_alone(function: Callable[[NDArray[Any]], ArrayLike], x: NDArray[Any], width: int) -> NDArray[np.float64]:
    """``function`` of each record by itself, shape ``[n, width]``: row i depends on ``x[i]`` and on nothing else.

    A library may round a record's sums differently by the size of its block, its place in it, its address in memory
    or the number of threads. So each record is a block of its own, at one kind of address, and one thread computes.

    No record raises an error, which would tell of it: where ``function`` fails or gives other than ``width`` numbers,
    the row is 0, and so is each number that is not finite.

    Parameters
    ----------
    function : of an array ``[1, …]`` that holds one record; it keeps no reference to it.
    x : records, shape ``[n, …]``.
    """
    rows = np.zeros((len(x), width))
    memory = np.empty(x[:1].nbytes + _CACHE_LINE, dtype=np.uint8)
    aligned = memory[-memory.ctypes.data % _CACHE_LINE :][: x[:1].nbytes]
    with one_thread(), _without_subnormals(), np.errstate(all="ignore"):
        for number, record in enumerate(x):
            one = aligned.view(x.dtype).reshape(1, *x.shape[1:])
            one[0] = record
            with suppress(Exception):
                rows[number] = np.reshape(function(one), width)
    return np.nan_to_num(rows, copy=False, nan=0.0, posinf=0.0, neginf=0.0)


@contextmanager
def seeded_draws(seed: int, device: str) -> Iterator[None]:
    """Seed torch's process-wide generators inside the block and put them back after it.

    Dropout draws from them. Nothing happens where torch is not loaded.
    """
    if "torch" not in sys.modules:
        yield
        return
    import torch

    with torch.random.fork_rng(devices=[device] if device.startswith("cuda") else []):
        torch.manual_seed(seed)
        yield


def mixed_precision(device: str) -> AbstractContextManager[None]:
    """A context in which CUDA computes in bfloat16 where that is safe. It changes nothing on the CPU."""
    if not device.startswith("cuda"):
        return nullcontext()
    import torch

    context: AbstractContextManager[None] = torch.autocast("cuda", dtype=torch.bfloat16)
    return context
