"""What the tests of a party share: a key, settings that fit in a moment, and a way to ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from collegium.data.task import TeacherSettings
from collegium.data.values import ArraySpec
from collegium.parties.party import Party
from collegium.parties.teachers.splits import simulated_key
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium.protocol.messages import Reply, Request
from collegium.protocol.question import PoolRange, Question, QuestionTerms
from collegium.protocol.replies import Fitted
from collegium.protocol.requests import Ask, Fit, RequestBody

KEY = simulated_key(7, "alpha")
LINEAR = TeacherSettings(kind="linear", per_party=3, options={"steps": 5})


class Asker:
    """Sends requests with fresh ids; ``classes`` are those of the party's task."""

    def __init__(self, party: Party, classes: int = 10) -> None:
        self.party, self.classes = party, classes
        self._ids: Iterator[int] = iter(range(10**6))

    def __call__(
        self, body: RequestBody | Question, request_id: str | None = None, *, round_id: str = "round-1"
    ) -> Any:
        body = Ask(round_id, body) if isinstance(body, Question) else body
        request = Request(request_id or f"request-{next(self._ids)}", "run-1", body)
        reply: Reply = self.party.handle(request)
        assert reply.request_id == request.request_id
        return reply.body

    def votes(self, pool: ArraySpec, positions: tuple[int, ...], settings: TeacherSettings = LINEAR) -> Any:
        return self(cast(pool, positions, classes=self.classes, settings=settings))

    def fit(self, settings: TeacherSettings = LINEAR) -> Any:
        return self(Fit(settings))

    def reused(self, settings: TeacherSettings = LINEAR) -> int:
        """How many teachers of these settings were found fitted, once they are all there."""
        assert self.fit(settings) == Fitted(settings.per_party)
        return self.party.ensembles(settings).reused


def cast(
    pool: ArraySpec,
    positions: tuple[int, ...],
    *,
    classes: int = 10,
    settings: TeacherSettings = LINEAR,
    sum_mode: str = "clear",
) -> CastVotes:
    terms = QuestionTerms("lnmax", {"gamma": 0.05}, sum_mode=sum_mode)
    return CastVotes(terms, "ledger", settings, PoolRange(pool.sha256, positions), classes)
