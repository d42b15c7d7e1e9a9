"""The sum of votes under masks: the coordinator asks for votes, gets none, and then opens the total alone.

A sum is taken in three steps, between which the caller writes down what must not be forgotten: `MaskedSum.begin` has
the votes prepared and keys exchanged, `MaskedTotal.collect` has the masked votes sent, `MaskedTotal.open` opens their
total. No number about records leaves a party before `collect`, and nobody can read one before `open`. What was
collected can be opened later, by another process: `MaskedSum.resume`.
"""

import hashlib
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from collegium.coordinator.rounds.rounds import (
    ANSWERED,
    Parties,
    RoundResult,
    VoteRound,
    ask_each,
    outcome_of,
    require_quorum,
)
from collegium.errors import CollegiumError, ProtocolViolation
from collegium.protocol.replies import Failure, Prepared, ReplyBody, SecureSumAnswer
from collegium.protocol.requests import Ask, SecureSumStep
from collegium.protocol.secure_sum import CoordinatorSum, GraphPlan, Phase, SumSetup
from collegium.protocol.secure_sum.errors import TooFewSurvivors
from collegium.protocol.secure_sum.opening import Collected
from collegium_accounting.mechanisms import COORDINATOR, AddedBy


@dataclass(frozen=True, eq=False)
class MaskedSum:
    """Adds up votes by the secure sum of `collegium.protocol.secure_sum`.

    Parameters
    ----------
    consortium : its name, part of everything that is signed.
    roster : Ed25519 public key of every party.
    plan : the graph of the sum; see `plan_graph`.
    noised : each party adds its share of noise before masking, so that the total is noisy already.
    """

    parties: Parties
    consortium: str
    roster: Mapping[str, bytes]
    plan: GraphPlan
    noised: bool = False

    @property
    def mode(self) -> str:
        return "masked+noised" if self.noised else "masked"

    @property
    def added(self) -> AddedBy:
        return AddedBy(self.plan.honest_survivors) if self.noised else COORDINATOR

    @cached_property
    def roster_sha256(self) -> str:
        """Tells this roster from others, in 16 hexadecimal digits."""
        return hashlib.sha256(repr(sorted(self.roster.items())).encode()).hexdigest()[:16]

    def sum_votes(self, round_: VoteRound) -> RoundResult:
        """See `VoteSum.sum_votes` and `MaskedTotal`."""
        total = self.begin(round_)
        total.collect()
        return total.open()

    def begin(self, round_: VoteRound) -> "MaskedTotal":
        """Have the parties of a round prepare their votes, and exchange keys.

        Every attempt is a round of its own, since a round's masks serve once. Raises QuorumNotReached.
        """
        question, quorum = round_.question, max(round_.quorum, self.plan.quorum)
        ask = Ask(f"{question.name}.{secrets.token_hex(8)}", question)
        replies = ask_each(self.parties, round_.teachers, ask, round_.deadline_s, round_.on_answer)
        outcomes = {name: _prepared(reply, ask.round_id) for name, reply in replies.items()}
        require_quorum(outcomes, quorum)
        share, length = question.share, math.prod(question.shape)
        reach = 0 if share is None else share.reach(self.plan.parties, length)
        range_ = question.low, question.high
        setup = SumSetup(self.consortium, ask.round_id, self.roster, length, *range_, self.plan, reach)
        total = MaskedTotal(self, replace(round_, quorum=quorum), CoordinatorSum(setup), outcomes)
        total.advance_to(Phase.MASK)
        return total

    def resume(self, round_: VoteRound, collected: Collected) -> "MaskedTotal":
        """The round whose masked votes were ``collected`` before, to be opened."""
        here = set(self.parties.names())
        outcomes = {name: ANSWERED if name in here else "unreachable" for name in collected.parties}
        quorum = collected.setup.plan.quorum
        return MaskedTotal(self, replace(round_, quorum=quorum), CoordinatorSum.resumed(collected), outcomes)


@dataclass(frozen=True, eq=False)
class MaskedTotal:
    """A sum that was begun: `collect`, then `open`; made by `MaskedSum.begin`."""

    sum: MaskedSum
    round: VoteRound
    coordinator: CoordinatorSum
    outcomes: dict[str, str]

    def collect(self) -> Collected:
        """Have the parties send their masked votes. Raises QuorumNotReached."""
        self.advance_to(Phase.SIGN)
        collected = self.coordinator.collected
        assert collected is not None  # all masked votes are there
        self._leave_out(collected.parties)
        require_quorum(self.outcomes, self.round.quorum)
        return collected

    def open(self) -> RoundResult:
        """Open the sum of what was collected.

        Raises
        ------
        QuorumNotReached
            If too few parties sign or open.
        ProtocolViolation
            If the total is not one that the answering teachers can have: one of the parties lied about its votes, and
            masks do not show which.
        """
        self.advance_to(Phase.DONE)
        result, round_ = self.coordinator.result, self.round
        self._leave_out(result.survivors)
        total = result.total.reshape(round_.question.shape)
        voting = sum(round_.teachers[name] for name in result.survivors)
        try:
            if not self.sum.noised:
                round_.question.check(total, voting)
        except ProtocolViolation as error:
            raise ProtocolViolation(
                f"{error}: a party sent counts that are none; masks hide which, so ask the parties, or run one round "
                "in the mode 'clear' to find it"
            ) from error
        return RoundResult(total, tuple(sorted(result.survivors)), self.outcomes, voting)

    def advance_to(self, phase: Phase) -> None:
        """Put the phases before this one to the parties. Raises QuorumNotReached where too few are left."""
        try:
            while self.coordinator.phase < phase:
                self._put()
        except TooFewSurvivors:
            require_quorum(self.outcomes, self.round.quorum)
            raise

    def _put(self) -> None:
        requests = {
            name: SecureSumStep(message)
            for name, message in self.coordinator.requests().items()
            if self.outcomes.get(name) == ANSWERED
        }
        replies = self.sum.parties.ask(requests, timeout_s=self.round.deadline_s)
        for name, reply in replies.items():
            self.outcomes[name] = _accepted(self.coordinator, name, reply)
        self.coordinator.close_phase()

    def _leave_out(self, survivors: Sequence[str]) -> None:
        """Note who is not in the sum although it answered what it was asked."""
        for name, outcome in self.outcomes.items():
            if outcome == ANSWERED and name not in survivors:
                self.outcomes[name] = "unreachable"


def _prepared(reply: ReplyBody, round_id: str) -> str:
    match reply:
        case Prepared(named) if named == round_id:
            return ANSWERED
        case Failure():
            return outcome_of(reply)
        case _:
            return f"protocol: answered {type(reply).__name__} where votes were to be prepared"


def _accepted(coordinator: CoordinatorSum, name: str, reply: ReplyBody) -> str:
    if isinstance(reply, Failure):
        return outcome_of(reply)
    if not isinstance(reply, SecureSumAnswer):
        return f"protocol: answered {type(reply).__name__} in a secure sum"
    try:
        coordinator.accept(name, reply.message)
    except CollegiumError as error:
        return f"{error.code}: {error}"
    return ANSWERED
