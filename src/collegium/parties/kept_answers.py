"""What a party keeps: its latest answers, the counts of masked rounds, and the ids of all sums that it has begun."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableSet
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ProtocolViolation, StorageError
from collegium.protocol.messages import Reply, Request
from collegium.protocol.replies import Prepared
from collegium.protocol.requests import Ask
from collegium.whole_files import add_line, storing

_MAX_ANSWERS = 256
_MAX_BYTES = 64 * 1024 * 1024


class AnswerMemory:
    """The latest answers by run and request id, at most 256 of them and 64 MiB beside the latest."""

    def __init__(self) -> None:
        self._answers: OrderedDict[tuple[str, str], tuple[bytes, bytes]] = OrderedDict()
        self._size_bytes = 0

    def recall(self, request: Request) -> Reply | None:
        """The answer to this request if it was given before.

        Raises
        ------
        ProtocolViolation
            If another request had this id.
        """
        kept = self._answers.get((request.run_id, request.request_id))
        if kept is None:
            return None
        asked, answer = kept
        if asked != fingerprint(request):
            raise ProtocolViolation("this request id was used for another request: use a fresh id")
        self._answers.move_to_end((request.run_id, request.request_id))
        return Reply.from_bytes(answer)

    def keep(self, request: Request, reply: Reply) -> None:
        """Remember an answer; the oldest are forgotten."""
        answer = reply.to_bytes()
        self._answers[(request.run_id, request.request_id)] = (fingerprint(request), answer)
        self._size_bytes += len(answer)
        while len(self._answers) > 1 and (len(self._answers) > _MAX_ANSWERS or self._size_bytes > _MAX_BYTES):
            _, (_, forgotten) = self._answers.popitem(last=False)
            self._size_bytes -= len(forgotten)


def fingerprint(request: Request) -> bytes:
    """The same 32 bytes for requests that ask the same within the same run, whatever their ids."""
    message = request.to_proto()
    message.request_id = ""
    return hashlib.sha256(message.SerializeToString(deterministic=True)).digest()


_MAX_ROUNDS = 8


class PreparedRounds:
    """What was asked in each of the latest eight rounds of a party, and the counts that its secure sum adds up."""

    def __init__(self) -> None:
        self._rounds: OrderedDict[tuple[str, str], tuple[bytes, Ask, NDArray[Any]]] = OrderedDict()

    def prepare(self, request: Request, body: Ask, answer: Callable[[], NDArray[Any]]) -> Prepared:
        """Keep the counts that ``answer`` returns; a round that is kept already keeps its counts.

        Raises
        ------
        ProtocolViolation
            If the round was prepared for another request.
        """
        asked, key = fingerprint(request), (request.run_id, body.round_id)
        if key in self._rounds:
            # Two vectors summed in one round would show their difference.
            if self._rounds[key][0] != asked:
                raise ProtocolViolation(f"round {body.round_id} was prepared for other queries: use a fresh id")
            return Prepared(body.round_id)
        question = body.question
        narrow = np.result_type(np.min_scalar_type(question.low), np.min_scalar_type(question.high))
        self._rounds[key] = (asked, body, answer().astype(narrow, copy=False))
        while len(self._rounds) > _MAX_ROUNDS:
            self._rounds.popitem(last=False)
        return Prepared(body.round_id)

    def of(self, run_id: str, round_id: str) -> tuple[Ask, NDArray[np.int64]]:
        """The request of a round and the counts kept for it, int64 of its shape.

        Raises
        ------
        ProtocolViolation
            If no such round is kept.
        """
        if (run_id, round_id) not in self._rounds:
            raise ProtocolViolation(f"no answer is prepared for round {round_id[:128]}: ask for it first")
        _, asked, counts = self._rounds[run_id, round_id]
        return asked, counts.astype(np.int64)


class RoundLog(MutableSet[str]):
    """A set of round ids that only grows; one id a line, on the disk before `add` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with storing(f"use {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            self._known = set(path.read_text(encoding="utf-8").split("\n")) - {""}

    def __contains__(self, round_id: object) -> bool:
        return round_id in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def add(self, value: str) -> None:
        if value in self._known:
            return
        add_line(self._path, value)
        self._known.add(value)

    def discard(self, value: str) -> None:
        """Not for this set: a round that was begun stays begun."""
        raise StorageError(f"{self._path.name} keeps every round")
