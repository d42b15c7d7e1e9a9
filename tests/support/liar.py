"""A coordinator that speaks the real protocol and asks whom it likes for what it likes."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.coordinator.rounds.masked_sum import MaskedSum
from collegium.coordinator.rounds.rounds import RoundResult, VoteRound
from collegium.protocol.messages import Reply, Request
from collegium.protocol.question import Question
from collegium.protocol.replies import Failure, ReplyBody
from collegium.protocol.requests import RequestBody, SecureSumStep
from collegium.protocol.secure_sum import GraphPlan, plan_graph


class Asked(Protocol):
    """Whatever passes requests on to parties: a session service, or the parties themselves."""

    def ask(self, requests: Mapping[str, RequestBody], *, timeout_s: float, **options: Any) -> dict[str, ReplyBody]: ...


class Answers(Protocol):
    """A party, or what stands in for one."""

    def handle(self, request: Request) -> Reply: ...


def phase_of(body: RequestBody) -> str:
    """The phase of a secure sum that a request belongs to; `votes` for any other request."""
    return body.message.WhichOneof("phase") or "" if isinstance(body, SecureSumStep) else "votes"


class AtHand:
    """Real parties, asked in this process."""

    def __init__(self, parties: Mapping[str, Answers]) -> None:
        self.parties, self._ids = dict(parties), itertools.count()

    def ask(self, requests: Mapping[str, RequestBody], **_: Any) -> dict[str, ReplyBody]:
        return {
            name: self.parties[name].handle(Request(f"request-{next(self._ids)}", "run-1", body)).body
            for name, body in requests.items()
        }


@dataclass
class Liar:
    """Opens sums over the parties that it names, and keeps what each of them said.

    Parameters
    ----------
    roster : Ed25519 public key of every party, as the honest ones know it.
    withheld : parties whose steps of a phase it does not pass on, by the phase's field in a request.
    """

    parties: Asked
    roster: Mapping[str, bytes]
    plan: GraphPlan
    consortium: str = "ours"
    withheld: dict[str, Collection[str]] = field(default_factory=dict)
    said: dict[str, list[ReplyBody]] = field(default_factory=dict)

    def ask(self, requests: Mapping[str, RequestBody], **options: Any) -> dict[str, ReplyBody]:
        """Pass requests on, but for those that are withheld."""
        wanted = {name: body for name, body in requests.items() if name not in self._without(body)}
        replies = self.parties.ask(wanted, **{"timeout_s": 20.0} | options)
        for name, reply in replies.items():
            self.said.setdefault(name, []).append(reply)
        return replies

    def total(self, question: Question, among: Collection[str] | None = None) -> RoundResult:
        """The total of the parties ``among``; raises QuorumNotReached where the honest ones do not open it."""
        names = sorted(self.roster if among is None else among)
        adding = MaskedSum(self, self.consortium, self.roster, self.plan)
        teachers = dict.fromkeys(names, question.high)
        return adding.sum_votes(VoteRound(question, teachers, 20.0, self.plan.quorum))

    def refusals(self) -> dict[str, str]:
        """The code of each party's latest refusal."""
        return {
            name: reply.code for name, replies in self.said.items() for reply in replies if isinstance(reply, Failure)
        }

    def forget(self) -> None:
        self.said.clear()

    def _without(self, body: RequestBody) -> Collection[str]:
        return self.withheld.get(phase_of(body), ())


def keys_of(names: Collection[str]) -> dict[str, Ed25519PrivateKey]:
    return {name: Ed25519PrivateKey.generate() for name in names}


def roster_of(keys: Mapping[str, Ed25519PrivateKey]) -> dict[str, bytes]:
    return {name: key.public_key().public_bytes_raw() for name, key in keys.items()}


def liar_over(parties: Asked, roster: Mapping[str, bytes]) -> Liar:
    return Liar(parties, dict(roster), plan_graph(len(roster), 0.2, 0.1))
