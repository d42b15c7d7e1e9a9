"""The parties of each exact sum whose opening began, on disk: after a crash the same parties are asked again."""

import json
from collections.abc import Sequence
from pathlib import Path

from collegium.errors import StorageError
from collegium.whole_files import write_whole

_ROUNDS_KEPT = 16
"""Rounds come one after the other; only the latest can be unfinished."""


class BegunSums(dict[str, Sequence[str]]):
    """Names of parties by round, in the file at ``path``; what is set is on the disk before `__setitem__` returns.

    Raises
    ------
    StorageError
        If the file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            super().__init__(json.loads(path.read_text(encoding="utf-8")) if path.exists() else {})
        except (OSError, ValueError) as error:
            raise StorageError(f"cannot read {path}: {error}; remove it, or restore it from a copy") from error

    def __setitem__(self, round_id: str, parties: Sequence[str]) -> None:
        super().__setitem__(round_id, tuple(parties))
        for old in list(self)[:-_ROUNDS_KEPT]:
            del self[old]
        write_whole(self._path, json.dumps(self))
