"""The sum of votes under masks: the coordinator asks for votes, gets none, and then opens the total alone.

A sum is taken in three steps, between which the caller writes down what must not be forgotten: `MaskedSum.begin` has
the votes prepared and keys exchanged, `MaskedTotal.collect` has the masked votes sent, `MaskedTotal.open` opens their
total. No number about records leaves a party before `collect`, and nobody can read one before `open`. What was
collected can be opened later, by another process: `MaskedSum.resume`.
"""

import hashlib
import math
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from collegium.coordinator.rounds.rounds import (
    ANSWERED,
    GroupCounts,
    Parties,
    RoundResult,
    VoteRound,
    ask_each,
    outcome_of,
    require_quorum,
)
from collegium.errors import CollegiumError, ProtocolViolation, QuorumNotReached
from collegium.protocol.replies import Failure, Prepared, ReplyBody, SecureSumAnswer
from collegium.protocol.requests import Ask, SecureSumStep
from collegium.protocol.secure_sum import CoordinatorSum, GraphPlan, Phase, SumSetup
from collegium.protocol.secure_sum.errors import TooFewSurvivors
from collegium.protocol.secure_sum.groups import Group
from collegium.protocol.secure_sum.state import Collected
from collegium.protocol.v1 import secure_sum_pb2 as pb
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
    divided : the groups that are summed by themselves; none where all parties are summed together. Where a group lacks
        parties, all that are there are summed together: the question and its charge are the same.
    rest : all parties but those of each group in turn.
    once : whether later sums of several over all records are of all parties together.
    left_out : where ``roster`` lacks a group: how many groups there are, and its number from 1 on.
    """

    parties: Parties
    consortium: str
    roster: Mapping[str, bytes]
    plan: GraphPlan
    noised: bool = False
    divided: tuple[Group, ...] = ()
    rest: tuple[Group, ...] = ()
    once: bool = False
    left_out: tuple[int, int] | None = None

    @property
    def mode(self) -> str:
        return "masked+noised" if self.noised else "masked"

    @property
    def added(self) -> AddedBy:
        return AddedBy(self.weakest.honest_survivors) if self.noised else COORDINATOR

    @property
    def added_apart(self) -> set[AddedBy]:
        """Who adds the noise of sums that may follow one by groups and are not by groups themselves."""
        rest = {self.without(number).added for number in range(len(self.rest))}
        return rest | {self.together.added} if self.once else rest

    @property
    def weakest(self) -> GraphPlan:
        """The graph whose sum is sure to hold the noise of the fewest honest parties."""
        plans = [self.plan, *(group.plan for group in self.divided)]
        return min(plans, key=lambda plan: plan.honest_survivors)

    def groups(self, here: Collection[str]) -> tuple[Group, ...]:
        """The groups that are summed with these parties; one of all where there are none, or one is short."""
        complete = all(len(group.roster.keys() & set(here)) >= group.plan.quorum for group in self.divided)
        return self.divided if self.divided and complete else (Group(self.roster, self.plan),)

    @property
    def together(self) -> "MaskedSum":
        """The sum of all parties together; what was asked for a sum by groups keeps the noise of those."""
        return replace(self, divided=(), rest=())

    @property
    def of_all(self) -> "MaskedSum":
        """The sum that holds the vectors of all parties of its roster, or of each group, or is not opened.

        More honest parties' noise is in it for sure, so that each adds less. Itself where it holds as many in any case.
        """
        if not self.noised:
            return self
        if self.divided:
            return replace(self, divided=tuple(Group(group.roster, group.plan.of_all) for group in self.divided))
        return replace(self, plan=self.plan.of_all)

    def without(self, number: int) -> "MaskedSum":
        """The sum of all parties but those of the group of this number, from 0 on."""
        roster, plan = self.rest[number]
        return replace(self.together, roster=roster, plan=plan, left_out=(len(self.rest), number + 1))

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
        question, quorum = round_.question, max(round_.quorum, self.plan.least_summed)
        ask = Ask(f"{question.name}.{secrets.token_hex(8)}", question)
        replies = ask_each(self.parties, round_.teachers, ask, round_.deadline_s, round_.on_answer)
        outcomes = {name: _prepared(reply, ask.round_id) for name, reply in replies.items()}
        require_quorum(outcomes, quorum)
        share, length = question.share, math.prod(question.shape)

        def reach(plan: GraphPlan) -> int:
            return 0 if share is None else share.reach(plan.parties, length)

        range_, groups = (question.low, question.high), self.groups(round_.teachers)
        divided = self.left_out or (len(groups), 0)
        setups = [
            SumSetup(self.consortium, ask.round_id, roster, length, *range_, plan, reach(plan), *divided)
            for roster, plan in groups
        ]
        total = MaskedTotal(self, replace(round_, quorum=quorum), tuple(map(CoordinatorSum, setups)), outcomes)
        total.advance_to(Phase.MASK)
        return total

    def resume(self, round_: VoteRound, collected: Sequence[Collected]) -> "MaskedTotal":
        """The round whose masked votes were ``collected`` before, group by group, to be opened."""
        here = set(self.parties.names())
        outcomes = {name: ANSWERED if name in here else "unreachable" for one in collected for name in one.parties}
        round_ = replace(round_, quorum=sum(one.setup.plan.quorum for one in collected))
        return MaskedTotal(self, round_, tuple(map(CoordinatorSum.resumed, collected)), outcomes)


@dataclass(frozen=True, eq=False)
class MaskedTotal:
    """A sum that was begun, of each group: `collect`, then `open`; made by `MaskedSum.begin`."""

    sum: MaskedSum
    round: VoteRound
    coordinators: tuple[CoordinatorSum, ...]
    outcomes: dict[str, str]

    def collect(self) -> tuple[Collected, ...]:
        """Have the parties send their masked votes. Raises QuorumNotReached."""
        self.advance_to(Phase.SIGN)
        collected = tuple(one.opening.collected for one in self.coordinators)
        self._leave_out({party for one in collected for party in one.parties})
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
        results, round_ = [one.result for one in self.coordinators], self.round
        shape = round_.question.shape
        groups = tuple(GroupCounts(one.total.reshape(shape), tuple(sorted(one.survivors))) for one in results)
        survivors = sorted(name for group in groups for name in group.answered)
        self._leave_out(set(survivors))
        total = np.asarray(np.sum([group.counts for group in groups], axis=0, dtype=np.int64))
        voting = sum(round_.teachers[name] for name in survivors)
        try:
            if not self.sum.noised:
                round_.question.check(total, voting)
        except ProtocolViolation as error:
            raise ProtocolViolation(
                f"{error}: a party sent counts that are none; masks hide which, so ask the parties, or run one round "
                "in the mode 'clear' to find it"
            ) from error
        return RoundResult(total, tuple(survivors), self.outcomes, voting, groups)

    def advance_to(self, phase: Phase) -> None:
        """Put the phases before this one to the parties. Raises QuorumNotReached where too few are left."""
        try:
            while self.coordinators[0].phase < phase:  # all go on together
                self._put()
        except TooFewSurvivors:
            require_quorum(self.outcomes, self.round.quorum)
            try:
                for one in self.coordinators if len(self.coordinators) > 1 else ():
                    members = {name: self.outcomes.get(name, "unreachable") for name in one.setup.names}
                    require_quorum(members, one.setup.plan.quorum, "of a group answered in time")
            except QuorumNotReached as error:
                raise QuorumNotReached(str(error), self.outcomes) from error
            raise

    def _put(self) -> None:
        of_party, requests = dict[str, CoordinatorSum](), dict[str, SecureSumStep]()
        for one in self.coordinators:
            messages = {name: step for name, step in one.requests().items() if self.outcomes.get(name) == ANSWERED}
            of_party |= dict.fromkeys(messages, one)
            requests |= {name: SecureSumStep(step) for name, step in messages.items()}
        taken = set[str]()

        def take(name: str, reply: ReplyBody) -> ReplyBody | None:
            """At once, as a masked vector is large: once it is added up, nobody holds it."""
            taken.add(name)
            self.outcomes[name] = _accepted(of_party[name], name, reply)
            return _TAKEN if isinstance(reply, SecureSumAnswer) else None

        replies = self.sum.parties.ask(requests, timeout_s=self.round.deadline_s, on_reply=take)
        for name in replies.keys() - taken:  # no reply came
            take(name, replies[name])
        for one in self.coordinators:
            one.close_phase()

    def _leave_out(self, survivors: Collection[str]) -> None:
        """Note who is not in the sum although it answered what it was asked."""
        for name, outcome in self.outcomes.items():
            if outcome == ANSWERED and name not in survivors:
                self.outcomes[name] = "unreachable"


_TAKEN = SecureSumAnswer(pb.SecureSumReply())


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
