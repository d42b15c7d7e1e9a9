"""What releases leave on the disk beside the ledger: with whom exact sums were opened, and the noisy vectors."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from collegium.coordinator.selection.queries import content_of
from collegium.errors import QuorumNotReached, StorageError
from collegium.models.arrays import load_arrays, save_arrays
from collegium.whole_files import exclusive, replacing, write_whole
from collegium_accounting.units import IntArray

_KIND = "released vector"


class Begun(NamedTuple):
    """The one exact sum about an input.

    Parameters
    ----------
    study : whose sum it is; None outside a consortium's studies.
    classes : digest of what its counts count, in order.
    roster : digest of the roster that it is over.
    parties : whose answers are in it, sorted, once its opening began; None before.
    """

    study: str | None
    classes: str
    roster: str
    parties: tuple[str, ...] | None


class Name(NamedTuple):
    """What names the question that a vector answers.

    Parameters
    ----------
    charged : as the ledger's charge names it.
    about : what it is about, where several are charged alike.
    """

    charged: str
    about: str = ""


class Released(NamedTuple):
    """A noisy vector; public.

    Parameters
    ----------
    values : int64 ``[length]``.
    noise : standard deviation of the noise on every entry.
    answered : how many parties it sums.
    """

    values: IntArray
    noise: float
    answered: int


class Journal:
    """The files of the releases under one ledger; runs share them.

    Parameters
    ----------
    folder : that holds the ledger.

    Raises
    ------
    StorageError
        If a file cannot be read or written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._exact, self._begun = folder, folder / "exact-sums.json", dict[str, Begun]()

    def begun(self, queries: Sequence[str]) -> list[Begun | None]:
        """What is known now of the exact sum about each input, whichever study's; None where there was none.

        ``queries`` are the inputs' keys (`query_key`).
        """
        if self._exact.exists():
            try:
                for study, classes, roster, parties, noted in json.loads(self._exact.read_text(encoding="utf-8")):
                    sum_ = Begun(study, classes, roster, None if parties is None else tuple(parties))
                    self._begun |= dict.fromkeys(noted, sum_)
            except (OSError, ValueError, TypeError) as error:
                mend = "restore it from a copy: without it a second sum of an input might be asked for, and is refused"
                raise StorageError(f"cannot read {self._exact}: {error}; {mend}") from error
        return [self._begun.get(content_of(query)) for query in queries]

    def begin(self, queries: Sequence[str], sum_: Begun) -> None:
        """Note a sum before anything leaves a party, and once more, with its parties, before its opening begins.

        Raises QuorumNotReached where another run noted another sum about one of these inputs in the meantime.
        """
        with exclusive(self._exact.with_name(f".{self._exact.stem}.lock")):
            for known in self.begun(queries):
                if known not in (None, sum_, sum_._replace(parties=None)):
                    raise QuorumNotReached("another run under this ledger opens these sums: start this run again")
            self._begun |= dict.fromkeys(map(content_of, queries), sum_)
            alike: dict[Begun, list[str]] = {}
            for content, one in self._begun.items():
                alike.setdefault(one, []).append(content)
            write_whole(self._exact, json.dumps([(*one, noted) for one, noted in alike.items()]))

    def released(self, question: Name) -> Released | None:
        """The noisy vector that answers this question; None where there is none.

        Raises StorageError where its file is damaged: what it held was paid for.
        """
        file = self.file(question)
        if not file.exists():
            return None
        try:
            arrays, about = load_arrays(file, _KIND, {"values": np.int64})
            if about.get("sha256") != _digest(arrays["values"]):
                raise StorageError(f"{file.name} is not as it was written")
        except StorageError as error:
            raise StorageError(f"{error}; restore it from a copy, or remove it: it is then paid anew") from error
        same = tuple(about["question"]) == question
        return Released(arrays["values"], about["noise"], about["answered"]) if same else None

    @contextmanager
    def room(self, question: Name, length: int) -> Iterator["Room"]:
        """Make room for a vector of this length, so that a full disk is noticed before a charge is spent.

        What the context `Room.keep`\\ s is on the disk once it ends. After an exception nothing is.
        """
        with replacing(self.file(question), "keep the released vector") as beside:
            room = Room(beside, question)
            room.keep(Released(np.zeros(length + 64, dtype=np.int64), 0.0, 0))
            yield room

    def any_released(self, charged: str) -> bool:
        """Whether there is a vector whose charge was called so, whatever it is about."""
        return any(self.folder.glob(f"released-{_short(charged)}-*.safetensors"))

    def file(self, question: Name) -> Path:
        """Where the answer to this question lies, beside the ledger that pays for it."""
        charged, about = question
        return self.folder / f"released-{_short(charged)}-{_short(about)}.safetensors"


class Room:
    """A place on the disk for one released vector; made by `Journal.room`."""

    def __init__(self, file: Path, question: Name) -> None:
        self._file, self._question = file, question

    def keep(self, released: Released) -> None:
        """Write it; a later one takes its place."""
        values, noise, answered = released
        about = {"question": self._question, "noise": noise, "answered": answered, "sha256": _digest(values)}
        save_arrays(self._file, _KIND, {"values": values}, **about)


def _digest(values: IntArray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).astype("<i8").tobytes()).hexdigest()


def _short(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]
