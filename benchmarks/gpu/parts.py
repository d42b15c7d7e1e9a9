"""What the kit measures. Each part returns seconds on the device, by the loop there and on the CPU, and its checks."""

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
from collegium.data.task import ImageInputs, NumberColumn, TableInputs, Task, TeacherSettings
from collegium.models.codes import Codes
from collegium.models.features import Features
from collegium.models.kernels import KernelMap, KernelSpec
from collegium.parties.neighbours.search import Search
from collegium.parties.teachers.fitting import as_programs, one_by_one
from collegium.parties.teachers.specs import TeacherFactory, TeacherStore, specs_of
from collegium.parties.teachers.splits import simulated_key

CLASSES = 10
COLUMNS = 64
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


SMALL = Size((3,), 2, 2, 2, 2, 1, 3000, 20, 3000, 8, 500)


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
        factory = TeacherFactory(settings.kind, settings.options, task, ())
        share = len(private) * count // 250 if count < 250 else len(private)
        records = private.take(np.arange(max(share, 200)))
        key, store = simulated_key(0, "gpu"), TeacherStore(None)
        specs = [spec for spec in specs_of("gpu", records, factory, settings, key=key, store=store) if spec.learnable]
        list(as_programs(factory, specs[:2], device))  # what starts once is no part of the time
        device_s, together = seconds(lambda: list(as_programs(factory, specs, device)))  # noqa: B023
        loop_s, alone = seconds(lambda: list(one_by_one(factory, specs[: size.looped], device)))  # noqa: B023
        cpu_s, _ = seconds(lambda: list(one_by_one(factory, specs[: size.on_cpu], "cpu")))  # noqa: B023
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


def table(records: int, seed: int) -> Examples:
    """Records of `COLUMNS` numbers in [0, 1] around one centre per class."""
    generator = np.random.default_rng(seed)
    x = generator.random((records, COLUMNS), dtype=np.float32)
    y = generator.integers(0, CLASSES, records)
    x *= 0.5
    x += (np.random.default_rng(1).random((CLASSES, COLUMNS), dtype=np.float32) * 0.5)[y]
    return Examples(x, y)


def class_sums(size: Size, device: str) -> list[Part]:
    """Kernel class sums over all records, in chunks; whole numbers that must be the CPU's."""
    columns = tuple(NumberColumn(name=f"c{number}", low=0.0, high=1.0) for number in range(COLUMNS))
    task = Task(classes=tuple(map(str, range(CLASSES))), inputs=TableInputs(columns=columns))
    pool = np.random.default_rng(2).random((2 * size.landmarks, task.inputs.shape[0]), dtype=np.float32)
    spec = KernelSpec(Features("raw"), tuple(range(size.landmarks)), 4 * 1024 * 1024)
    encoded = table(size.records, 3)
    x = np.zeros((size.records, task.inputs.shape[0]), dtype=np.float32)
    x[:, : encoded.x.shape[1]] = encoded.x

    def run(count: int, where: str) -> Any:
        kernel = KernelMap.of_pool(spec, pool, task.inputs, where)
        return kernel.totals(x[:count], encoded.labels()[:count], np.ones(count, dtype=np.int64), Codes(CLASSES))

    run(100, device)
    small_s, on_device = seconds(lambda: run(size.checked, device))
    cpu_s, on_cpu = seconds(lambda: run(size.checked, "cpu"))
    whole = small_s * size.records / size.checked < 120.0
    device_s = seconds(lambda: run(size.records, device))[0] if whole else small_s * size.records / size.checked
    part = Part(f"class sums, {size.records:,} records", device_s, None, cpu_s, cpu_of=size.checked / size.records)
    part.figures = {"measured, not scaled": float(whole), "landmarks": float(size.landmarks)}
    part.checks = {"the sums are the CPU's to the last bit": bool((on_device == on_cpu).all())}
    return [part]


def neighbours(size: Size, device: str) -> list[Part]:
    """Records within a radius of queries; rows that must be the CPU's."""
    generator = np.random.default_rng(4)
    held = generator.integers(-400, 401, (size.held, COLUMNS), dtype=np.int16)
    queries = generator.integers(-400, 401, (size.queries, COLUMNS), dtype=np.int16)
    some = np.square(held[:4000].astype(np.float64) - queries[0]).sum(axis=1)
    radii = np.full(size.queries, int(np.quantile(some, 0.01)), dtype=np.int64)

    def run(where: str, count: int) -> list[Any]:
        found = []
        for view, radius in zip(Search(held, where).within(queries[:count], radii[:count]), radii, strict=False):
            inside = view.steps(np.arange(len(view.rows)), lambda d: (d <= radius).astype(np.int64))  # noqa: B023
            found.append(view.rows[inside > 0])
        return found

    fewer = max(1, size.queries // 20)
    run(device, 1)
    device_s, on_device = seconds(lambda: run(device, size.queries))
    cpu_s, on_cpu = seconds(lambda: run("cpu", fewer))
    part = Part(f"neighbours, {size.queries:,} queries of {size.held:,}", device_s, None, cpu_s, cpu_of=0.05)
    part.cpu_of = fewer / size.queries
    alike = all(np.array_equal(a, b) for a, b in zip(on_device, on_cpu, strict=False))
    part.checks = {"the neighbours are the CPU's": alike}
    return [part]
