"""The sum of votes under masks: the coordinator asks for votes, gets none, and then opens the total alone."""

import json
import secrets
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from collegium.coordinator.rounds.rounds import (
    ANSWERED,
    InputsLost,
    Parties,
    RoundResult,
    VoteRound,
    ask_each,
    outcome_of,
    require_quorum,
)
from collegium.errors import CollegiumError, ProtocolViolation, StorageError
from collegium.protocol.replies import Failure, Prepared, ReplyBody, SecureSumAnswer
from collegium.protocol.requests import CastVotes, SecureSumStep, SumRecords, VoteRequest, lowest
from collegium.protocol.secure_sum import CoordinatorSum, GraphPlan, Phase, SumSetup
from collegium.protocol.secure_sum.errors import TooFewSurvivors
from collegium.whole_files import write_whole

_ROUNDS_KEPT = 1000
"""Rounds come one after the other. The latest may be unfinished; inputs that were lost are not asked about later."""

_INPUT = "input: {}"
"""Notes an input among names, which hold no colon."""


class BegunSums(dict[str, Sequence[str]]):
    """What `MaskedSum` notes by round, in the file at ``path``: on the disk before `__setitem__` returns.

    Raises
    ------
    StorageError
        If the file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            super().__init__(json.loads(path.read_text(encoding="utf-8")) if path.exists() else {})
        except (OSError, ValueError) as error:
            raise StorageError(f"cannot read {path}: {error}; remove it, or restore it from a copy") from error

    def __setitem__(self, round_id: str, parties: Sequence[str]) -> None:
        super().__setitem__(round_id, tuple(parties))
        for old in list(self)[:-_ROUNDS_KEPT]:
            del self[old]
        write_whole(self._path, json.dumps(self))


@dataclass(frozen=True, eq=False)
class MaskedSum:
    """Adds up votes by the secure sum of `collegium.protocol.secure_sum`.

    Parameters
    ----------
    consortium : its name, part of everything that is signed.
    roster : Ed25519 public key of every party.
    plan : the graph of the sum; see `plan_graph`.
    noised : each party adds its share of noise before masking, so that the total is noisy already.
    begun : of each exact sum whose opening began, by round, its parties; a durable one outlives a crash. Parties open
        one exact sum of an input and no other, so a round that is asked again is asked of the same parties. On a
        sparse graph they open it in one round alone: then it holds the inputs, which are lost where that round failed.
    """

    parties: Parties
    consortium: str
    roster: Mapping[str, bytes]
    plan: GraphPlan
    noised: bool = False
    begun: MutableMapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def mode(self) -> str:
        return "masked+noised" if self.noised else "masked"

    def sum_votes(self, round_: VoteRound) -> RoundResult:
        """See `VoteSum.sum_votes`; every attempt is a round of its own, since a round's masks serve once.

        Raises ProtocolViolation when the total is not one that the answering teachers can have: one of the
        parties lied about its votes, and masks do not show which.
        """
        once = not self.noised and not self.plan.complete
        inputs = [] if isinstance(round_.request, SumRecords) else list(round_.request.inputs.indices)
        begun = {noted for held in self.begun.values() for noted in held}
        if once and (lost := [at for at in inputs if _INPUT.format(at) in begun]):
            raise InputsLost(f"{len(lost)} inputs cannot be asked again: a round failed while it was opened", lost)
        # A mask must never serve twice, so a repeated round gets another name.
        request = replace(round_.request, round_id=f"{round_.request.round_id}.{secrets.token_hex(8)}")
        teachers, (queries, width) = round_.teachers, round_.shape
        quorum, before = max(round_.quorum, self.plan.quorum), self.begun.get(round_.request.round_id)
        if before is not None and not once and set(before) <= set(teachers):
            teachers, quorum = {name: teachers[name] for name in before}, len(before)
        replies = ask_each(self.parties, teachers, request, round_.deadline_s, round_.on_answer)
        outcomes = {name: _prepared(reply, request.round_id) for name, reply in replies.items()}
        require_quorum(outcomes, quorum)
        coordinator = CoordinatorSum(self._setup(request, queries * width))
        try:
            while coordinator.phase is not Phase.DONE:
                if coordinator.phase is Phase.SIGN:
                    survivors = sorted(coordinator.requests())
                    _leave_out(outcomes, survivors)
                    require_quorum(outcomes, quorum)
                    if not self.noised and round_.request.round_id not in self.begun:
                        noted = [_INPUT.format(at) for at in inputs] if once else survivors
                        self.begun[round_.request.round_id] = noted
                    if round_.before_opening is not None:
                        round_.before_opening()
                self._phase(coordinator, outcomes, round_.deadline_s)
        except TooFewSurvivors:
            require_quorum(outcomes, quorum)
            raise
        result = coordinator.result
        _leave_out(outcomes, result.survivors)
        total = result.total.reshape(queries, width)
        voting = sum(teachers[name] for name in result.survivors)
        countable = isinstance(request, CastVotes) and not self.noised
        if countable and not (total.sum(axis=1) == voting).all():
            raise ProtocolViolation(
                f"the votes of a query do not add up to the {voting} teachers that answered: a party sent votes that "
                "are none; masks hide which, so ask the parties, or run one round in the mode 'clear' to find it"
            )
        return RoundResult(total, tuple(sorted(result.survivors)), outcomes, voting)

    def _setup(self, request: VoteRequest, length: int) -> SumSetup:
        share = request.terms.share()
        reach = 0 if share is None else share.reach(self.plan.parties, length)
        return SumSetup(
            self.consortium,
            request.round_id,
            self.roster,
            length,
            lowest(request),
            request.highest,
            self.plan,
            reach,
        )

    def _phase(self, coordinator: CoordinatorSum, outcomes: dict[str, str], deadline_s: float) -> None:
        requests = {
            name: SecureSumStep(message)
            for name, message in coordinator.requests().items()
            if outcomes.get(name) == ANSWERED
        }
        for name, reply in self.parties.ask(requests, timeout_s=deadline_s).items():
            outcomes[name] = _accepted(coordinator, name, reply)
        coordinator.close_phase()


def _leave_out(outcomes: dict[str, str], survivors: Sequence[str]) -> None:
    """Note who is not in the sum although it answered what it was asked."""
    for name, outcome in outcomes.items():
        if outcome == ANSWERED and name not in survivors:
            outcomes[name] = "unreachable"


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
