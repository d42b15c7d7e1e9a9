"""What the kit measures, and what learns in floating point: teachers, and pretraining by contrast.

Each part returns seconds on the device, by the loop there and on the CPU, and its checks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from collegium.coordinator.students import LearningProblem
from collegium.coordinator.students.pretraining import Pretraining, pretrained
from collegium.data import DataSource, Examples, load
from collegium.data.task import ImageInputs, Task, TeacherSettings
from collegium.parties.teachers.fitting import as_programs, one_by_one
from collegium.parties.teachers.specs import TeacherFactory, TeacherStore, specs_of
from collegium.parties.teachers.splits import simulated_key

CLASSES = 10
DATA = "mnist.npz"


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Parameters
    ----------
    teachers : numbers of teachers that are fitted as one program.
    looped, on_cpu : teachers that the loop fits on the device and on the CPU; seconds are scaled to all of them.
    steps : of a teacher; None for the recipe's own.
    contrast_steps, contrast_on_cpu : steps of the contrast on the device, and on the CPU.
    records, landmarks : of the class sums.
    rounds : of class sums, over the records that are checked.
    images : that networks in whole numbers, and sums under their features, take.
    held, queries : records and queries of the nearest neighbours.
    checked : records and queries that are computed again on the CPU and must agree.
    """

    teachers: tuple[int, ...] = (250, 1000)
    looped: int = 20
    on_cpu: int = 4
    steps: int | None = None
    contrast_steps: int = 1000
    contrast_on_cpu: int = 5
    records: int = 10_000_000
    landmarks: int = 1000
    held: int = 1_000_000
    queries: int = 1000
    checked: int = 20_000
    rounds: int = 8
    images: int = 10_000


SMALL = Size((3,), 2, 2, 2, 2, 1, 3000, 20, 3000, 8, 500, 3, 300)


@dataclass
class Part:
    """One thing measured.

    Parameters
    ----------
    device_s, loop_s, cpu_s : seconds for all of it; the last two scaled from ``loop_of`` and ``cpu_of`` of it.
    checks : what must hold, by name.
    """

    name: str
    device_s: float
    loop_s: float | None
    cpu_s: float
    loop_of: float = 0.0
    cpu_of: float = 1.0
    checks: dict[str, bool] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Wall time of ``work``, until the GPU has finished, and its result."""
    start = time.perf_counter()
    result = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start, result


def digits(folder: Path | None) -> tuple[Task, Examples, Examples]:
    """Records and held-out images: MNIST's where ``folder`` has them, else noise around one pattern per class."""
    names = tuple(map(str, range(CLASSES)))
    if folder is not None and (folder / DATA).exists():
        task = Task(classes=names, inputs=ImageInputs(height=28, width=28))
        train, test = (
            load(DataSource(source=DATA, split=split), task, data_root=folder) for split in ("train", "test")
        )
        return task, train, test
    task = Task(classes=names, inputs=ImageInputs(height=8, width=8))
    generator = np.random.default_rng(0)
    patterns = generator.integers(0, 200, (CLASSES, 8, 8, 1))

    def drawn(count: int) -> Examples:
        y = np.arange(count) % CLASSES
        return Examples((patterns[y] + generator.integers(0, 56, (count, 8, 8, 1))).astype(np.uint8), y)

    return task, drawn(4000), drawn(500)


def teachers(size: Size, device: str, data: tuple[Task, Examples, Examples]) -> list[Part]:
    """Teachers of MNIST as one batched program, beside the loop on the same device and on the CPU."""
    task, private, held_out = data
    options: dict[str, float | int | str | bool] = {} if size.steps is None else {"steps": size.steps}
    parts = []
    for count in size.teachers:
        settings = TeacherSettings(kind="small-cnn", per_party=count, options=options)
        factory = TeacherFactory(settings, task, ())
        share = len(private) * count // 250 if count < 250 else len(private)
        records = private.take(np.arange(max(share, 200)))
        key, store = simulated_key(0, "gpu"), TeacherStore(None)
        specs = [spec for spec in specs_of("gpu", records, factory, key=key, store=store) if spec.learnable]
        list(as_programs(specs[:2], device))  # what starts once is no part of the time
        device_s, together = seconds(lambda: list(as_programs(specs, device)))  # noqa: B023
        loop_s, alone = seconds(lambda: list(one_by_one(specs[: size.looped], device)))  # noqa: B023
        cpu_s, _ = seconds(lambda: list(one_by_one(specs[: size.on_cpu], "cpu")))  # noqa: B023
        labels = held_out.labels()
        right = [
            float(np.mean([(teacher.predict(held_out.x) == labels).mean() for _, teacher in some]))
            for some in (together[: len(alone)], alone)
        ]
        part = Part(f"{count} teachers as one program", device_s, loop_s, cpu_s, size.looped / count)
        part.cpu_of = size.on_cpu / count
        part.figures = {"accuracy": right[0], "accuracy of the loop": right[1]}
        part.checks = {"the program's teachers are as right as the loop's": abs(right[0] - right[1]) < 0.03}
        parts.append(part)
    return parts


def contrast(size: Size, device: str, data: tuple[Task, Examples, Examples]) -> list[Part]:
    """Pretraining by contrast on the pool."""
    task, _, held_out = data
    nothing = np.zeros(0, dtype=np.int64)

    def run(steps: int, where: str) -> Any:
        problem = LearningProblem(task, held_out.x, nothing, nothing, 0, where, lambda done, total: None)
        return pretrained(problem, Pretraining(network="small-cnn", steps=steps))

    run(1, device)
    device_s, encoder = seconds(lambda: run(size.contrast_steps, device))
    cpu_s, _ = seconds(lambda: run(size.contrast_on_cpu, "cpu"))
    # The nearest other image in the learned features is of the same class more often than by chance.
    features = encoder.features(held_out.x[:1000])
    alike = features @ features.T
    np.fill_diagonal(alike, -1.0)
    labels = held_out.labels()[:1000]
    same = float((labels[alike.argmax(axis=1)] == labels).mean())
    part = Part("pretraining by contrast", device_s, None, cpu_s, cpu_of=size.contrast_on_cpu / size.contrast_steps)
    part.figures = {"nearest is of the same class": same}
    part.checks = {"features tell classes apart": same > 2.0 / CLASSES}
    return [part]
