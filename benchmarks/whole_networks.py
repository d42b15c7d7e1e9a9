"""Networks in whole numbers beside floating point: time of a record, and accuracy on images that no network saw.

``python -m benchmarks.whole_networks --json times.json`` measures, in one run and with one thread, two networks of the
kind that learn beside class sums:

* ``alone``: in double precision, each record by itself and at five places of the image, as it was done before. A record
  has to be computed by itself where numbers round, as its block would change its last bits.
* ``blocks of n``: in whole numbers, by blocks of so many records, where it has the same bits in every block.

``features`` are those of a second class sum. ``classes`` are the answers of a published student: a kernel of such
features, and two networks beside it. CPU time is counted, so that other work on the machine disturbs little.

``--accuracy digits,fashion-mnist`` trains two networks on a part of these sets and adds how many held-out images they
tell rightly, in floating point and in whole numbers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from collegium.coordinator.students import LearningProblem
from collegium.coordinator.students.networks import normalise_by
from collegium.coordinator.students.supervised import Supervised
from collegium.data import DataSource, data_root, default_task, load
from collegium.data.loading.files import open_npz
from collegium.data.task import ImageInputs, Task
from collegium.models.devices import each_alone, one_thread
from collegium.models.features import Features
from collegium.models.kernel_student import KernelStudent
from collegium.models.kernels import KernelMap
from collegium.models.networks import build_network, network_inputs
from collegium.models.quantising import quantised
from collegium.models.whole_networks import WholeNetwork

SHAPES = ((28, 28, 1), (32, 32, 3))
LANDMARKS = 500
_PLACES = ((1, 1), (0, 1), (2, 1), (1, 0), (1, 2))


@dataclass(frozen=True)
class Timed:
    """CPU milliseconds of one record, and how many times as many records a second that is as ``alone``."""

    shape: str
    what: str
    way: str
    ms: float
    times: float


@dataclass(frozen=True)
class Told:
    """Held-out images that are told rightly, in percent."""

    set: str
    images: int
    floating: float
    whole: float


def networks_for(task: Task) -> list[nn.Module]:
    """Two networks that have seen inputs, of drawn weights."""
    torch.manual_seed(0)
    made = [build_network("student-cnn", task) for _ in range(2)]
    for network in made:
        normalise_by(network, network_inputs(images_of(task, 200, 1)))
    return made


def images_of(task: Task, images: int, seed: int) -> NDArray[np.uint8]:
    """Images of random pixels."""
    return np.random.default_rng(seed).integers(0, 256, (images, *task.inputs.shape), dtype=np.uint8)


def floating(pair: list[nn.Module], x: Tensor, places: int) -> tuple[Tensor, Tensor]:
    """What the last layers take in of the images themselves, and the mean shares over places of the image."""
    _, _, height, width = x.shape
    wide = F.pad(x, (1, 1, 1, 1), mode="replicate")
    moved = torch.cat([wide[:, :, i : i + height, j : j + width] for i, j in _PLACES[:places]])
    inside, shares = [], []
    for member in pair:
        *layers, last = member.children()
        taken = nn.Sequential(*layers)(moved)
        inside.append(F.normalize(taken[: len(x)]))
        shares.append(torch.softmax(last(taken), dim=1).reshape(places, len(x), -1))
    return torch.cat(inside, dim=1), torch.cat(shares).mean(dim=0)


def features_alone(pair: list[nn.Module], x: NDArray[Any]) -> NDArray[np.float64]:
    """Features by floating point, each record by itself."""

    def of_one(record: NDArray[Any]) -> NDArray[np.float64]:
        with torch.no_grad():
            inside, shares = floating(pair, network_inputs(record).double(), len(_PLACES))
            told = shares.log().clamp(min=float(np.log(1e-4)))
            told = F.normalize(told - told.mean(dim=1, keepdim=True))
            found: NDArray[np.float64] = F.normalize(torch.cat([F.normalize(inside), 0.5 * told], dim=1)).numpy()
        return np.floor(found * 8192 + 0.5)

    return each_alone(of_one, x, len(of_one(x[:1])[0]))


def shares_alone(pair: list[nn.Module], x: NDArray[Any], classes: int) -> NDArray[np.float64]:
    """Classes by floating point, each record by itself."""

    def of_one(record: NDArray[Any]) -> NDArray[np.float64]:
        with torch.no_grad():
            found: NDArray[np.float64] = floating(pair, network_inputs(record).double(), len(_PLACES))[1].numpy()
        return found

    return each_alone(of_one, x, classes)


def seconds(function: Callable[[], object], repeats: int = 3) -> float:
    """CPU seconds, the least of some repetitions."""
    function()
    found = []
    for _ in range(repeats):
        began = time.process_time()
        function()
        found.append(time.process_time() - began)
    return min(found)


def in_blocks(function: Callable[[NDArray[Any]], NDArray[Any]], parts: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """What a function gives of each block."""
    return [function(part) for part in parts]


def timed(shape: tuple[int, int, int], records: int, alone: int) -> list[Timed]:
    """All ways for images of this shape."""
    height, width, channels = shape
    classes = tuple(f"class-{number}" for number in range(10))
    task = Task(classes=classes, inputs=ImageInputs(height=height, width=width, channels=channels))
    pair, x = networks_for(task), images_of(task, records, 0)
    whole = quantised(pair, task, network_inputs(x[:200]))
    features = Features("network", network=whole.to_bytes())
    landmarks = whole.features(images_of(task, LANDMARKS, 2))
    kernel = KernelMap.of_landmarks(features, task.inputs, 2000**2, 1.0, landmarks)
    student = KernelStudent(task, kernel, np.random.default_rng(0).normal(size=(LANDMARKS + 1, 10)), network=whole)
    plain = replace(kernel, features=Features("raw"), landmarks=x[:LANDMARKS].reshape(-1, x[0].size).astype(np.int16))
    slow = [network.double() for network in networks_for(task)]
    name, rows = " × ".join(map(str, shape)), []

    def row(what: str, way: str, ms: float, before: float) -> None:
        rows.append(Timed(name, what, way, ms, before / ms))
        print(f"{name:12} {what:9} {way:14} {ms:8.3f} ms a record {before / ms:7.1f} ×", flush=True)

    inside, answered = whole.features(x), student.probabilities(x)
    before = 1e3 * seconds(lambda: features_alone(slow, x[:alone])) / alone
    row("features", "alone", before, before)
    for block in (1, 128, 512):
        parts = [x[start : start + block] for start in range(0, records if block > 1 else alone, block)]
        found = np.concatenate(in_blocks(whole.features, parts))
        assert np.array_equal(found, inside[: len(found)])
        row(
            "features",
            f"blocks of {block}",
            1e3 * seconds(partial(in_blocks, whole.features, parts)) / len(found),
            before,
        )

    def answered_alone() -> None:
        """A kernel by whole numbers, a record at a time, of features by floating point; and networks beside it."""
        features_alone(slow, x[:alone])
        each_alone(lambda record: KernelMap.__call__(plain, record)[:, :10], x[:alone], 10)
        shares_alone(slow, x[:alone], 10)

    before = 1e3 * seconds(answered_alone) / alone
    row("classes", "alone", before, before)
    for block in (1, 128, 512):
        parts = [x[start : start + block] for start in range(0, records if block > 1 else alone, block)]
        found = np.concatenate(in_blocks(student.probabilities, parts))
        assert np.array_equal(found, answered[: len(found)])
        ms = 1e3 * seconds(partial(in_blocks, student.probabilities, parts)) / len(found)
        row("classes", f"blocks of {block}", ms, before)
    digest = hashlib.sha256(inside.tobytes() + answered.tobytes()).hexdigest()
    print(f"{name:12} digest {digest[:32]}", flush=True)
    return rows


def told(name: str, images: int, steps: int) -> Told:
    """Two networks that learned ``images`` of a set, on up to 5,000 others."""
    task = default_task("digits" if name == "digits" else "mnist")
    if name == "digits":
        data = load(DataSource(source="digits", split="all", shuffle_seed=0), task, data_root=None)
        x, y, held, truth = (
            part for at in (slice(images), slice(images, None)) for part in (data.x[at], data.labels()[at])
        )
    else:
        arrays = open_npz((data_root(None) or Path()) / f"{name}.npz")
        order = np.random.default_rng(0).permutation(len(arrays["x_train"]))[:images]
        x, y = arrays["x_train"][order][..., None], arrays["y_train"][order].astype(np.int64)
        held, truth = arrays["x_test"][:5000][..., None], arrays["y_test"][:5000]
    pair = []
    for seed in range(2):
        problem = LearningProblem(task, x, np.arange(len(x)), y, seed, "cpu", lambda done, total: None)
        fitted = Supervised(steps=steps).fit(problem)
        normalise_by(fitted.network, network_inputs(x))
        pair.append(fitted.network)
    whole: WholeNetwork = quantised(pair, task, network_inputs(x))
    with torch.no_grad():
        blocks = torch.split(network_inputs(held), 500)
        plain = torch.cat([floating(pair, block, 1)[1] for block in blocks]).argmax(dim=1).numpy()
    shares = [100 * float((found == truth).mean()) for found in (plain, whole.predict(held))]
    print(f"{name}: floating point {shares[0]:.2f} %, whole numbers {shares[1]:.2f} %", flush=True)
    return Told(name, len(held), *shares)


def main() -> int:
    """Measure, print a table, and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1024, help="in blocks")
    parser.add_argument("--alone", type=int, default=40, help="records by themselves")
    parser.add_argument("--accuracy", default="", help="sets to compare accuracy on: digits, mnist, fashion-mnist")
    parser.add_argument("--images", type=int, default=900, help="of these sets, that networks learn")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with one_thread():
        rows = [row for shape in SHAPES if given.records for row in timed(shape, given.records, given.alone)]
        accuracy = [told(name, given.images, given.steps) for name in filter(None, given.accuracy.split(","))]
    if given.json:
        kept = {"times": [asdict(row) for row in rows], "accuracy": [asdict(row) for row in accuracy]}
        given.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
