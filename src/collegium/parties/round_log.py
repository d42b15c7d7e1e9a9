"""Rounds of secure sums that this party has begun, on disk: none is ever begun twice, restarts included."""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableSet
from pathlib import Path

from collegium.errors import StorageError


class RoundLog(MutableSet[str]):
    """A set of round ids that only grows; one id a line, on the disk before `add` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            self._known = set(path.read_text(encoding="utf-8").split("\n")) - {""}
        except OSError as error:
            raise StorageError(f"cannot use {path}: {error.strerror}") from error

    def __contains__(self, round_id: object) -> bool:
        return round_id in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def add(self, value: str) -> None:
        if value in self._known:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                # A line that a crash cut short must not swallow the next one.
                file.write(f"\n{value}\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error.strerror}") from error
        self._known.add(value)

    def discard(self, value: str) -> None:
        """Not for this set: a round that was begun stays begun."""
        raise StorageError(f"{self._path.name} keeps every round")
