"""Who can vote: parties that have said what they are, hold the pool and have their teachers ready.

A party that was away or late is asked again when it is next needed; one that broke the protocol or
refused is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from collegium.coordinator.rounds.parties import Parties
from collegium.coordinator.rounds.pool_transfer import send_pool
from collegium.coordinator.rounds.rounds import ANSWERED, OnAnswer, heard, outcome_of
from collegium.coordinator.settings.public_data import PublicData
from collegium.data.task import TeacherSettings
from collegium.protocol.messages import (
    Describe,
    Description,
    Failure,
    Fit,
    Fitted,
    PoolState,
    ReplyBody,
    RequestBody,
)

READY = "ready"

OnStep = Callable[[str, int, int], None]
"""Called with (step, done, total): parties for ``describe`` and ``fit``, bytes for ``hold_pool``."""


@dataclass(frozen=True)
class PartyStatus:
    """Whether a party is ``ready``, or what went wrong; and what it said about itself."""

    outcome: str
    teachers: int = 0
    software: str = ""
    teacher_kind: str = ""

    @property
    def may_return(self) -> bool:
        """Whether the party was only away or late, so that it may be asked again."""
        return self.outcome in ("deadline", "unreachable")


class Readiness:
    """The parties of a roster, and whether each is ready.

    Parameters
    ----------
    roster : every party that was admitted, present or not.
    teacher : what parties must have fitted; None where their records answer for themselves.
    public : the pool that every party must hold.
    """

    def __init__(
        self,
        parties: Parties,
        roster: Sequence[str],
        teacher: TeacherSettings | None,
        public: PublicData,
    ) -> None:
        self._parties, self._teacher, self._public = parties, teacher, public
        self.statuses: dict[str, PartyStatus] = {party: PartyStatus("unreachable") for party in sorted(roster)}

    def ready(self) -> dict[str, int]:
        """The parties that can vote, with their numbers of teachers."""
        return {party: status.teachers for party, status in self.statuses.items() if status.outcome == READY}

    def outcomes(self) -> dict[str, str]:
        """Per party ``answered`` (it is ready) or what went wrong, as `require_quorum` reads it."""
        return {
            party: ANSWERED if status.outcome == READY else status.outcome for party, status in self.statuses.items()
        }

    def prepare(self, *, deadline_s: float, fit_deadline_s: float, on_step: OnStep | None = None) -> None:
        """Have every party that is here, is not ready and may still become so describe itself, hold the pool and fit.

        Parameters
        ----------
        deadline_s : seconds for the description and for the pool; ``fit_deadline_s`` are those for the fit.
        """

        def telling(step: str) -> OnAnswer | None:
            return None if on_step is None else lambda done, total: on_step(step, done, total)

        here = set(self._parties.names())
        going = [party for party, status in self.statuses.items() if status.may_return and party in here]
        if going:
            going = self._describe(going, deadline_s, telling("describe"))
        if going:
            going = self._send_pool(going, deadline_s, telling("hold_pool"))
        if going:
            self._fit(going, self._teacher, fit_deadline_s, telling("fit"))

    def note_round(self, outcomes: Mapping[str, str]) -> None:
        """Note the outcomes of a round, by party.

        A party that lost its connection must come back before it is asked again. A party that broke the protocol is
        not asked again. A party that was late stays ready for the next round.
        """
        for party, outcome in outcomes.items():
            if outcome not in (ANSWERED, "deadline"):
                self.statuses[party] = replace(self.statuses[party], outcome=outcome)

    def _describe(self, going: list[str], limit_s: float, on_answer: OnAnswer | None) -> list[str]:
        still = []
        for party, reply in self._ask(going, Describe(), limit_s, on_answer).items():
            if not isinstance(reply, Description):
                self._note(party, reply)
            elif reply.party != party:
                self.statuses[party] = PartyStatus(f"identity: calls itself {reply.party}")
            else:
                self.statuses[party] = PartyStatus("unreachable", reply.teachers, reply.software, reply.teacher_kind)
                still.append(party)
        return still

    def _send_pool(self, going: list[str], limit_s: float, on_sent: OnAnswer | None) -> list[str]:
        states = send_pool(
            self._parties, going, self._public.pool.x, self._public.spec, timeout_s=limit_s, on_sent=on_sent
        )
        for party in going:
            if isinstance(state := states[party], Failure):
                self._note(party, state)
        return [party for party in going if isinstance(states[party], PoolState)]

    def _fit(
        self, going: list[str], teacher: TeacherSettings | None, limit_s: float, on_answer: OnAnswer | None
    ) -> None:
        if teacher is None:
            for party in going:
                self.statuses[party] = replace(self.statuses[party], outcome=READY, teachers=0)
            return
        for party, reply in self._ask(going, Fit(teacher), limit_s, on_answer).items():
            if not isinstance(reply, Fitted):
                self._note(party, reply)
            elif not 1 <= reply.teachers <= teacher.per_party:
                said = f"protocol: has {reply.teachers} teachers where 1 to {teacher.per_party} were asked"
                self.statuses[party] = replace(self.statuses[party], outcome=said)
            else:
                self.statuses[party] = replace(self.statuses[party], outcome=READY, teachers=reply.teachers)

    def _ask(
        self, going: list[str], request: RequestBody, limit_s: float, on_answer: OnAnswer | None
    ) -> dict[str, ReplyBody]:
        replies = self._parties.ask(
            dict.fromkeys(going, request), timeout_s=limit_s, on_reply=heard(on_answer, len(going))
        )
        return {party: replies.get(party, Failure("unreachable", "no answer")) for party in going}

    def _note(self, party: str, reply: ReplyBody) -> None:
        failure = reply if isinstance(reply, Failure) else Failure("protocol", f"answered {type(reply).__name__}")
        self.statuses[party] = replace(self.statuses[party], outcome=outcome_of(failure))
