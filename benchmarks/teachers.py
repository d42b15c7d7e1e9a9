"""How long the teachers of one party take: one after the other, in two processes, as one batched program.

``python -m benchmarks.teachers --json`` prints one JSON object: for each way the seconds until all teachers
are fitted, from the start of its processes on, the teachers' mean accuracy on inputs held out, and the peak
of memory. Each way runs in a process of its own. Without MNIST under --data-root (or COLLEGIUM_DATA) the
bundled 8 × 8 digits take its place.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from collegium.data import DataSource, Examples, load
from collegium.data.loading.sources import data_root
from collegium.data.task import ImageInputs, Task, TeacherSettings
from collegium.errors import CollegiumError
from collegium.models.devices import check_device, resolve_device
from collegium.parties.teachers.fitting import as_programs, fit_in_workers, one_by_one
from collegium.parties.teachers.specs import TeacherFactory, TeacherStore, specs_of
from collegium.parties.teachers.splits import simulated_key

TEACHERS = 250
WORKERS = 2
_FEWEST_RECORDS = 100
HELD_OUT = 1000
WAYS = ("loop", "processes", "program")
_PARTY = "clinic"


@dataclass(frozen=True)
class Digits:
    """Labelled images of digits: what teachers learn from and what they are measured on."""

    name: str
    task: Task
    private: Examples
    held_out: Examples

    def for_teachers(self, teachers: int) -> Digits:
        """The first records alone, as many for each teacher as each of `TEACHERS` would have."""
        share = len(self.private) * min(teachers, TEACHERS) // TEACHERS
        return replace(self, private=self.private.take(np.arange(max(share, _FEWEST_RECORDS))))


@dataclass(frozen=True)
class Cost:
    """One way to fit all teachers; the memory of several processes is the sum of their peaks, which need not meet."""

    way: str
    device: str
    teachers: int
    """That learn; the others' records are all of one class."""
    seconds: float
    teacher_accuracy: float
    peak_memory_bytes: int
    peak_gpu_memory_bytes: int | None


def machine() -> dict[str, Any]:
    """What the timings were taken on."""
    import torch

    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def load_digits(root: Path | None) -> Digits:
    """MNIST with the last images of its test set held out, or the bundled digits where it is not at hand."""
    names = tuple("0123456789")
    try:
        task = Task(classes=names, inputs=ImageInputs(height=28, width=28))
        private = load(DataSource(source="mnist"), task, data_root=root)
        held_out = load(DataSource(source="mnist", split="test", start=9000), task, data_root=root)
        return Digits("MNIST", task, private, held_out)
    except CollegiumError:
        task = Task(classes=names, inputs=ImageInputs(height=8, width=8))
        everything = load(DataSource(source="digits", split="all"), task, data_root=None)
        order = np.random.default_rng(0).permutation(len(everything))
        private, held_out = everything.take(order[HELD_OUT:]), everything.take(order[:HELD_OUT])
        return Digits("scikit-learn's digits, as MNIST is not at hand", task, private, held_out)


def measure(way: str, digits: Digits, settings: TeacherSettings, device: str) -> Cost:
    """Fit all teachers of one party and ask each about the inputs held out."""
    import torch

    torch.set_num_threads(1)
    target = "cpu" if way == "processes" else resolve_device(device)
    factory = TeacherFactory(settings, digits.task, ())
    specs = specs_of(_PARTY, digits.private, factory, key=simulated_key(0, _PARTY), store=TeacherStore(None))
    learnable = [spec for spec in specs if spec.learnable]
    factory.teacher()  # what is imported on the way is no part of fitting
    began_s = time.monotonic()
    match way:
        case "loop":
            done = one_by_one(learnable, target)
        case "processes":
            done = fit_in_workers(learnable, device=target, workers=WORKERS)
        case _:
            done = as_programs(learnable, target)
    teachers = [teacher for _, teacher in done]
    seconds = time.monotonic() - began_s
    truth = digits.held_out.labels()
    return Cost(
        way,
        target,
        len(teachers),
        seconds,
        float(np.mean([(teacher.predict(digits.held_out.x) == truth).mean() for teacher in teachers])),
        _peak_bytes(WORKERS if way == "processes" else 0),
        torch.cuda.max_memory_allocated(target) if target.startswith("cuda") else None,
    )


def _peak_bytes(children: int) -> int:
    """Of this process and so many children, each taken to be as large as the largest."""
    own, theirs = (resource.getrusage(whose).ru_maxrss for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return 1024 * (own + children * theirs)


def targets(costs: dict[str, Cost], teachers: int) -> dict[str, dict[str, Any]]:
    """What is promised beside what was measured; the program's promises are about a GPU and 250 teachers."""
    loop, program = costs["loop"], costs["program"]
    checks: dict[str, dict[str, Any]] = {}

    def check(name: str, value: float, limit: float, met: bool) -> None:
        checks[name] = {"value": value, "limit": limit, "met": met}

    if loop.device == "cpu":
        ratio = loop.seconds / costs["processes"].seconds
        check(f"times_faster_in_{WORKERS}_processes", ratio, WORKERS / 1.1, ratio >= WORKERS / 1.1)
    if program.device.startswith("cuda") and teachers == TEACHERS:
        ratio = loop.seconds / program.seconds
        check("times_faster_as_a_program", ratio, 20.0, ratio >= 20.0)
        check("program_s", program.seconds, 20.0, program.seconds < 20.0)
    return checks


def _apart(way: str, digits: Digits, settings: TeacherSettings, device: str) -> Cost:
    """`measure` in a process of its own, so that each way has its own peak of memory."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(measure, way, digits, settings, device).result()


def _table(result: dict[str, Any]) -> Table:
    shown = Table(title=f"{result['teachers']} teachers ({result['kind']}) on {result['data']}")
    for column in ("way", "device", "seconds", "times the loop", "teachers right", "memory", "GPU memory"):
        shown.add_column(column, justify="left" if column in ("way", "device") else "right")
    for cost in result["ways"]:
        gpu = cost["peak_gpu_memory_bytes"]
        shown.add_row(
            cost["way"],
            cost["device"],
            f"{cost['seconds']:.1f}",
            f"{cost['times_faster_than_loop']:.2f}",
            f"{100 * cost['teacher_accuracy']:.2f} %",
            f"{cost['peak_memory_bytes'] / 1e6:.0f} MB",
            "–" if gpu is None else f"{gpu / 1e6:.0f} MB",
        )
    return shown


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.teachers", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--teachers", type=int, default=TEACHERS, help=f"{TEACHERS} by default; 16 for a short run")
    parser.add_argument("--kind", default="small-cnn", help="a built-in network")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:0")
    parser.add_argument("--data-root", type=Path, help="where MNIST lies")
    chosen = parser.parse_args()
    if not 2 <= chosen.teachers <= 1000:
        parser.error("from 2 to 1,000 teachers")
    try:
        check_device(chosen.device)
        digits = load_digits(data_root(chosen.data_root))
        # As many records a teacher as 250 of them have, whatever their number.
        digits = digits.for_teachers(chosen.teachers)
        settings = TeacherSettings(kind=chosen.kind, per_party=chosen.teachers)
        costs = {way: _apart(way, digits, settings, chosen.device) for way in WAYS}
    except CollegiumError as error:
        parser.error(str(error))
    result: dict[str, Any] = {
        "machine": machine(),
        "data": digits.name,
        "kind": chosen.kind,
        "teachers": chosen.teachers,
        "records": len(digits.private),
        "ways": [
            asdict(cost) | {"times_faster_than_loop": costs["loop"].seconds / cost.seconds} for cost in costs.values()
        ],
        "targets": targets(costs, chosen.teachers),
    }
    if chosen.json:
        print(json.dumps(result, indent=2))
        return
    console = Console()
    console.print(_table(result))
    for name, check in result["targets"].items():
        verdict = "met" if check["met"] else "MISSED"
        console.print(f"{name}: {check['value']:.3g} against {check['limit']:.3g}: {verdict}", highlight=False)


if __name__ == "__main__":
    main()
