"""Fitting the teachers that are missing: in a loop, in processes of one core each, or as one program on a GPU.

Whichever way is taken, a teacher is a function of its own records, its seed and public settings alone, and it is kept
as soon as it is fitted, so an interrupted fit goes on at the next missing one.

Worker processes are started afresh (spawn), so nothing of this process but what is sent to them is in their memory, and
the state of a GPU or of a thread pool is never copied. A fitted teacher comes back through the store, as the file that
a restart would find; one of a kind that no file can hold comes back through the pipe between the two. However this
process ends, its workers end with it.
"""

import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import Any, NamedTuple

from collegium.errors import CollegiumError, FittingFailed, error_for_code
from collegium.logs import raised_at
from collegium.models.devices import one_thread, resolve_device
from collegium.parties.teachers.base import Teacher, can_be_kept, uses_device
from collegium.parties.teachers.specs import FittedTeachers, TeacherFactory, TeacherSpec, TeacherStore

_LEAVE_S = 5.0


class _Failed(NamedTuple):
    """A worker's answer when a fit failed: the error's code and text."""

    code: str
    message: str


def fit_in_workers(specs: Sequence[TeacherSpec], *, device: str, workers: int) -> FittedTeachers:
    """Fit the teachers of ``specs`` in ``workers`` processes; each is kept and yielded as soon as it is done.

    Raises
    ------
    FittingFailed
        If a worker ends or its teacher fails with an error that is no CollegiumError; the others end too.
    CollegiumError
        What a teacher or its store raised.
    """
    with tempfile.TemporaryDirectory(prefix="collegium-") as passing:
        # Without a store of its own, a teacher passes through a folder that only this user can read.
        fallback = TeacherStore(Path(passing))
        waiting = [spec if spec.store.keeps else replace(spec, store=fallback) for spec in specs]
        for spec, reply in _replies(waiting, device, workers):
            if isinstance(reply, _Failed):
                raise error_for_code(reply.code, reply.message)
            teacher = reply
            if teacher is None:
                teacher = spec.unfitted()
                if not spec.store.load_into(teacher, spec.name, device=device):
                    raise FittingFailed("the file of a fitted teacher is missing: check the party's folder")
            yield spec, teacher


def _replies(specs: list[TeacherSpec], device: str, workers: int) -> Iterator[tuple[TeacherSpec, Any]]:
    """The workers' answers, one for each teacher. Every worker has ended when this ends, also after an error."""
    context = get_context("spawn")
    waiting = specs[::-1]
    busy: dict[connection.Connection, TeacherSpec] = {}
    processes = {}
    try:
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, device), daemon=True)
            process.start()
            theirs.close()
            processes[ours] = process
        for ours in processes:
            _hand_out(ours, waiting, busy)
        while busy:
            for ready in connection.wait(list(busy)):
                assert isinstance(ready, connection.Connection)
                try:
                    reply = ready.recv()
                except (EOFError, OSError):
                    processes[ready].join(_LEAVE_S)
                    raise FittingFailed(_ended(processes[ready].exitcode)) from None
                yield busy.pop(ready), reply
                _hand_out(ready, waiting, busy)
    finally:
        for ours, process in processes.items():
            ours.close()
            process.terminate()
        for process in processes.values():
            process.join(_LEAVE_S)
            if process.is_alive():
                process.kill()
                process.join()


def _hand_out(
    worker: connection.Connection, waiting: list[TeacherSpec], busy: dict[connection.Connection, TeacherSpec]
) -> None:
    if waiting:
        spec = waiting.pop()
        with contextlib.suppress(OSError):  # it has ended: reading from it will say so
            worker.send(spec)
        busy[worker] = spec


def _ended(exit_code: int | None) -> str:
    how = f"was ended by signal {-exit_code}" if exit_code is not None and exit_code < 0 else f"ended ({exit_code})"
    return (
        f"a process that fitted teachers {how}: if memory ran out, give the party fewer threads; what is fitted stays"
    )


def _work(pipe: connection.Connection, device: str) -> None:
    """The worker's process: fit every teacher that the pipe brings, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the party's to answer; it ends its workers
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # so that half a file is taken away
    threading.Thread(target=_end_with_the_party, daemon=True).start()
    try:
        while True:
            spec: TeacherSpec = pipe.recv()
            pipe.send(_fitted(spec, device))
    except (EOFError, OSError):
        return
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # nothing is left to take away


def _fitted(spec: TeacherSpec, device: str) -> Teacher | _Failed | None:
    """The teacher where no file can hold it, else None once it is kept."""
    try:
        _, teacher = next(one_by_one([spec], device))
        return None if can_be_kept(teacher) else teacher
    except CollegiumError as error:
        return _Failed(error.code, str(error))
    except Exception as error:
        where = f"{type(error).__name__} at {raised_at(error)}"
        kind = spec.factory.settings.kind
        return _Failed(FittingFailed.code, f"a teacher of the kind {kind} failed while it was fitted: {where}")


def _end_with_the_party() -> None:
    party = parent_process()
    assert party is not None
    connection.wait([party.sentinel])
    os._exit(1)


MAX_TOGETHER = 256
"""Teachers in one program; the memory that they need grows with their number."""


def fit_teachers(specs: Sequence[TeacherSpec], *, device: str, threads: int) -> FittedTeachers:
    """Fit and keep the teachers of ``specs``; yield each of them when it is done.

    Parameters
    ----------
    threads : cores that may be used; with more than one, as many processes share the teachers.

    Raises
    ------
    FittingFailed
        If a process that fits teachers fails.
    CollegiumError
        Whatever a teacher or its store raises.
    """
    yield from one_by_one([spec for spec in specs if not spec.learnable], device)
    learnable = [spec for spec in specs if spec.learnable]
    if len(learnable) > 1 and on_cuda(learnable[0].factory, device):
        yield from as_programs(learnable, device)
    elif len(learnable) > 1 and threads > 1:
        yield from fit_in_workers(learnable, device=device, workers=min(threads, len(learnable)))
    else:
        yield from one_by_one(learnable, device)


def on_cuda(factory: TeacherFactory, device: str) -> bool:
    """Whether teachers of this kind would be fitted on a GPU."""
    return uses_device(factory.teacher()) and resolve_device(device).startswith("cuda")


def as_programs(specs: Sequence[TeacherSpec], device: str) -> FittedTeachers:
    """One program for up to `MAX_TOGETHER` teachers, for half as many where the device's memory is too small.

    A kind that cannot be stacked is fitted one by one.
    """
    if not hasattr(specs[0].factory.teacher(), "fit_together"):
        yield from one_by_one(specs, device)
        return
    from torch import OutOfMemoryError

    waiting, together = list(specs), MAX_TOGETHER
    while waiting:
        chosen = waiting[:together]
        teachers = [spec.unfitted() for spec in chosen]
        try:
            fit_together = teachers[0].fit_together  # type: ignore[attr-defined]
            fit_together(teachers, [spec.records for spec in chosen], [p.seed for p in chosen], device=device)
        except OutOfMemoryError:
            if len(chosen) == 1:
                raise
            together = len(chosen) // 2
            continue
        for spec, teacher in zip(chosen, teachers, strict=True):
            spec.store.keep(teacher, spec.name)
            yield spec, teacher
        waiting = waiting[together:]


def one_by_one(specs: Sequence[TeacherSpec], device: str) -> FittedTeachers:
    """Fit the teachers in a loop, each with one thread, so that its sums do not depend on how many there are."""
    for spec in specs:
        teacher = spec.unfitted()
        with one_thread():
            teacher.fit(spec.records, seed=spec.seed, device=device)
        spec.store.keep(teacher, spec.name)
        yield spec, teacher
