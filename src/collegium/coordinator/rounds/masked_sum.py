"""The sum of votes under masks: the coordinator asks for votes, gets none, and then opens the total alone."""

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
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
from collegium.errors import CollegiumError, ProtocolViolation, QueriesRefused, QuorumNotReached, StorageError
from collegium.protocol.replies import Failure, Prepared, ReplyBody, SecureSumAnswer
from collegium.protocol.requests import CastVotes, SecureSumStep, SumRecords, VoteRequest, lowest
from collegium.protocol.secure_sum import CoordinatorSum, GraphPlan, Phase, SumSetup
from collegium.protocol.secure_sum.errors import TooFewSurvivors
from collegium.whole_files import exclusive, write_whole

_ALL_RECORDS = "records"
"""Stands for what sums over all records are about, where others are about an input."""


_Begun = tuple[str, tuple[str, ...] | None]
"""The roster of a sum, and its parties, sorted, once its opening began; on a sparse graph none of them."""


class BegunSums:
    """What exact sums were about, each with its roster and, once its opening began, its parties.

    Parties open all exact sums about an input over one roster and with the same parties, whatever the stage, the batch
    or the run.

    Parameters
    ----------
    path : of the file that keeps it, on the disk before `note` returns; runs share it. None keeps it in memory.

    Raises
    ------
    StorageError
        If the file cannot be read or written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._begun = path, dict[str, _Begun]()

    def about(self, subjects: Sequence[str]) -> list[_Begun | None]:
        """What is known now of the sums about each of ``subjects``; None where there were none."""
        if self._path is not None and self._path.exists():
            try:
                for roster, parties, noted in json.loads(self._path.read_text(encoding="utf-8")):
                    self._begun |= dict.fromkeys(noted, (roster, None if parties is None else tuple(parties)))
            except (OSError, ValueError, TypeError) as error:
                mend = "restore it from a copy, or remove it where no policy takes a second sum"
                raise StorageError(f"cannot read {self._path}: {error}; {mend}") from error
        return [self._begun.get(subject) for subject in subjects]

    def note(
        self,
        subjects: Sequence[str],
        roster: str,
        parties: Sequence[str] | None,
        known: Sequence[_Begun | None] | None = None,
    ) -> None:
        """Note sums about ``subjects``, before vectors are sent, or, with their parties, before the opening begins.

        Raises QuorumNotReached where another run has begun to open them since `about` told what is ``known``.
        """
        with nullcontext() if self._path is None else exclusive(self._path.with_name(f".{self._path.stem}.lock")):
            held = self.about(subjects)
            if known is not None and [one and one[1] for one in held] != [one and one[1] for one in known]:
                raise QuorumNotReached("another run under this ledger opens these sums: start this run again")
            if parties is None:
                subjects = [subject for subject, one in zip(subjects, held, strict=True) if one is None]
            self._begun |= dict.fromkeys(subjects, (roster, None if parties is None else tuple(parties)))
            if self._path is not None:
                alike: dict[_Begun, list[str]] = {}
                for subject, one in self._begun.items():
                    alike.setdefault(one, []).append(subject)
                write_whole(self._path, json.dumps([(*one, noted) for one, noted in alike.items()]))


@dataclass(frozen=True, eq=False)
class MaskedSum:
    """Adds up votes by the secure sum of `collegium.protocol.secure_sum`.

    Parameters
    ----------
    consortium : its name, part of everything that is signed.
    roster : Ed25519 public key of every party.
    plan : the graph of the sum; see `plan_graph`.
    noised : each party adds its share of noise before masking, so that the total is noisy already.
    begun : what exact sums were about; a durable one outlives a crash. What a sum was about whose opening began is
        asked again of the same parties, also where others have joined. Inputs are lost where that cannot be: on a
        sparse graph parties open a sum in one round alone, and where the roster has changed they refuse, unless their
        policies take a second sum.
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
        subjects, roster = _subjects(round_, self.plan.complete), self._named
        held = [None] * len(subjects) if self.noised else self.begun.about(subjects)
        if once and (lost := [at for at, one in zip(inputs, held, strict=True) if one is not None and one[1] == ()]):
            raise InputsLost(f"{len(lost)} inputs cannot be asked again: a round failed while it was opened", lost)
        # A mask must never serve twice, so a repeated round gets another name.
        request = replace(round_.request, round_id=f"{round_.request.round_id}.{secrets.token_hex(8)}")
        teachers, (queries, width) = round_.teachers, round_.shape
        quorum, before, able = max(round_.quorum, self.plan.quorum), self._before(held), len(self.roster)
        missing = sorted(set(before or ()) - teachers.keys())
        if missing and not round_.second_sum:
            raise QuorumNotReached(
                f"{', '.join(missing)} must be there: a sum about these inputs was begun with these parties, and the "
                "others open none without them; bring them back and start the run again (nothing is paid twice), or "
                "begin a study in which the parties add the noise (votes.mode)",
                dict.fromkeys(missing, "unreachable"),
            )
        if before is not None and not missing:
            teachers, able = {name: teachers[name] for name in before}, len(before)
            quorum = max(quorum, able)
        replies = ask_each(self.parties, teachers, request, round_.deadline_s, round_.on_answer)
        outcomes = {name: _prepared(reply, request.round_id) for name, reply in replies.items()}
        refused = sum(outcome.startswith(QueriesRefused.code) for outcome in outcomes.values())
        moved = [row for row, one in enumerate(held) if one is not None and one[0] != roster]
        if moved and able - refused < quorum:
            raise InputsLost(
                f"{f'{len(moved)} inputs' if inputs else 'sums over all records'} cannot be asked again: parties have "
                "joined or left since they were asked for, and an input has one exact sum",
                [inputs[row] for row in moved] if inputs else (),
            )
        require_quorum(outcomes, quorum)
        coordinator = CoordinatorSum(self._setup(request, queries * width))
        try:
            while coordinator.phase is not Phase.DONE:
                if coordinator.phase is Phase.MASK and not self.noised:
                    self.begun.note(subjects, roster, None)
                if coordinator.phase is Phase.SIGN:
                    survivors = sorted(coordinator.requests())
                    _leave_out(outcomes, survivors)
                    require_quorum(outcomes, quorum)
                    if not self.noised and before is None:
                        self.begun.note(subjects, roster, () if once else survivors, held)
                    if round_.before_opening is not None:
                        round_.before_opening(survivors)
                self._phase(coordinator, outcomes, round_.deadline_s)
        except TooFewSurvivors:
            require_quorum(outcomes, quorum)
            raise
        result = coordinator.result
        _leave_out(outcomes, result.survivors)
        if missing:  # parties that refuse a second sum still open the first
            self.begun.note(subjects, roster, sorted(result.survivors))
        total = result.total.reshape(queries, width)
        voting = sum(teachers[name] for name in result.survivors)
        countable = isinstance(request, CastVotes) and not self.noised
        if countable and not (total.sum(axis=1) == voting).all():
            raise ProtocolViolation(
                f"the votes of a query do not add up to the {voting} teachers that answered: a party sent votes that "
                "are none; masks hide which, so ask the parties, or run one round in the mode 'clear' to find it"
            )
        return RoundResult(total, tuple(sorted(result.survivors)), outcomes, voting)

    @cached_property
    def _named(self) -> str:
        """Tells this roster from others."""
        return hashlib.sha256(repr(sorted(self.roster.items())).encode()).hexdigest()[:16]

    def _before(self, held: Sequence[_Begun | None]) -> tuple[str, ...] | None:
        """With whom sums noted so are all opened; None where that is open. Raises OpenedApart."""
        apart: dict[tuple[str, ...] | None, list[int]] = {}
        for row, one in enumerate(held):
            # Once a party has left the roster, the parties that are left decide by their policies. A party that has
            # joined is in no sum about what was opened without it: the difference of the two would be its votes.
            kept = None if one is None or not self.roster.keys() >= set(one[1] or ()) else one[1]
            apart.setdefault(kept, []).append(row)
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


def _subjects(round_: VoteRound, complete: bool) -> list[str]:
    """What names each input of a request: its content, as the parties count it, in whichever pool it stands.

    Where sums of it may be opened again, studies share it: two over other parties show the coordinator a party's votes,
    also where the policies take both.
    """
    request = round_.request
    if isinstance(request, SumRecords):
        return [_ALL_RECORDS]
    own = "" if complete else f"{request.ledger_id}:"
    return [own + content.hex()[:16] for _, content in zip(request.inputs.indices, round_.contents, strict=True)]


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
