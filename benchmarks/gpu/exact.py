"""What is whole numbers on every processor: sums, rounds of them, networks and neighbours, which must be the CPU's.

Where the device's numbers differ from the CPU's, the figures say how many do and by how much.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.gpu.parts import CLASSES, Part, Size, seconds
from collegium.data import Examples
from collegium.data.task import ImageInputs, NumberColumn, TableInputs, Task
from collegium.models.codes import Codes, Weights
from collegium.models.features import Features
from collegium.models.kernels import KernelMap, KernelSpec
from collegium.models.networks import build_network, network_inputs
from collegium.models.noisy_sums import NoisySums, Round
from collegium.models.pool_spectrum import PoolSpectrum
from collegium.models.quantising import quantised
from collegium.parties.neighbours.search import Search
from collegium_accounting.mechanisms.class_sums import ONE, count_of_one

COLUMNS = 64
BANDWIDTH_SQUARED = 4 * 1024 * 1024
NOISE = 20.0
"""Of a released sum, in lengths of one contribution: what a coordinator takes it for."""


def compared(part: Part, what: str, on_device: NDArray[Any], on_cpu: NDArray[Any]) -> None:
    """Note whether the two are the same to the last bit and, where they are not, what differs."""
    differ = on_device != on_cpu
    part.checks[f"{what} are the CPU's to the last bit"] = not differ.any()
    if differ.any():
        apart = np.abs(on_device[differ].astype(np.float64) - on_cpu[differ].astype(np.float64))
        part.figures[f"{what} that differ, of {differ.size:,}"] = float(differ.sum())
        part.figures[f"{what}, most apart"] = float(apart.max())


def table(records: int, seed: int) -> Examples:
    """Records of `COLUMNS` numbers in [0, 1] around one centre per class."""
    generator = np.random.default_rng(seed)
    x = generator.random((records, COLUMNS), dtype=np.float32)
    y = generator.integers(0, CLASSES, records)
    x *= 0.5
    x += (np.random.default_rng(1).random((CLASSES, COLUMNS), dtype=np.float32) * 0.5)[y]
    return Examples(x, y)


class _Sums:
    """Records, and the sums of the first of them under a map; in rounds as a party answers them."""

    def __init__(self, size: Size) -> None:
        columns = tuple(NumberColumn(name=f"c{number}", low=0.0, high=1.0) for number in range(COLUMNS))
        self.task = Task(classes=tuple(map(str, range(CLASSES))), inputs=TableInputs(columns=columns))
        width = self.task.inputs.shape[0]
        self.pool = np.random.default_rng(2).random((2 * size.landmarks, width), dtype=np.float32)
        self.spec = KernelSpec(Features("raw"), tuple(range(size.landmarks)), BANDWIDTH_SQUARED)
        made = table(size.records, 3)
        self.x, self.labels = np.zeros((size.records, width), dtype=np.float32), made.labels()
        self.x[:, : made.x.shape[1]] = made.x

    def of(self, count: int, where: str, weights: Weights | None = None) -> NDArray[np.int64]:
        kernel = KernelMap.of_pool(self.spec, self.pool, self.task.inputs, where)
        ones, codes = np.ones(count, dtype=np.int64), Codes(CLASSES, weights)
        return kernel.totals(self.x[:count], self.labels[:count], ones, codes)


def class_sums(size: Size, device: str) -> list[Part]:
    """Kernel class sums over all records, in chunks, and rounds of them over fewer."""
    sums = _Sums(size)
    sums.of(100, device)
    small_s, on_device = seconds(lambda: sums.of(size.checked, device))
    cpu_s, on_cpu = seconds(lambda: sums.of(size.checked, "cpu"))
    whole = small_s * size.records / size.checked < 120.0
    device_s = seconds(lambda: sums.of(size.records, device))[0] if whole else small_s * size.records / size.checked
    part = Part(f"class sums, {size.records:,} records", device_s, None, cpu_s, cpu_of=size.checked / size.records)
    part.figures = {"measured, not scaled": float(whole), "landmarks": float(size.landmarks)}
    compared(part, "sums", on_device, on_cpu)
    return [part, _rounds(size, device, sums)]


def _rounds(size: Size, device: str, sums: _Sums) -> Part:
    """Each round but the first under weights that follow from those before, as a coordinator makes them."""
    part = Part(f"{size.rounds} rounds of sums, {size.checked:,} records", 0.0, None, 0.0)
    kernel = KernelMap.of_pool(sums.spec, sums.pool, sums.task.inputs)
    spectrum, rounds, found = PoolSpectrum.of_pool(kernel, sums.pool), list[Round](), [list[Any](), list[Any]()]
    for _ in range(size.rounds):
        weights = NoisySums(sums.spec, tuple(rounds)).next_weights(spectrum, CLASSES, size.rounds) if rounds else None
        device_s, on_device = seconds(lambda: sums.of(size.checked, device, weights))  # noqa: B023
        cpu_s, on_cpu = seconds(lambda: sums.of(size.checked, "cpu", weights))  # noqa: B023
        part.device_s, part.cpu_s = part.device_s + device_s, part.cpu_s + cpu_s
        found[0].append(on_device)
        found[1].append(on_cpu)
        count = size.checked * count_of_one(CLASSES)
        rounds.append(Round(np.append(on_cpu.reshape(-1), count), NOISE * ONE, weights))
    compared(part, "sums of all rounds", np.stack(found[0]), np.stack(found[1]))
    return part


def networks(size: Size, device: str) -> list[Part]:
    """Two networks in whole numbers: features and classes of images, and class sums under these features.

    The device may round factors to TF32, as programs beside it may ask, which changes no whole number up to 2,048.
    """
    task = Task(classes=tuple(map(str, range(CLASSES))), inputs=ImageInputs(height=28, width=28))
    generator = np.random.default_rng(5)
    x = generator.integers(0, 256, (size.images, 28, 28, 1), dtype=np.uint8)
    labels = generator.integers(0, CLASSES, size.images)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = [build_network("student-cnn", task) for _ in range(2)]
    network = quantised([one.eval() for one in made], task, network_inputs(x[:512]))
    spec = KernelSpec(Features("network", network=network.to_bytes()), tuple(range(size.landmarks)), BANDWIDTH_SQUARED)

    def run(count: int, where: str) -> Any:
        there = network.on(where)
        return there.features(x[:count]), there.probabilities(x[:count])

    def summed(where: str) -> NDArray[np.int64]:
        kernel = KernelMap.of_pool(spec, x, task.inputs, where)
        return kernel.totals(x, labels, np.ones_like(labels), Codes(CLASSES))

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        run(10, device)
        device_s, on_device = seconds(lambda: run(size.images, device))
        sums_s, sums = seconds(lambda: summed(device))
    finally:
        torch.set_float32_matmul_precision(before)
    cpu_s, on_cpu = seconds(lambda: run(size.images, "cpu"))
    part = Part(f"two networks in whole numbers, {size.images:,} images", device_s, None, cpu_s)
    for what, ours, theirs in zip(("features", "probabilities"), on_device, on_cpu, strict=True):
        compared(part, what, ours, theirs)
    cpu_s, theirs = seconds(lambda: summed("cpu"))
    under = Part(f"class sums under their features, {size.images:,} images", sums_s, None, cpu_s)
    compared(under, "sums", sums, theirs)
    return [part, under]


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
    part = Part(
        f"neighbours, {size.queries:,} queries of {size.held:,}", device_s, None, cpu_s, cpu_of=fewer / size.queries
    )
    alike = all(np.array_equal(a, b) for a, b in zip(on_device, on_cpu, strict=False))
    part.checks = {"the neighbours are the CPU's": alike}
    return [part]
