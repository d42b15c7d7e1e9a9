"""Kinds of teachers by import path, as an institution may have them: the built-in linear one, watched or in trouble."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from collegium.data import Examples
from collegium.parties.teachers.networks import LinearTeacher, NetworkTeacher

WATCHED = "support.teachers:WatchedTeacher"
QUOTING = "support.teachers:QuotingTeacher"
ON_A_GPU = "support.teachers:GpuTeacher"


class WatchedTeacher(LinearTeacher):
    """Notes what it learns from, on how many threads, and how many inputs it is asked about."""

    learned: ClassVar[list[Examples]] = []
    threads: ClassVar[list[tuple[int, int]]] = []
    asked: ClassVar[list[int]] = []
    dies_after: ClassVar[int | None] = None
    """So many are fitted, and then the process is interrupted."""

    @classmethod
    @contextmanager
    def watching(cls) -> Iterator[type[WatchedTeacher]]:
        """Notes begin empty, and nothing stays for other tests."""
        try:
            yield cls
        finally:
            cls.dies_after = None
            for notes in (cls.learned, cls.threads, cls.asked):
                notes.clear()

    def fit(self, examples: Examples, *, seed: int, device: str) -> None:
        if len(self.learned) == self.dies_after:
            raise KeyboardInterrupt
        self.learned.append(examples)
        self.threads.append((torch.get_num_threads(), max(pool["num_threads"] for pool in threadpool_info())))
        super().fit(examples, seed=seed, device=device)

    def predict(self, x: NDArray[Any]) -> NDArray[Any]:
        self.asked.append(len(x))
        return super().predict(x)


class QuotingTeacher(LinearTeacher):
    """Cannot learn, and says from what."""

    def fit(self, examples: Examples, *, seed: int, device: str) -> None:
        raise RuntimeError(f"cannot learn from {examples.x.tobytes()!r} {examples.x.reshape(-1).tolist()}")


class GpuTeacher(LinearTeacher):
    """Runs on the CPU what it was to run on a GPU, whose programs it notes; more teachers than ``most`` do not fit."""

    programs: ClassVar[list[int]] = []
    most: ClassVar[int] = 256

    @staticmethod
    def fit_together(
        teachers: Sequence[NetworkTeacher],
        records: Sequence[Examples],
        seeds: Sequence[int],
        *,
        device: str,
        precision: torch.dtype | None = None,
    ) -> None:
        if len(teachers) > GpuTeacher.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        GpuTeacher.programs.append(len(teachers))
        NetworkTeacher.fit_together(teachers, records, seeds, device="cpu", precision=precision)

    def fit(self, examples: Examples, *, seed: int, device: str) -> None:
        super().fit(examples, seed=seed, device="cpu")

    def load(self, path: Path, *, device: str) -> None:
        super().load(path, device="cpu")


@contextmanager
def machine_with_a_gpu() -> Iterator[list[bool]]:
    """Torch says that there is one, which `GpuTeacher` believes; notes each time that it was asked."""
    asked: list[bool] = []
    with pytest.MonkeyPatch.context() as machine:
        machine.setattr(torch.cuda, "is_available", lambda: asked.append(True) or True)
        machine.setattr(torch.cuda, "device_count", lambda: 1)
        try:
            yield asked
        finally:
            GpuTeacher.programs.clear()
            GpuTeacher.most = 256
