"""Fitting the teachers that are missing: in a loop, on several cores, or as one program on a GPU.

Whichever way is taken, a teacher is a function of its own records, its seed and public settings alone, and
it is kept as soon as it is fitted, so an interrupted fit goes on at the next missing one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from collegium.parties.store import TeacherStore
from collegium.parties.teachers.base import Teacher, build_teacher, find_kind, uses_device
from collegium.parties.teachers.constant import ConstantTeacher
from collegium.protocol.devices import resolve_device
from collegium.protocol.task import Task

if TYPE_CHECKING:
    from collegium.protocol.inputs import Examples

MAX_TOGETHER = 256
"""Teachers in one program; the memory that they need grows with their number."""


@dataclass(frozen=True)
class Maker:
    """Builds teachers of one kind with one set of options, in this process or another."""

    kind: str
    options: Mapping[str, Any]
    task: Task
    allowed_imports: tuple[str, ...]

    def teacher(self) -> Teacher:
        """One yet to be fitted; see `find_kind` and `build_teacher` for errors."""
        return build_teacher(find_kind(self.kind, allowed_imports=self.allowed_imports), self.task, self.options)


@dataclass(frozen=True, eq=False)
class Place:
    """One teacher to be: what it learns from, and where and under which name it is kept."""

    number: int
    records: Examples
    learnable: bool
    """Whether its records are of two classes at least; if not, it is a constant."""
    seed: int
    name: str
    store: TeacherStore

    def unfitted(self, maker: Maker) -> Teacher:
        """The teacher before it is fitted or loaded."""
        return maker.teacher() if self.learnable else ConstantTeacher(maker.task)


Fitted = Iterator[tuple[Place, Teacher]]


def fit_places(maker: Maker, places: Sequence[Place], *, device: str, threads: int) -> Fitted:
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
    yield from one_by_one(maker, [place for place in places if not place.learnable], device)
    learnable = [place for place in places if place.learnable]
    if len(learnable) < 2:
        yield from one_by_one(maker, learnable, device)
    elif on_cuda(maker, device):
        yield from as_programs(maker, learnable, device)
    elif threads > 1:
        from collegium.parties.workers import fit_in_workers

        yield from fit_in_workers(maker, learnable, device=device, workers=min(threads, len(learnable)))
    else:
        yield from one_by_one(maker, learnable, device)


def on_cuda(maker: Maker, device: str) -> bool:
    """Whether teachers of this kind would be fitted on a GPU."""
    return uses_device(maker.teacher()) and resolve_device(device).startswith("cuda")


def as_programs(maker: Maker, places: Sequence[Place], device: str) -> Fitted:
    """One program for up to `MAX_TOGETHER` teachers, for half as many where the device's memory is too small.

    A kind that cannot be stacked is fitted one by one.
    """
    if not hasattr(maker.teacher(), "fit_together"):
        yield from one_by_one(maker, places, device)
        return
    from torch import OutOfMemoryError

    waiting, together = list(places), MAX_TOGETHER
    while waiting:
        chosen = waiting[:together]
        teachers = [place.unfitted(maker) for place in chosen]
        try:
            fit_together = teachers[0].fit_together  # type: ignore[attr-defined]
            fit_together(teachers, [place.records for place in chosen], [p.seed for p in chosen], device=device)
        except OutOfMemoryError:
            if len(chosen) == 1:
                raise
            together = len(chosen) // 2
            continue
        for place, teacher in zip(chosen, teachers, strict=True):
            place.store.keep(teacher, place.name)
            yield place, teacher
        waiting = waiting[together:]


def one_by_one(maker: Maker, places: Sequence[Place], device: str) -> Fitted:
    """Fit the teachers in a loop."""
    for place in places:
        teacher = place.unfitted(maker)
        teacher.fit(place.records, seed=place.seed, device=device)
        place.store.keep(teacher, place.name)
        yield place, teacher
