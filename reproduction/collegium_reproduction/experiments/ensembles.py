"""Ensembles of teachers whose votes several experiments share: fitted once, their votes kept by content.

Each party is the one of a simulation with the same settings: the same records, name, key and seed, hence the
same teacher. Fitting is spread over processes and goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data import DataSource, Examples, default_task, load
from collegium.data.task import Task, TeacherSettings
from collegium.data.teacher_kinds import BUILT_IN, installed_kinds
from collegium.errors import StorageError
from collegium.parties.teachers.ensemble import TeacherEnsemble
from collegium.parties.teachers.specs import TeacherFactory, TeacherStore, specs_of
from collegium.parties.teachers.splits import simulated_key
from collegium.simulations.partitions import PartitionConfig, partition
from collegium_accounting.units import IntArray
from collegium_reproduction.experiments.base import Setting

_SAY_EVERY = 25


@dataclass(frozen=True)
class Ensemble:
    """One teacher per party on equal shares of ``private``, asked about ``queries``."""

    task: Task
    private: DataSource
    queries: DataSource
    parties: int
    kind: str
    seed: int

    @property
    def settings(self) -> TeacherSettings:
        return TeacherSettings(kind=self.kind, seed=self.seed)

    def of(self, *, parties: int, seed: int, kind: str | None = None) -> Ensemble:
        """The same with another number of parties, seed or kind of teacher."""
        return replace(self, parties=parties, seed=seed, kind=kind or self.kind)


MNIST = Ensemble(
    default_task("mnist"),
    private=DataSource(source="mnist", split="train"),
    queries=DataSource(source="mnist", split="test"),
    parties=250,
    kind="small-cnn",
    seed=0,
)
"""The papers' cohort: 60,000 training images in 250 equal shares, asked about all 10,000 test images."""


@dataclass(frozen=True, eq=False)
class EnsembleVotes:
    """What an ensemble said.

    Attributes
    ----------
    votes : shape ``[queries, classes]``; every row sums to the number of parties.
    truth : true class of each query, shape ``[queries]``.
    teachers : accuracy of each teacher on the queries, shape ``[parties]``.
    cpu_s : processor time of fitting and asking all teachers; what was fitted before an interruption is not in it.
    """

    votes: IntArray
    truth: IntArray
    teachers: NDArray[np.float64]
    cpu_s: float


@dataclass(frozen=True)
class _Work:
    """What a process needs to fit any of the teachers."""

    ensemble: Ensemble
    data_root: Path | None
    store: Path
    device: str


def load_or_compute_votes(ensemble: Ensemble, setting: Setting) -> EnsembleVotes:
    """The votes of ``ensemble``, from the folder of ensembles if they are there, else by fitting what is missing.

    Raises StorageError when the folder cannot be used and DataError when the data are not what the task needs.
    """
    private, queries = _examples(ensemble, setting.data_root)
    path = setting.ensembles / f"{_name(ensemble, private, queries)}.npz"
    if not path.is_file():
        _save(path, _asked(ensemble, queries, setting))
    with np.load(path, allow_pickle=False) as kept:
        return EnsembleVotes(kept["votes"], kept["truth"], kept["teachers"], float(kept["cpu_s"]))


def _asked(ensemble: Ensemble, queries: Examples, setting: Setting) -> EnsembleVotes:
    work = _Work(ensemble, setting.data_root, setting.ensembles / "teachers", setting.device)
    truth = queries.labels()
    votes = np.zeros((len(queries), len(ensemble.task.classes)), dtype=np.int64)
    accuracies, cpu_s = [], 0.0
    for labels, spent_s in _answers(work, setting.workers):
        votes[np.arange(len(labels)), labels] += 1
        accuracies.append(float((labels == truth).mean()))
        cpu_s += spent_s
        if len(accuracies) % _SAY_EVERY == 0 or len(accuracies) == ensemble.parties:
            setting.say(f"{ensemble.kind}, seed {ensemble.seed}: {len(accuracies)} of {ensemble.parties} teachers")
    return EnsembleVotes(votes, truth, np.array(accuracies), cpu_s)


def _answers(work: _Work, workers: int) -> Iterator[tuple[IntArray, float]]:
    numbers = range(work.ensemble.parties)
    if workers == 1:
        parts, private, queries = _dealt(work)
        for number in numbers:
            yield _answer(work, private.take(parts[number]), queries, number)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(work,)) as pool:
        yield from pool.map(_answer_here, numbers)


_here: list[Callable[[int], tuple[IntArray, float]]] = []


def _start(work: _Work) -> None:
    """In a fresh process: read the data once."""
    parts, private, queries = _dealt(work)
    _here.append(partial(_answer_from, work, parts, private, queries))


def _answer_here(number: int) -> tuple[IntArray, float]:
    return _here[0](number)


def _answer_from(
    work: _Work, parts: list[IntArray], private: Examples, queries: Examples, number: int
) -> tuple[IntArray, float]:
    return _answer(work, private.take(parts[number]), queries, number)


def _answer(work: _Work, records: Examples, queries: Examples, number: int) -> tuple[IntArray, float]:
    """One party's label for each query and the processor time that they took."""
    ensemble = work.ensemble
    name = f"party-{number:0{len(str(ensemble.parties - 1))}d}"
    began_s = time.process_time()
    factory = TeacherFactory(ensemble.settings, ensemble.task, (ensemble.settings.kind,))
    store, key = TeacherStore(work.store), simulated_key(ensemble.seed, name)
    fitted = TeacherEnsemble(specs_of(name, records, factory, key=key, store=store), device=work.device, threads=1)
    labels = fitted.votes(queries.x).argmax(axis=1).astype(np.int64)
    return labels, time.process_time() - began_s


def _dealt(work: _Work) -> tuple[list[IntArray], Examples, Examples]:
    private, queries = _examples(work.ensemble, work.data_root)
    parts = partition(private, PartitionConfig(parties=work.ensemble.parties, seed=work.ensemble.seed))
    return parts, private, queries


def _examples(ensemble: Ensemble, data_root: Path | None) -> tuple[Examples, Examples]:
    return (
        load(ensemble.private, ensemble.task, data_root=data_root),
        load(ensemble.queries, ensemble.task, data_root=data_root),
    )


def _name(ensemble: Ensemble, private: Examples, queries: Examples) -> str:
    """Named by everything that the votes hang on, the contents of the records included."""
    made_by = {
        "task": ensemble.task.model_dump(mode="json"),
        "parties": ensemble.parties,
        "teachers": ensemble.settings.model_dump(mode="json"),
        "version": resolve_name((BUILT_IN | installed_kinds())[ensemble.kind]).version,
    }
    digest = hashlib.sha256(json.dumps(made_by, sort_keys=True).encode())
    for examples in (private, queries):
        for array in (examples.x, examples.labels()):
            digest.update(f"\0{array.dtype.str}{array.shape}\0".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return f"votes-{ensemble.parties}-{ensemble.kind}-seed-{ensemble.seed}-{digest.hexdigest()[:16]}"


def _save(path: Path, said: EnsembleVotes) -> None:
    keep_arrays(path, votes=said.votes, truth=said.truth, teachers=said.teachers, cpu_s=np.float64(said.cpu_s))


def keep_arrays(path: Path, **arrays: NDArray[Any] | np.float64) -> None:
    """Write arrays to an ``.npz`` that is complete or absent; StorageError if that fails."""
    unfinished = path.with_suffix(".unfinished.npz")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(unfinished, allow_pickle=False, **arrays)
        unfinished.replace(path)
    except OSError as error:
        raise StorageError(f"cannot keep votes in {path.parent}: {error.strerror}") from error
