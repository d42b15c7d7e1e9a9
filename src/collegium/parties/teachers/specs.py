"""A teacher before it is fitted (who builds it, its records, its seed, its name), and fitted teachers on disk.

A kept teacher is found again by everything that it was made from. A file's name is a keyed digest of the teacher's
records, its settings, the task and the version of its algorithm: a teacher is reused when all of them are the same, and
nobody without the party's key can tell from a name what the records were. The name ends with a digest of the file's own
bytes, so that a damaged file is noticed. A file is complete or absent, so an interrupted fit goes on at the first
teacher that is missing.
"""

import contextlib
import hashlib
import hmac
import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collegium.data import Examples
from collegium.data.task import Task, TeacherSettings
from collegium.errors import StorageError
from collegium.parties.teachers.array_teachers import ConstantTeacher
from collegium.parties.teachers.base import Teacher, build_teacher, can_be_kept
from collegium.parties.teachers.kinds import find_kind
from collegium.parties.teachers.splits import assign_teachers, derive_key
from collegium.whole_files import storing

_log = logging.getLogger(__name__)


def canonical_order(examples: Examples) -> Examples:
    """The same records in an order that depends on their contents alone, not on where they stood in a file."""
    assert examples.y is not None
    rows = np.ascontiguousarray(examples.x)
    digests = [
        hashlib.blake2b(int(label).to_bytes(8, "little") + row.tobytes(), digest_size=16).digest()
        for row, label in zip(rows, examples.y, strict=True)
    ]
    order = np.array(sorted(range(len(digests)), key=digests.__getitem__), dtype=np.int64)
    return examples.take(order)


def teacher_name(key: bytes, examples: Examples, made_by: Mapping[str, Any]) -> str:
    """A name for the teacher of these records, made as ``made_by`` (JSON values) says."""
    assert examples.y is not None
    digest = hmac.new(key, b"collegium fitted teacher\0", "sha256")
    digest.update(json.dumps(made_by, sort_keys=True, separators=(",", ":")).encode())
    digest.update(f"\0{examples.x.dtype.str}{examples.x.shape}\0".encode())
    digest.update(np.ascontiguousarray(examples.x).tobytes())
    digest.update(np.ascontiguousarray(examples.y, dtype="<i8").tobytes())
    return digest.hexdigest()


class TeacherStore:
    """A folder of fitted teachers; without a folder nothing is kept.

    Raises
    ------
    StorageError
        If the folder cannot be written.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        if folder is not None:
            with storing(f"keep teachers in {folder}"):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    @property
    def keeps(self) -> bool:
        """Whether there is a folder."""
        return self._folder is not None

    def load_into(self, teacher: Teacher, name: str, *, device: str) -> bool:
        """Whether a fitted teacher of that name was found and read; a damaged file counts as absent."""
        if self._folder is None or not can_be_kept(teacher):
            return False
        for path in self._folder.glob(f"{name}.*"):
            try:
                if path.name != _file_name(name, path):
                    raise StorageError(f"{path.name} was changed since it was written")
                teacher.load(path, device=device)
            except (OSError, StorageError) as error:
                _log.warning("a kept teacher is damaged and will be fitted again: %s", error)
                self._remove(path)
            else:
                return True
        return False

    def keep(self, teacher: Teacher, name: str) -> None:
        """Keep a fitted teacher under a name, if it can be kept; StorageError if the folder cannot be written."""
        if self._folder is None or not can_be_kept(teacher):
            return
        partial = self._folder / f".{os.getpid()}.{os.urandom(4).hex()}.partial"
        try:
            with storing(f"keep a teacher in {self._folder}"):
                teacher.save(partial)
                partial.chmod(0o600)
                with partial.open("rb") as file:
                    os.fsync(file.fileno())
                partial.replace(self._folder / _file_name(name, partial))
        finally:
            self._remove(partial)

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _file_name(name: str, path: Path) -> str:
    return f"{name}.{hashlib.sha256(path.read_bytes()).hexdigest()[:32]}.safetensors"


@dataclass(frozen=True)
class TeacherFactory:
    """Builds teachers under one setting, in this process or another."""

    settings: TeacherSettings
    task: Task
    allowed_imports: tuple[str, ...]

    def teacher(self) -> Teacher:
        """One yet to be fitted; see `find_kind` and `build_teacher` for errors."""
        kind = find_kind(self.settings.kind, allowed_imports=self.allowed_imports)
        return build_teacher(kind, self.task, self.settings.options)


@dataclass(frozen=True, eq=False)
class TeacherSpec:
    """A teacher that is yet to be fitted: what it learns from, and where and under which name it is kept."""

    factory: TeacherFactory
    number: int
    records: Examples
    learnable: bool
    """Whether its records have at least two classes; otherwise it is a `ConstantTeacher`."""
    seed: int
    name: str
    store: TeacherStore

    def unfitted(self) -> Teacher:
        """The teacher before it is fitted or loaded."""
        return self.factory.teacher() if self.learnable else ConstantTeacher(self.factory.task)


FittedTeachers = Iterator[tuple[TeacherSpec, Teacher]]
"""Fitted teachers, each with what it was made from."""


def specs_of(
    party: str, examples: Examples, factory: TeacherFactory, *, key: bytes, store: TeacherStore
) -> list[TeacherSpec]:
    """The teachers that a party fits, each with its own records and seed.

    Parameters
    ----------
    party : its name: parties with the same settings start their teachers from different seeds.
    examples : all records of the party, with labels.
    key : the party's secret: it decides which record teaches whom, and names the kept files.

    Raises
    ------
    ConfigurationError, Refused
        If the kind or its options are not valid, not allowed here, or do not suit the task.
    """
    # Built once before any work: wrong options are an error even where every split falls to a constant.
    version, settings = factory.teacher().version, factory.settings
    assigned = assign_teachers(examples.identities(), settings.per_party, key)
    naming_key = derive_key(key, "names of fitted teachers")
    specs = []
    for number in range(settings.per_party):
        own = canonical_order(examples.take(np.flatnonzero(assigned == number)))
        assert own.y is not None
        learnable = len(np.unique(own.y)) > 1
        seed = teacher_seed(settings.seed, party, number)
        made_by = {
            "kind": settings.kind if learnable else "constant",
            "version": version if learnable else ConstantTeacher.version,
            "options": settings.options,
            "task": factory.task.model_dump(mode="json"),
            "seed": seed,
        }
        specs.append(TeacherSpec(factory, number, own, learnable, seed, teacher_name(naming_key, own, made_by), store))
    return specs


def teacher_seed(seed: int, party: str, number: int) -> int:
    """A seed of 63 bits of its own for each teacher of each party."""
    digest = hashlib.sha256(f"collegium teacher seed\0{seed}\0{party}\0{number}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
