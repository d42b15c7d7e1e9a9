"""What a party keeps in memory: its latest answers, and the counts of masked rounds."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ProtocolViolation
from collegium.protocol.messages import Reply, Request
from collegium.protocol.replies import Prepared
from collegium.protocol.requests import Ask

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
