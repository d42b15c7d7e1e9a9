"""What releases leave on the disk beside the ledger: sums that are to be opened, their parties, and noisy vectors."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.selection.queries import content_of
from collegium.errors import QuorumNotReached, StorageError
from collegium.limits import MAX_SETTLED_SUMS
from collegium.models.arrays import load_arrays, save_arrays
from collegium.protocol.question import Question, decode, encode
from collegium.protocol.secure_sum.state import Collected
from collegium.whole_files import exclusive, replacing, write_whole
from collegium_accounting.units import IntArray

_KIND, _OPEN_KIND = "released vector", "sum to be opened"


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


@dataclass(frozen=True, eq=False)
class OpenSum:
    """A secure sum whose masked vectors are collected, until what follows from it is kept.

    Parameters
    ----------
    names : what a release of it is charged for; see `asking.RunQuestion`.
    question : what the parties answered.
    charge : the ledger's entry that pays for it, where the parties made it noisy; None for an exact sum.
    teachers : how many each party said it has.
    collected : of each group; of one where all parties are summed together.
    """

    names: tuple[str, ...]
    question: Question
    charge: int | None
    teachers: Mapping[str, int]
    collected: tuple[Collected, ...] = field(repr=False)

    @property
    def setups(self) -> list[bytes]:
        """Name the sum to the parties of each group."""
        return [one.setup.digest for one in self.collected]

    @property
    def setup(self) -> bytes:
        """Names the sum, of all groups together."""
        first, *others = self.setups
        return hashlib.sha256(b"".join((first, *others))).digest() if others else first

    @property
    def parties(self) -> tuple[str, ...]:
        """Whose answers are in it, sorted."""
        return tuple(sorted(party for one in self.collected for party in one.parties))


class Name(NamedTuple):
    """What names the question that a vector answers.

    Parameters
    ----------
    charged : as the ledger's charge names it.
    about : what it is about, where several are charged alike.
    """

    charged: str
    about: str = ""


class Part(NamedTuple):
    """The noisy vector of one group of parties; public.

    Parameters
    ----------
    values : int64 ``[length]``.
    noise : standard deviation of the noise on every entry.
    parties : whose answers it sums, sorted.
    """

    values: IntArray
    noise: float
    parties: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Released:
    """What was released for one question: a noisy vector of each group of parties, of one group where there are none.

    Later questions use the total alone.
    """

    groups: tuple[Part, ...]

    @cached_property
    def values(self) -> IntArray:
        """The sum over all groups, int64 ``[length]``."""
        return np.asarray(np.sum([group.values for group in self.groups], axis=0, dtype=np.int64))

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on every entry of the sum."""
        return math.hypot(*(group.noise for group in self.groups))

    @property
    def parties(self) -> tuple[str, ...]:
        """All parties whose answers it sums, sorted."""
        return tuple(sorted(party for group in self.groups for party in group.parties))

    @property
    def answered(self) -> int:
        """How many parties it sums."""
        return len(self.parties)


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
        self._open, self._settled = dict[str, OpenSum](), folder / "settled-sums.txt"
        known = self._settled.read_text(encoding="utf-8").split() if self._settled.exists() else []
        self.settled = [bytes.fromhex(setup) for setup in known]
        """The set-ups of the newest sums of which what follows was kept, in order."""

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

    def keep_open(self, sum_: OpenSum) -> None:
        """Keep what opens a sum, before anybody is asked to sign for it; durable when this returns."""
        about = {
            "names": sum_.names,
            "kind": sum_.question.kind,
            "question": encode(sum_.question).hex(),
            "charge": sum_.charge,
            "teachers": dict(sum_.teachers),
            "groups": [one.about() for one in sum_.collected],
        }
        totals = {f"total-{number}": one.total for number, one in enumerate(sum_.collected)}
        with replacing(self.open_file(sum_.setup), "keep the sum that is to be opened") as beside:
            save_arrays(beside, _OPEN_KIND, totals, sha256=_digest(about, *totals.values()), **about)

    def open_sums(self) -> list[OpenSum]:
        """The sums that are to be opened, in the order of their files.

        Raises StorageError where a file is damaged: what it opens was paid for.
        """
        files = sorted(self.folder.glob("open-sum-*.safetensors"))
        self._open = {file.name: self._open.get(file.name) or _opened_from(file) for file in files}
        return list(self._open.values())

    def settle(self, sum_: OpenSum) -> None:
        """What follows from a sum is kept: nobody needs what opens it any more."""
        self.settled += sum_.setups
        write_whole(self._settled, "\n".join(one.hex() for one in self.settled[-MAX_SETTLED_SUMS:]))
        self.open_file(sum_.setup).unlink(missing_ok=True)

    def open_file(self, setup: bytes) -> Path:
        """Where what opens a sum lies."""
        return self.folder / f"open-sum-{setup.hex()[:32]}.safetensors"

    def released(self, question: Name) -> Released | None:
        """What was released for this question; None where there is nothing.

        Raises StorageError where its file is damaged: what it held was paid for.
        """
        file = self.file(question)
        if not file.exists():
            return None
        try:
            arrays, about = load_arrays(file, _KIND, {"values": np.int64})
            values = arrays["values"]
            _require_as_written(file, about, values)
            told = zip(values, about["noise"], about["parties"], strict=True)
            groups = tuple(Part(one, noise, tuple(parties)) for one, noise, parties in told)
        except (StorageError, KeyError, TypeError) as error:
            raise StorageError(f"{error}; restore it from a copy, or remove it: it is then paid anew") from error
        return Released(groups) if tuple(about["question"]) == question else None

    def names(self) -> list[Name]:
        """The questions for which vectors were released; StorageError for a damaged file."""
        files = sorted(self.folder.glob("released-*.safetensors"))
        return [Name(*load_arrays(file, _KIND)[1]["question"]) for file in files]

    @contextmanager
    def room(self, question: Name, length: int, groups: int = 1) -> Iterator[Callable[[Released], None]]:
        """Make room for a vector of this length of each group, so that a full disk is noticed before a charge is spent.

        What is kept there, by the function that this gives, is on the disk once the context ends. After an exception
        nothing is.
        """
        with replacing(self.file(question), "keep the released vector") as beside:

            def keep(released: Released) -> None:
                values = np.stack([part.values for part in released.groups])
                about = {
                    "question": [*question],
                    "noise": [part.noise for part in released.groups],
                    "parties": [[*part.parties] for part in released.groups],
                }
                save_arrays(beside, _KIND, {"values": values}, sha256=_digest(about, values), **about)

            nothing = Part(np.zeros(length + 64, dtype=np.int64), 0.0, ())
            keep(Released((nothing,) * groups))
            yield keep

    def any_released(self, charged: str) -> bool:
        """Whether there is a vector whose charge was called so, whatever it is about."""
        return any(self.folder.glob(f"released-{_short(charged)}-*.safetensors"))

    def file(self, question: Name) -> Path:
        """Where the answer to this question lies, beside the ledger that pays for it."""
        charged, about = question
        return self.folder / f"released-{_short(charged)}-{_short(about)}.safetensors"


def _opened_from(file: Path) -> OpenSum:
    try:
        arrays, about = load_arrays(file, _OPEN_KIND)
        totals = [arrays[f"total-{number}"] for number in range(len(about["groups"]))]
        _require_as_written(file, about, *totals)
    except (StorageError, KeyError) as error:
        raise StorageError(f"{error}; restore it from a copy, or remove it: it is then paid anew") from error
    question = decode(about["kind"], bytes.fromhex(about["question"]))
    collected = tuple(Collected.of(told, total) for told, total in zip(about["groups"], totals, strict=True))
    return OpenSum(tuple(about["names"]), question, about["charge"], about["teachers"], collected)


def _digest(about: Mapping[str, Any], *values: NDArray[Any]) -> str:
    """SHA-256 of vectors and of all that their file says about them."""
    hasher = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for one in values:
        hasher.update(np.ascontiguousarray(one).data)
    return hasher.hexdigest()


def _require_as_written(file: Path, about: dict[str, Any], *values: NDArray[Any]) -> None:
    """Take the digest out of ``about``; StorageError unless it is that of the rest."""
    if about.pop("sha256") != _digest(about, *values):
        raise StorageError(f"{file.name} is not as it was written")


def _short(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]
