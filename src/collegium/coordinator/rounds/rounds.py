"""One round: the parties' votes on a batch of queries become one histogram per query.

How the votes are added up is behind `VoteSum`; what is said of a party that does not count is here.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from collegium.errors import ConfigurationError, ProtocolViolation, QuorumNotReached
from collegium.limits import MAX_RECORDS_PER_PARTY
from collegium.protocol.question import WHOLE_MECHANISM, Question, QuestionTerms
from collegium.protocol.replies import Counts, Failure, ReplyBody
from collegium.protocol.requests import Ask, RequestBody
from collegium_accounting.mechanisms import COORDINATOR, AddedBy, Mechanism, Stage
from collegium_accounting.units import IntArray

OnReply = Callable[[str, ReplyBody], ReplyBody | None]
"""Called with a party and its reply; may return a small one, to be held in the place of a large one."""


class Parties(Protocol):
    """The parties of one run. Implementations: gRPC sessions, Flower's grid, objects in this process."""

    def names(self) -> list[str]:
        """Parties that can be asked now, sorted."""
        ...

    def ask(
        self, requests: Mapping[str, RequestBody], *, timeout_s: float, on_reply: OnReply | None = None
    ) -> dict[str, ReplyBody]:
        """Send each party its request; return once all have answered or ``timeout_s`` has passed.

        Every asked party has an entry. One that did not answer has a ``Failure``: code ``deadline``
        (it stalled), ``unreachable`` (it is gone), ``protocol`` (it sent what the protocol does not
        allow) or whatever error it reported. ``on_reply`` is called as answers come in.
        """
        ...


class Nobody:
    """`Parties` of whom none is there."""

    def names(self) -> list[str]:
        """Nobody."""
        return []

    def ask(
        self, requests: Mapping[str, RequestBody], *, timeout_s: float, on_reply: OnReply | None = None
    ) -> dict[str, ReplyBody]:
        """Nobody is to be asked."""
        raise AssertionError("no party is asked here")


ANSWERED = "answered"

OnAnswer = Callable[[int, int], None]
"""Called with (parties heard, parties asked)."""


class GroupCounts(NamedTuple):
    """The sum of one group of parties, and those whose answers are in it, sorted."""

    counts: IntArray
    answered: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class RoundResult:
    """The sum of a round and how each party fared.

    Parameters
    ----------
    counts : shape ``[queries, classes]``, int64; of votes, every row sums to ``teachers``.
    answered : the parties whose votes are in the sum, sorted.
    outcomes : per asked party ``answered``, ``deadline``, ``unreachable`` or ``code: what happened``.
    teachers : number of teachers behind the sum; 0 where records voted.
    groups : the sum of each group; one of all parties where they were summed together.
    """

    counts: IntArray = field(repr=False)
    answered: tuple[str, ...]
    outcomes: Mapping[str, str]
    teachers: int
    groups: tuple[GroupCounts, ...] = field(repr=False)

    def read_by(self, read: Callable[[IntArray], IntArray]) -> "RoundResult":
        """The same with what ``read`` says of all counts, those of groups included."""
        groups = tuple(one._replace(counts=read(one.counts)) for one in self.groups)
        return replace(self, counts=read(self.counts), groups=groups)


@dataclass(frozen=True, eq=False)
class VoteRound:
    """One round that is to be asked.

    Parameters
    ----------
    question : goes to every party.
    teachers : the parties to ask, each with its number of teachers; 0 where records answer.
    deadline_s : seconds for each exchange of messages.
    quorum : parties that must count.
    on_answer : called as parties answer.
    """

    question: Question
    teachers: Mapping[str, int]
    deadline_s: float
    quorum: int
    on_answer: OnAnswer | None = None


class VoteSum(Protocol):
    """Adds up the votes of a round."""

    @property
    def mode(self) -> str:
        """``clear``, ``masked`` or ``masked+noised``: what the parties are told and the report shows."""
        ...

    @property
    def added(self) -> AddedBy:
        """Who adds the noise."""
        ...

    def sum_votes(self, round_: VoteRound) -> RoundResult:
        """Ask the parties of a round, and add up what they answer in time.

        Raises
        ------
        QuorumNotReached
            If fewer parties than the quorum count.
        """
        ...


def terms_of(
    mechanism: Mechanism,
    sums: VoteSum,
    stage: Stage,
    *,
    per_stage: bool = False,
    most_records: int = MAX_RECORDS_PER_PARTY,
) -> QuestionTerms:
    """The terms of a question for a stage of ``mechanism``, or for all of its stages where one sum serves them.

    Parameters
    ----------
    per_stage : every stage needs a sum of its own, see `Question.per_stage`.
    most_records : the cap on the records of one party in a vector about all records.
    """
    apart = per_stage or sums.added.parties
    terms = QuestionTerms.of(
        mechanism, sums.mode, stage.name if apart else WHOLE_MECHANISM, sums.added.honest_survivors
    )
    return replace(terms, most_records=most_records)


class ClearSum:
    """The sum of votes that the coordinator sees party by party."""

    mode, added = "clear", COORDINATOR

    def __init__(self, parties: Parties) -> None:
        self._parties = parties

    def sum_votes(self, round_: VoteRound) -> RoundResult:
        """See `VoteSum.sum_votes`."""
        teachers = round_.teachers
        ask = Ask(round_.question.name, round_.question)
        replies = ask_each(self._parties, teachers, ask, round_.deadline_s, round_.on_answer)
        counts = np.zeros(round_.question.shape, dtype=np.int64)
        outcomes: dict[str, str] = {}
        for party, held in sorted(teachers.items()):
            reply = replies[party]
            outcomes[party] = _judge(round_.question, reply, teachers=held)
            if outcomes[party] == ANSWERED and isinstance(reply, Counts):
                counts += reply.counts
        answered = tuple(party for party, outcome in outcomes.items() if outcome == ANSWERED)
        require_quorum(outcomes, round_.quorum)
        voting = sum(teachers[party] for party in answered)
        return RoundResult(counts, answered, outcomes, voting, (GroupCounts(counts, answered),))


def ask_each(
    parties: Parties, names: Collection[str], request: RequestBody, timeout_s: float, on_answer: OnAnswer | None
) -> dict[str, ReplyBody]:
    """Send one request to all parties in ``names``. A party without a reply has a Failure in its place."""
    heard: set[str] = set()

    def count(party: str, _: ReplyBody) -> None:
        heard.add(party)
        if on_answer is not None:
            on_answer(len(heard), len(names))

    replies = parties.ask(dict.fromkeys(names, request), timeout_s=timeout_s, on_reply=count)
    return {party: replies.get(party, Failure("unreachable", "no answer")) for party in names}


def _judge(question: Question, reply: ReplyBody, *, teachers: int) -> str:
    if isinstance(reply, Failure):
        return outcome_of(reply)
    if not isinstance(reply, Counts):
        return f"protocol: answered {type(reply).__name__} where counts were asked"
    if reply.counts.shape != question.shape:
        return f"protocol: counts of shape {reply.counts.shape}, not {question.shape}"
    if reply.counts.min() < question.low or reply.counts.max() > question.high:
        return f"protocol: counts outside {question.low} to {question.high}"
    try:
        question.check(reply.counts, teachers)
    except ProtocolViolation as error:
        return f"{error.code}: {error}"
    return ANSWERED


def outcome_of(failure: Failure) -> str:
    """A failure as the reports show it: ``deadline``, ``unreachable`` or ``code: message``."""
    if failure.code in ("deadline", "unreachable"):
        return failure.code
    return f"{failure.code}: {failure.message}"


def quorum_count(fraction: float, roster: int) -> int:
    """How many of ``roster`` parties must answer; raises ConfigurationError for an empty roster."""
    if roster < 1:
        raise ConfigurationError("no party is on the roster; enrol or start at least one")
    return max(1, math.ceil(fraction * roster - 1e-9))


def require_quorum(outcomes: Mapping[str, str], quorum: int, doing: str = "answered in time") -> None:
    """Raise QuorumNotReached, naming who failed and how, unless ``quorum`` parties answered."""
    answered = sum(outcome == ANSWERED for outcome in outcomes.values())
    if answered < quorum:
        failed: dict[str, list[str]] = {}
        for party in sorted(party for party, outcome in outcomes.items() if outcome != ANSWERED):
            failed.setdefault(outcomes[party][:200], []).append(party)
        shown = ", ".join(
            f"{', '.join(names[:10] + ['…'] * (len(names) > 10))} ({why})" for why, names in list(failed.items())[:10]
        )
        raise QuorumNotReached(
            f"{answered} parties {doing}, {quorum} are needed"
            + (f"; failed: {shown}" if failed else "")
            + "; bring them back, or have them agree, and start the run again (nothing is paid twice), or lower "
            "votes.quorum",
            outcomes,
        )
