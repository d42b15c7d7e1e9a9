"""Parties that answer in this process, for tests of the coordinator alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.rounds.rounds import OnReply
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples, PoolStore
from collegium.data.values import PoolChunk
from collegium.errors import CollegiumError
from collegium.parties.known_ledger import KnownLedger
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium.protocol.messages import Request
from collegium.protocol.question import PoolRange
from collegium.protocol.replies import Counts, Description, Failure, Fitted, ReplyBody
from collegium.protocol.requests import Ask, Describe, Fit, HoldPool, RequestBody, ShowLedger
from support.coordinators import run_config

CLASSES = 4


@dataclass
class ScriptedParty:
    """Its teachers know the class of an input, which is its brightest pixel, except for a share of mistakes."""

    name: str
    teachers: int = 5
    mistakes: float = 0.1
    seed: int = 0
    persons: bool = False
    answer: Callable[[RequestBody], ReplyBody | None] = lambda request: None
    """A planted answer; None gives the honest one."""
    store: PoolStore = field(default_factory=lambda: PoolStore(None))
    ledger: KnownLedger = field(default_factory=lambda: KnownLedger(None))
    asked: list[RequestBody] = field(default_factory=list)

    def handle(self, request: RequestBody) -> ReplyBody:
        self.asked.append(request)
        planted = self.answer(request)
        if planted is not None:
            return planted
        match request:
            case Describe():
                return Description(
                    self.name, "test", self.teachers, "scripted", str(self.ledger.head() or ""), self.persons
                )
            case HoldPool(pool):
                return self.store.state(pool)
            case PoolChunk():
                return self.store.accept(request)
            case ShowLedger():
                return self.ledger(Request("id", "run", request))
            case Fit():
                return Fitted(self.teachers)
            case Ask(question=CastVotes(inputs=PoolRange(sha256, indices))):
                x = self.store.open(sha256)[list(indices)]
                return Counts(self.votes(x))
            case _:
                raise AssertionError(f"unexpected {type(request).__name__}")

    def votes(self, x: NDArray[Any]) -> NDArray[np.int64]:
        truth = truth_of(x)
        counts = np.zeros((len(x), CLASSES), dtype=np.int64)
        for row, right in enumerate(truth):
            generator = np.random.default_rng([self.seed, *x[row].ravel().tolist()])
            for _ in range(self.teachers):
                wrong = generator.random() < self.mistakes
                counts[row, generator.integers(CLASSES) if wrong else right] += 1
        return counts

    def rounds(self) -> list[Ask]:
        return [request for request in self.asked if isinstance(request, Ask)]


class LocalParties:
    """`Parties` over objects in this process; a name may be away."""

    def __init__(self, parties: Mapping[str, ScriptedParty]) -> None:
        self.by_name = dict(parties)
        self.away: set[str] = set()

    def names(self) -> list[str]:
        return sorted(set(self.by_name) - self.away)

    def ask(
        self, requests: Mapping[str, RequestBody], *, timeout_s: float, on_reply: OnReply | None = None
    ) -> dict[str, ReplyBody]:
        replies: dict[str, ReplyBody] = {}
        for name, request in requests.items():
            if name in self.away:
                replies[name] = Failure("unreachable", "gone")
                continue
            try:
                replies[name] = self.by_name[name].handle(request)
            except CollegiumError as error:
                replies[name] = Failure.of(error)
            if on_reply is not None:
                on_reply(name, replies[name])
        return replies

    def votes_cast(self) -> int:
        return sum(len(party.rounds()) for party in self.by_name.values())


def six_parties() -> LocalParties:
    return LocalParties({f"party-{n}": ScriptedParty(f"party-{n}", seed=n) for n in range(6)})


def pool_and_holdout() -> PublicData:
    return PublicData(images(60, 1), images(40, 2))


def scripted_run(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> RunConfig:
    """A run of these parties with a stand-in for a student, changed as `coordinators.run_config` says."""
    usual: dict[str, Any] = {
        "name": "trial",
        "task": {
            "classes": ["north", "east", "south", "west"],
            "inputs": {"kind": "image", "height": 2, "width": 4, "channels": 1},
        },
        "pool": {"source": "digits"},
        "teachers": {"per_party": 5},
        "student": {"method": "stand-in"},
        "votes": {"mode": "clear", "quorum": 0.5},
    }
    return run_config({**usual, **settings}, changes)


def truth_of(x: NDArray[Any]) -> NDArray[np.int64]:
    return x.reshape(len(x), -1)[:, :CLASSES].argmax(axis=1).astype(np.int64)


def images(count: int, seed: int) -> Examples:
    generator = np.random.default_rng(seed)
    y = np.arange(count) % CLASSES
    x = generator.integers(0, 60, (count, 2, 4, 1)).astype(np.uint8)
    x.reshape(count, -1)[np.arange(count), y] = generator.integers(180, 256, count)
    return Examples(x, y.astype(np.int64))
