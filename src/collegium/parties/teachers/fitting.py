"""Fitting the teachers that are missing: in a loop, on several cores, or as one program on a GPU.

Whichever way is taken, a teacher is a function of its own records, its seed and public settings alone, and
it is kept as soon as it is fitted, so an interrupted fit goes on at the next missing one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from collegium.data.task import Task
from collegium.models.devices import resolve_device
from collegium.parties.teachers.base import Teacher, build_teacher, find_kind, uses_device
from collegium.parties.teachers.constant import ConstantTeacher
from collegium.parties.teachers.store import TeacherStore

if TYPE_CHECKING:
    from collegium.data import Examples

MAX_TOGETHER = 256
"""Teachers in one program; the memory that they need grows with their number."""


@dataclass(frozen=True)
class TeacherFactory:
    """Builds teachers of one kind with one set of options, in this process or another."""

    kind: str
    options: Mapping[str, Any]
    task: Task
    allowed_imports: tuple[str, ...]

    def teacher(self) -> Teacher:
        """One yet to be fitted; see `find_kind` and `build_teacher` for errors."""
        return build_teacher(find_kind(self.kind, allowed_imports=self.allowed_imports), self.task, self.options)


@dataclass(frozen=True, eq=False)
class TeacherSpec:
    """One teacher to be: what it learns from, and where and under which name it is kept."""

    number: int
    records: Examples
    learnable: bool
    """Whether its records are of two classes at least; if not, it is a constant."""
    seed: int
    name: str
    store: TeacherStore

    def unfitted(self, maker: TeacherFactory) -> Teacher:
        """The teacher before it is fitted or loaded."""
        return maker.teacher() if self.learnable else ConstantTeacher(maker.task)


Fitted = Iterator[tuple[TeacherSpec, Teacher]]


def fit_teachers(maker: TeacherFactory, specs: Sequence[TeacherSpec], *, device: str, threads: int) -> Fitted:
    """Fit, keep and give the teacher of every place, in whatever order they are done.

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
    yield from one_by_one(maker, [spec for spec in specs if not spec.learnable], device)
    learnable = [spec for spec in specs if spec.learnable]
    if len(learnable) < 2:
        yield from one_by_one(maker, learnable, device)
    elif on_cuda(maker, device):
        yield from as_programs(maker, learnable, device)
    elif threads > 1:
        from collegium.parties.teachers.workers import fit_in_workers

        yield from fit_in_workers(maker, learnable, device=device, workers=min(threads, len(learnable)))
    else:
        yield from one_by_one(maker, learnable, device)


def on_cuda(maker: TeacherFactory, device: str) -> bool:
    """Whether teachers of this kind would be fitted on a GPU."""
    return uses_device(maker.teacher()) and resolve_device(device).startswith("cuda")


def as_programs(maker: TeacherFactory, specs: Sequence[TeacherSpec], device: str) -> Fitted:
    """One program for up to `MAX_TOGETHER` teachers, for half as many where the device's memory is too small.

    A kind that cannot be stacked is fitted one by one.
    """
    if not hasattr(maker.teacher(), "fit_together"):
        yield from one_by_one(maker, specs, device)
        return
    from torch import OutOfMemoryError

    waiting, together = list(specs), MAX_TOGETHER
    while waiting:
        chosen = waiting[:together]
        teachers = [spec.unfitted(maker) for spec in chosen]
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


def one_by_one(maker: TeacherFactory, specs: Sequence[TeacherSpec], device: str) -> Fitted:
    """Fit the teachers in a loop."""
    for spec in specs:
        teacher = spec.unfitted(maker)
        teacher.fit(spec.records, seed=spec.seed, device=device)
        spec.store.keep(teacher, spec.name)
        yield spec, teacher
