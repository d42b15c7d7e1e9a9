"""The sum of votes under masks: the coordinator asks for votes, gets none, and then opens the total alone."""

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from collegium.coordinator.rounds.rounds import (
    ANSWERED,
    InputsLost,
    OpenedApart,
    Parties,
    RoundResult,
    VoteRound,
    ask_each,
    outcome_of,
    require_quorum,
)
from collegium.errors import CollegiumError, ProtocolViolation, QuorumNotReached, StorageError
from collegium.protocol.replies import Failure, Prepared, ReplyBody, SecureSumAnswer
from collegium.protocol.requests import CastVotes, SecureSumStep, SumRecords, VoteRequest, lowest
from collegium.protocol.secure_sum import CoordinatorSum, GraphPlan, Phase, SumSetup
from collegium.protocol.secure_sum.errors import TooFewSurvivors
from collegium.whole_files import write_whole

_ALL_RECORDS = "records"
"""Stands for what sums over all records are about, where others are about an input."""


class BegunSums:
    """What exact sums were about whose opening began, each with the parties of its sum.

    Parties open all exact sums about an input with the same parties, whatever the stage or the batch.

    Parameters
    ----------
    path : of the file that keeps it, on the disk before `note` returns; None keeps it in memory.

    Raises
    ------
    StorageError
        If the file cannot be read or written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._parties = path, dict[str, tuple[str, ...]]()
        if path is None or not path.exists():
            return
        try:
            for parties, subjects in json.loads(path.read_text(encoding="utf-8")):
                self._parties |= dict.fromkeys(subjects, tuple(parties))
        except (OSError, ValueError, TypeError) as error:
            raise StorageError(f"cannot read {path}: {error}; remove it, or restore it from a copy") from error

    def parties(self, subject: str) -> tuple[str, ...] | None:
        """The parties of the sum, sorted; None where no opening began, and none by name on a sparse graph."""
        return self._parties.get(subject)

    def note(self, subjects: Iterable[str], parties: Sequence[str]) -> None:
        """Note, before the opening begins, with which parties sums about ``subjects`` are opened."""
        self._parties |= dict.fromkeys(subjects, tuple(parties))
        if self._path is not None:
            by_parties: dict[tuple[str, ...], list[str]] = {}
            for subject, among in self._parties.items():
                by_parties.setdefault(among, []).append(subject)
            write_whole(self._path, json.dumps(list(by_parties.items())))


@dataclass(frozen=True, eq=False)
class MaskedSum:
    """Adds up votes by the secure sum of `collegium.protocol.secure_sum`.

    Parameters
    ----------
    consortium : its name, part of everything that is signed.
    roster : Ed25519 public key of every party.
    plan : the graph of the sum; see `plan_graph`.
    noised : each party adds its share of noise before masking, so that the total is noisy already.
    begun : what exact sums were about whose opening began; a durable one outlives a crash. What a sum was about is
        asked again of the same parties. On a sparse graph, parties open a sum in one round alone: inputs are lost where
        that round failed.
    """

    parties: Parties
    consortium: str
    roster: Mapping[str, bytes]
    plan: GraphPlan
    noised: bool = False
    begun: BegunSums = field(default_factory=BegunSums)

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
        subjects = [str(at) for at in inputs] or [_ALL_RECORDS]
        if once and (lost := [at for at in inputs if self.begun.parties(str(at)) is not None]):
            raise InputsLost(f"{len(lost)} inputs cannot be asked again: a round failed while it was opened", lost)
        # A mask must never serve twice, so a repeated round gets another name.
        request = replace(round_.request, round_id=f"{round_.request.round_id}.{secrets.token_hex(8)}")
        teachers, (queries, width) = round_.teachers, round_.shape
        quorum, before = max(round_.quorum, self.plan.quorum), None if self.noised else self._before(subjects)
        missing = sorted(set(before or ()) - teachers.keys())
        if missing and not round_.second_sum:
            raise QuorumNotReached(
                f"{', '.join(missing)} must be there: a sum about these inputs was begun with these parties, and the "
                "others open none without them; bring them back and start the run again (nothing is paid twice)",
                dict.fromkeys(missing, "unreachable"),
            )
        if before is not None and not missing:
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
                    if not self.noised and before is None:
                        self.begun.note(subjects, () if once else survivors)
                    if round_.before_opening is not None:
                        round_.before_opening()
                self._phase(coordinator, outcomes, round_.deadline_s)
        except TooFewSurvivors:
            require_quorum(outcomes, quorum)
            raise
        result = coordinator.result
        _leave_out(outcomes, result.survivors)
        if missing:  # parties that refuse a second sum still open the first
            self.begun.note(subjects, sorted(result.survivors))
        total = result.total.reshape(queries, width)
        voting = sum(teachers[name] for name in result.survivors)
        countable = isinstance(request, CastVotes) and not self.noised
        if countable and not (total.sum(axis=1) == voting).all():
            raise ProtocolViolation(
                f"the votes of a query do not add up to the {voting} teachers that answered: a party sent votes that "
                "are none; masks hide which, so ask the parties, or run one round in the mode 'clear' to find it"
            )
        return RoundResult(total, tuple(sorted(result.survivors)), outcomes, voting)

    def _before(self, subjects: Sequence[str]) -> tuple[str, ...] | None:
        """With whom sums about all ``subjects`` are opened; None where that is open. Raises OpenedApart."""
        apart: dict[tuple[str, ...] | None, list[int]] = {}
        for row, subject in enumerate(subjects):
            held = self.begun.parties(subject)
            # Without a party that has left the roster, the parties decide by their policies.
            apart.setdefault(held if held and self.roster.keys() >= set(held) else None, []).append(row)
        if len(apart) > 1:
            raise OpenedApart("sums about these inputs were begun with different parties", list(apart.values()))
        return next(iter(apart))

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
