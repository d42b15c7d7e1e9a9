"""Answers kept for the secure sums of their rounds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ProtocolViolation
from collegium.parties.memory import fingerprint
from collegium.protocol.messages import Prepared, Request, VoteRequest

_MAX_ROUNDS = 8


class PreparedRounds:
    """What was asked in each of the latest eight rounds of a party, and the counts that its secure sum adds up."""

    def __init__(self) -> None:
        self._rounds: OrderedDict[tuple[str, str], tuple[bytes, VoteRequest, NDArray[Any]]] = OrderedDict()

    def prepare(self, request: Request, body: VoteRequest, answer: Callable[[], NDArray[Any]]) -> Prepared:
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
        self._rounds[key] = (asked, body, answer())
        while len(self._rounds) > _MAX_ROUNDS:
            self._rounds.popitem(last=False)
        return Prepared(body.round_id)

    def of(self, run_id: str, round_id: str) -> tuple[VoteRequest, NDArray[np.int64]]:
        """The request of a round and the counts kept for it, shape ``[queries, entries]``.

        Raises
        ------
        ProtocolViolation
            If no such round is kept.
        """
        if (run_id, round_id) not in self._rounds:
            raise ProtocolViolation(f"no answer is prepared for round {round_id[:128]}: ask for it first")
        _, asked, counts = self._rounds[run_id, round_id]
        return asked, counts.astype(np.int64)
