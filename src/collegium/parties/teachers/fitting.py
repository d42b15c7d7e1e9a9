"""Fitting the teachers that are missing: in a loop, on several cores, or as one program on a GPU.

Whichever way is taken, a teacher is a function of its own records, its seed and public settings alone, and
it is kept as soon as it is fitted, so an interrupted fit goes on at the next missing one.
"""

from __future__ import annotations

from collections.abc import Sequence

from collegium.models.devices import one_thread, resolve_device
from collegium.parties.teachers.base import uses_device
from collegium.parties.teachers.specs import FittedTeachers, TeacherFactory, TeacherSpec
from collegium.parties.teachers.workers import fit_in_workers

MAX_TOGETHER = 256
"""Teachers in one program; the memory that they need grows with their number."""


def fit_teachers(factory: TeacherFactory, specs: Sequence[TeacherSpec], *, device: str, threads: int) -> FittedTeachers:
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
    yield from one_by_one(factory, [spec for spec in specs if not spec.learnable], device)
    learnable = [spec for spec in specs if spec.learnable]
    if len(learnable) < 2:
        yield from one_by_one(factory, learnable, device)
    elif on_cuda(factory, device):
        yield from as_programs(factory, learnable, device)
    elif threads > 1:
        yield from fit_in_workers(factory, learnable, device=device, workers=min(threads, len(learnable)))
    else:
        yield from one_by_one(factory, learnable, device)


def on_cuda(factory: TeacherFactory, device: str) -> bool:
    """Whether teachers of this kind would be fitted on a GPU."""
    return uses_device(factory.teacher()) and resolve_device(device).startswith("cuda")


def as_programs(factory: TeacherFactory, specs: Sequence[TeacherSpec], device: str) -> FittedTeachers:
    """One program for up to `MAX_TOGETHER` teachers, for half as many where the device's memory is too small.

    A kind that cannot be stacked is fitted one by one.
    """
    if not hasattr(factory.teacher(), "fit_together"):
        yield from one_by_one(factory, specs, device)
        return
    from torch import OutOfMemoryError

    waiting, together = list(specs), MAX_TOGETHER
    while waiting:
        chosen = waiting[:together]
        teachers = [spec.unfitted(factory) for spec in chosen]
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


def one_by_one(factory: TeacherFactory, specs: Sequence[TeacherSpec], device: str) -> FittedTeachers:
    """Fit the teachers in a loop, each with one thread, so that its sums do not depend on how many there are."""
    for spec in specs:
        teacher = spec.unfitted(factory)
        with one_thread():
            teacher.fit(spec.records, seed=spec.seed, device=device)
        spec.store.keep(teacher, spec.name)
        yield spec, teacher
