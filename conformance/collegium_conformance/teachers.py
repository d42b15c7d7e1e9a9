"""The suite for teachers: a record touches one teacher, and a teacher is a function of its records and its seed.

Teachers are fitted through the party's own `TeacherEnsemble`, in fresh processes, so that what one teacher leaves
behind in its class, its module or its process is noticed where it would matter: at the party.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from collegium.data import Examples
from collegium.data.task import ImageInputs, Task, TeacherSettings
from collegium.errors import ConfigurationError, StorageError
from collegium.parties.teachers.base import Kind, Teacher, build_teacher, can_be_kept
from collegium.parties.teachers.ensemble import TeacherEnsemble
from collegium.parties.teachers.kinds import find_kind
from collegium.parties.teachers.specs import TeacherFactory, TeacherStore, specs_of
from collegium.parties.teachers.splits import assign_teachers
from collegium_accounting.units import IntArray
from collegium_conformance.promises import (
    check_file,
    class_numbers,
    easy_examples,
    on_a_suitable_task,
    promise,
    refuses,
)

_TEACHERS = 3
_RECORDS = 240
_PROBES = 300
_KEY = bytes(range(32))
_TIME_LIMIT_S = 600


def check_teacher(
    kind: str, *, options: Mapping[str, float | int | str | bool] | None = None, task: Task | None = None
) -> None:
    """Check that a kind of teacher keeps its promises.

    Parameters
    ----------
    kind : str
        A built-in or installed name, or the import path ``package.module:Class`` under which a party would allow it.
    options : mapping, optional
        Options of the kind; few steps or trees make the suite fast.
    task : Task, optional
        What the teachers learn; by default a small table, and small images where the kind does not suit tables.

    Raises
    ------
    AssertionError
        With the promise that is broken: the kind cannot be imported or built; it has no version; it does not
        predict one class number per input; records of one teacher change the votes of another; teachers depend
        on what was fitted before, on the process's random state or on the number of threads; the file is not of
        arrays alone, cannot be read back, or is read although it is damaged.

    Notes
    -----
    Some ten seconds: three processes fit three teachers each on 240 records.
    """
    built, chosen = _built(kind, dict(options or {}), task)
    _check_alone(kind, built, chosen, dict(options or {}))
    _check_together(kind, chosen, dict(options or {}))


def _built(kind: str, options: dict[str, Any], task: Task | None) -> tuple[Kind, Task]:
    """What builds teachers of the kind, and the first task that it suits."""
    try:
        built = find_kind(kind, allowed_imports=(kind,))
    except ConfigurationError as error:
        raise AssertionError(f"no party could use the teacher {kind}: {error}") from error
    fits = on_a_suitable_task(f"the teacher {kind}", task, lambda suitable: build_teacher(built, suitable, options))
    return built, fits[1]


def _check_alone(kind: str, built: Kind, task: Task, options: dict[str, Any]) -> None:
    """One teacher: what it says, predicts, writes and reads."""
    examples = easy_examples(task, _RECORDS, seed=1)
    probes = easy_examples(task, _PROBES, seed=2).x
    teacher = build_teacher(built, task, options)
    version = getattr(teacher, "version", None)
    promise(isinstance(version, str) and bool(version), f"{kind}: version must be a text that is not empty")
    x, y = examples.x.copy(), examples.labels().copy()
    teacher.fit(examples, seed=3, device="cpu")
    promise(bool((examples.x == x).all() and (examples.labels() == y).all()), f"{kind} changes the records it is given")
    predicted = teacher.predict(probes)
    class_numbers(predicted, len(probes), len(task.classes), kind)
    class_numbers(teacher.predict(probes[:1]), 1, len(task.classes), kind)
    refuses(
        ConfigurationError,
        lambda: build_teacher(built, task, {**options, "no_such_option": 1}),
        f"{kind} must refuse an option that it does not have",
    )
    if can_be_kept(teacher):
        check_file(kind, teacher, lambda path: _read(built, task, options, path), StorageError, probes)


def _read(built: Kind, task: Task, options: dict[str, Any], path: Path) -> Teacher:
    teacher = build_teacher(built, task, options)
    teacher.load(path, device="cpu")
    return teacher


def _check_together(kind: str, task: Task, options: dict[str, Any]) -> None:
    """Teachers of one party, fitted in fresh processes from two data sets that differ in one group."""
    fits: tuple[dict[str, Any], ...] = (
        {"data": "grouped", "before": None, "threads": 1, "random_state": 0},
        {"data": "changed", "before": None, "threads": 1, "random_state": 0},
        {"data": "grouped", "before": "other", "threads": 2, "random_state": 7},
    )
    votes, changed, disturbed = _votes_of(fits, kind, task, options)
    moved = np.abs(votes - changed).sum(axis=1)
    promise(
        bool((moved <= 2).all()),
        f"{kind}: one group of records, which belongs to one teacher, changed {int(moved.max()) // 2} of "
        f"{_TEACHERS} votes on one input: teachers look at one another's records, so that ε would not hold",
    )
    promise(
        bool((votes == disturbed).all()),
        f"{kind}: the same records and seed gave other votes when something else was fitted before, with two "
        "threads and another random state of the process: a teacher must depend on its records and its seed alone",
    )


def _records(name: str, task: Task) -> Examples:
    """``grouped``: 30 groups. ``changed``: one group of the first teacher has extreme inputs and other classes.

    What the first teacher leaves behind reaches all others: its records are the ones to change. ``other``: few others.
    """
    if name == "other":
        return easy_examples(task, 90, seed=5)
    examples = easy_examples(task, _RECORDS, seed=4)
    groups = np.array([f"group-{number % 30}" for number in range(len(examples))])
    examples = Examples(examples.x, examples.y, groups)
    if name == "changed":
        first = int(np.flatnonzero(assign_teachers(examples.identities(), _TEACHERS, _KEY) == 0)[0])
        rows = groups == groups[first]
        x, y = examples.x.copy(), examples.labels().copy()
        x[rows] = 255 - x[rows] if isinstance(task.inputs, ImageInputs) else 1.0 - x[rows]
        y[rows] = (y[rows] + 1) % len(task.classes)
        examples = Examples(x, y, groups)
    return examples


def _votes_of(fits: tuple[dict[str, Any], ...], kind: str, task: Task, options: dict[str, Any]) -> list[IntArray]:
    """The votes of each fit, ``[probes, classes]``, all processes at once."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"votes-{number}.npy" for number in range(len(fits))]
        processes = []
        for fit, file in zip(fits, files, strict=True):
            asked = fit | {"kind": kind, "task": task.model_dump(mode="json"), "options": options, "out": str(file)}
            environment = os.environ | {
                "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
                "OMP_NUM_THREADS": str(fit["threads"]),
            }
            # Not by -m: the processes that fit teachers would import the main module, this suite, as well.
            program = "import sys; from collegium_conformance.teachers import fit_alone; fit_alone(sys.argv[1])"
            command = [sys.executable, "-c", program, json.dumps(asked)]
            processes.append(
                subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            )
        for process in processes:
            try:
                complaints = process.communicate(timeout=_TIME_LIMIT_S)[1]
            finally:
                process.kill()
            if process.returncode:
                last = complaints.strip().splitlines()[-1:] or ["nothing was printed"]
                raise AssertionError(f"{kind} cannot be fitted in a process of its own: {last[0]}")
        return [np.load(file) for file in files]


def fit_alone(request: str) -> None:
    """What one of the processes does: fit ``data``, after ``before`` if there is any; the votes go to ``out``.

    ``before`` is fitted in this very process, where it leaves behind what it can.
    """
    asked = json.loads(request)
    task = Task.model_validate(asked["task"])
    random.seed(asked["random_state"])
    np.random.seed(asked["random_state"])
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(asked["random_state"])
    probes = easy_examples(task, _PROBES, seed=6, spread=0.5).x
    settings = TeacherSettings(kind=asked["kind"], per_party=_TEACHERS, seed=11, options=asked["options"])
    factory = TeacherFactory(settings, task, (asked["kind"],))

    def votes(name: str, threads: int) -> IntArray:
        specs = specs_of("party", _records(name, task), factory, key=_KEY, store=TeacherStore(None))
        return TeacherEnsemble(specs, device="cpu", threads=threads).votes(probes)

    if asked["before"] is not None:
        votes(asked["before"], 1)
    np.save(asked["out"], votes(asked["data"], asked["threads"]))
