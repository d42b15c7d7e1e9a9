"""Student methods side by side: CPU seconds until 98 % from 100 true labels, and what they reach in the end.

``python -m benchmarks.students --json`` prints one JSON object. The data are MNIST in PATE's split (the pool
is the first 9,000 test images, accuracy is on the last 1,000), found through COLLEGIUM_DATA or ``--data-root``;
without them the bundled digits, and the output says so.

A schedule of learning rates makes a student only at its end, so nothing is read off in the middle of a fit:
each method fits from the start with ⅛, ¼, ½ and all of its own steps, and the shortest fit whose student
reaches 98 % says how long that takes. All fits of a method share ``--limit-s`` seconds of CPU time; the fit
that would pass it is broken off. Each one that is done is told on standard error.

The labelled inputs are drawn by chance, as those of queries that look at nothing; with ``--balanced`` as many of each
class, as is usual where methods with 100 labels of MNIST are compared (Salimans et al. 2016).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.selection.queries import choose_queries
from collegium.coordinator.students import find_method, fit_student
from collegium.data import DataSource, Examples, data_root, default_task, load
from collegium.data.task import Task
from collegium.errors import CollegiumError, DataError

TARGET = 0.98
LABELS = 100
SHARES = (1 / 8, 1 / 4, 1 / 2, 1.0)
COMPARED = ("supervised", "random-forest", "gan", "vat", "consistency", "contrastive")


class OutOfTime(Exception):
    """The method has used up its CPU time."""


@dataclass(frozen=True)
class Data:
    """What students learn from and are measured on."""

    name: str
    task: Task
    pool: Examples
    holdout: Examples


@dataclass(frozen=True)
class Fit:
    """One student. ``share`` is the fraction of the method's own steps that it was given."""

    share: float
    cpu_s: float
    accuracy: float


@dataclass(frozen=True)
class Result:
    """A method's students, shortest fit first. ``stopped`` says why there are no longer ones, if so."""

    method: str
    fits: list[Fit]
    stopped: str | None

    @property
    def cpu_s_to_target(self) -> float | None:
        """CPU seconds of the shortest fit that reached the target; None when none did."""
        return next((fit.cpu_s for fit in self.fits if fit.accuracy >= TARGET), None)


def load_data(root: Path | None) -> Data:
    """MNIST in PATE's split, or the bundled digits where it is not there."""
    task = default_task("mnist")
    try:
        pool = load(DataSource(source="mnist", split="test", stop=9000), task, data_root=root)
        return Data(
            "mnist", task, pool, load(DataSource(source="mnist", split="test", start=9000), task, data_root=root)
        )
    except DataError:
        task = default_task("digits")
        pool = load(DataSource(source="digits", split="all", shuffle_seed=0, stop=1300), task, data_root=None)
        return Data(
            "digits",
            task,
            pool,
            load(DataSource(source="digits", split="all", shuffle_seed=0, start=1300), task, data_root=None),
        )


def labelled(data: Data, *, balanced: bool, seed: int) -> NDArray[np.int64]:
    """Positions in the pool of the inputs whose labels are given."""
    if not balanced:
        return choose_queries(len(data.pool), LABELS, seed)
    generator, truth = np.random.default_rng(seed), data.pool.labels()
    classes = range(len(data.task.classes))
    each = LABELS // len(classes)
    drawn = [generator.choice(np.flatnonzero(truth == label), each, replace=False) for label in classes]
    return np.sort(np.concatenate(drawn)).astype(np.int64)


def shortened(method: str, share: float) -> dict[str, int]:
    """The options that give ``method`` this share of each of its numbers of steps; empty where it has none."""
    fields = find_method(method).model_fields
    counts = {name: field.default for name, field in fields.items() if name == "steps" or name.endswith("_steps")}
    return {name: max(1, round(share * count)) for name, count in counts.items()}


def measure(method: str, data: Data, *, limit_s: float, seed: int, device: str, balanced: bool = False) -> Result:
    """Fit ``method`` with one share of its steps after the other, for ``limit_s`` seconds of CPU time in all."""
    indices = labelled(data, balanced=balanced, seed=seed)
    end_s = time.process_time() + limit_s

    def tell(done: int, total: int) -> None:
        if time.process_time() > end_s:
            raise OutOfTime

    fits: list[Fit] = []
    for share in SHARES if shortened(method, 1.0) else (1.0,):
        began_s = time.process_time()
        try:
            student = fit_student(
                method,
                data.pool.x,
                indices,
                data.pool.labels()[indices],
                data.task,
                seed=seed,
                device=device,
                options=shortened(method, share),
                progress=tell,
            )
        except OutOfTime:
            return Result(method, fits, f"limit of {limit_s:g} s")
        except CollegiumError as error:
            return Result(method, fits, str(error))
        cpu_s = time.process_time() - began_s
        accuracy = float((student.predict(data.holdout.x) == data.holdout.labels()).mean())
        fits.append(Fit(share, cpu_s, accuracy))
        print(f"{method}, {share:g} of its steps: {accuracy:.2%} after {cpu_s:.1f} s", file=sys.stderr, flush=True)
    return Result(method, fits, None)


def as_json(result: Result) -> dict[str, Any]:
    last = result.fits[-1] if result.fits else None
    return {
        "method": result.method,
        "cpu_s_to_target": result.cpu_s_to_target,
        "accuracy": last.accuracy if last else None,
        "cpu_s": last.cpu_s if last else None,
        "fits": [asdict(fit) for fit in result.fits],
        "stopped": result.stopped,
    }


def line(result: Result) -> str:
    reached = result.cpu_s_to_target
    when = f"{reached:9.1f} s" if reached is not None else f"{'–':>11}"
    if not result.fits:
        return f"{result.method:14} {when}  {'–':>8}                      {result.stopped}"
    last = result.fits[-1]
    whole = f"{last.accuracy:7.2%}  after {last.cpu_s:7.1f} s, {last.share:.3g} of its steps"
    return f"{result.method:14} {when}  {whole}{f'; {result.stopped}' if result.stopped else ''}"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.students", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--methods", nargs="+", choices=COMPARED, default=list(COMPARED), help="which to measure")
    parser.add_argument("--limit-s", type=float, default=1200.0, help="CPU seconds for all fits of one method")
    parser.add_argument("--data-root", type=Path, help="folder with mnist.npz; COLLEGIUM_DATA otherwise")
    parser.add_argument("--device", default="cpu", help="auto, cpu or cuda; CPU time tells little about a GPU")
    parser.add_argument("--seed", type=int, default=0, help="draws the labelled images and fixes the students")
    parser.add_argument("--balanced", action="store_true", help="as many labels of each class")
    chosen = parser.parse_args()
    if not chosen.limit_s > 0:
        parser.error("--limit-s must be above 0")
    data = load_data(data_root(chosen.data_root))
    if data.name != "mnist":
        print("mnist is not there: these are the bundled digits, 8 × 8 pixels", file=sys.stderr)
    if not chosen.json:
        print(f"{data.name}: {LABELS} true labels among {len(data.pool)} inputs, {len(data.holdout)} held out")
        print(f"method         CPU to {TARGET:.0%}  accuracy of the longest fit")
    results = []
    for method in chosen.methods:
        results.append(
            measure(
                method,
                data,
                limit_s=chosen.limit_s,
                seed=chosen.seed,
                device=chosen.device,
                balanced=chosen.balanced,
            )
        )
        if not chosen.json:
            print(line(results[-1]), flush=True)
    if chosen.json:
        machine = {"processor": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
        setting = {"data": data.name, "labels": LABELS, "balanced": chosen.balanced}
        setting |= {"seed": chosen.seed, "limit_s": chosen.limit_s}
        print(json.dumps({"machine": machine, **setting, "target": TARGET, "methods": list(map(as_json, results))}))


if __name__ == "__main__":
    main()
