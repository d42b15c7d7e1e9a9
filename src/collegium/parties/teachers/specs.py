"""What is known of a teacher before it is fitted: who builds it, its records, its seed and the name of its file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collegium.data.task import Task, TeacherSettings
from collegium.parties.teachers.base import Teacher, build_teacher
from collegium.parties.teachers.constant import ConstantTeacher
from collegium.parties.teachers.kinds import find_kind
from collegium.parties.teachers.splits import assign_teachers, derive_key
from collegium.parties.teachers.store import TeacherStore, canonical_order, teacher_name

if TYPE_CHECKING:
    from collegium.data import Examples


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
    """A teacher that is yet to be fitted: what it learns from, and where and under which name it is kept."""

    number: int
    records: Examples
    learnable: bool
    """Whether its records have at least two classes; otherwise it is a `ConstantTeacher`."""
    seed: int
    name: str
    store: TeacherStore

    def unfitted(self, factory: TeacherFactory) -> Teacher:
        """The teacher before it is fitted or loaded."""
        return factory.teacher() if self.learnable else ConstantTeacher(factory.task)


FittedTeachers = Iterator[tuple[TeacherSpec, Teacher]]
"""Fitted teachers, each with what it was made from."""


def specs_of(
    party: str,
    examples: Examples,
    factory: TeacherFactory,
    settings: TeacherSettings,
    *,
    key: bytes,
    store: TeacherStore,
) -> list[TeacherSpec]:
    """The teachers that a party fits, each with its own records and seed; see `TeacherEnsemble` for the arguments."""
    # Built once before any work: wrong options are an error even where every split falls to a constant.
    version = factory.teacher().version
    assigned = assign_teachers(examples.identities(), settings.per_party, key)
    naming_key = derive_key(key, "names of fitted teachers")
    specs = []
    for number in range(settings.per_party):
        own = canonical_order(examples.take(np.flatnonzero(assigned == number)))
        assert own.y is not None
        learnable = len(np.unique(own.y)) > 1
        seed = _teacher_seed(settings.seed, party, number)
        made_by = {
            "kind": settings.kind if learnable else "constant",
            "version": version if learnable else ConstantTeacher.version,
            "options": settings.options,
            "task": factory.task.model_dump(mode="json"),
            "seed": seed,
        }
        specs.append(TeacherSpec(number, own, learnable, seed, teacher_name(naming_key, own, made_by), store))
    return specs


def _teacher_seed(seed: int, party: str, number: int) -> int:
    """A seed of 63 bits of its own for each teacher of each party."""
    digest = hashlib.sha256(f"collegium teacher seed\0{seed}\0{party}\0{number}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
