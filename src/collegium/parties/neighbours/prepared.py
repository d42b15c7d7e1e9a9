"""Counts kept for the secure sums of their rounds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ProtocolViolation
from collegium.parties.memory import fingerprint
from collegium.protocol.messages import CastNeighbours, CountNearest, Prepared, Request

Body = CastNeighbours | CountNearest

_MAX_ROUNDS = 8


class PreparedRounds:
    """The latest eight rounds: what was asked in each, and what is to be summed."""

    def __init__(self) -> None:
        self._rounds: OrderedDict[tuple[str, str], tuple[bytes, Body, NDArray[np.int64]]] = OrderedDict()

    def prepare(self, request: Request, body: Body, answer: Callable[[], NDArray[np.int64]]) -> Prepared:
        """Keep what ``answer`` gives; a round that is kept already stays, ProtocolViolation if it was about others."""
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

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._rounds

    def of(self, run_id: str, round_id: str) -> tuple[Body, NDArray[np.int64]]:
        """What was asked and the counts kept for it, shape ``[queries, entries]``."""
        _, asked, counts = self._rounds[run_id, round_id]
        return asked, counts
