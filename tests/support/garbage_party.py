"""A party with good credentials that votes what no teachers of its own could: run with a party.toml as argument."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from collegium.data.task import Task
from collegium.data.values import PoolState
from collegium.parties.config import PartyConfig
from collegium.parties.known_ledger import KnownLedger
from collegium.parties.session import PartySession
from collegium.protocol.identities import Credentials
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium.protocol.messages import Reply, Request
from collegium.protocol.question import PoolRange
from collegium.protocol.replies import Counts, Description, Fitted, ReplyBody
from collegium.protocol.requests import Ask, Describe, Fit, HoldPool, ShowLedger


class Garbage:
    """Says that it has one teacher, and casts seven votes per query."""

    def __init__(self, name: str, task: Task) -> None:
        self._name, self._classes, self._ledger = name, len(task.classes), KnownLedger(None)

    def handle(self, request: Request) -> Reply:
        return Reply(request.request_id, self._answer(request))

    def _answer(self, request: Request) -> ReplyBody:
        match request.body:
            case Describe():
                return Description(self._name, "garbage", 1, "none")
            case HoldPool(pool):
                return PoolState(pool.sha256, pool.size_bytes, complete=True)
            case ShowLedger():
                return self._ledger(request)
            case Fit():
                return Fitted(teachers=1)
            case Ask(question=CastVotes(inputs=PoolRange(_, indices))):
                votes = np.zeros((len(indices), self._classes), dtype=np.int64)
                votes[:, 3] = 7
                return Counts(votes)
        raise AssertionError(f"not expected here: {request.body}")


def main(path: Path) -> None:
    config = PartyConfig.read(path)
    name = Credentials.load(config.credentials, "party").name
    PartySession(
        lambda task: Garbage(name, task),
        lambda: Credentials.load(config.credentials, "party"),
        config.coordinator,
        on_connected=lambda: print("connected", flush=True),
    ).run()


main(Path(sys.argv[1]))
