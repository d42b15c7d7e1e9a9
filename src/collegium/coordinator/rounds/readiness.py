"""Before a round, each party describes itself, gets the parts of the public pool that it lacks, and fits its teachers.

A party that was away or late is asked again before the next round, and so is one that could not serve, once it is back.
A party that broke the protocol or refused is not.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from numpy.typing import NDArray

from collegium.coordinator.rounds.rounds import ANSWERED, OnAnswer, Parties, ask_each, outcome_of, require_quorum
from collegium.coordinator.settings.run_config import PublicData
from collegium.data.task import TeacherSettings
from collegium.data.values import ArraySpec, PoolChunk, PoolState, canonical_bytes
from collegium.errors import CannotServe, CollegiumError, PoolMismatch
from collegium.limits import MAX_CHUNK_BYTES, MAX_LEDGER_DIGESTS, MAX_SETTLED_SUMS
from collegium.privacy.ledger.chain import Head, following
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.witness import Witness
from collegium.protocol.replies import Description, Failure, Fitted, LedgerHead, ReplyBody
from collegium.protocol.requests import Describe, Fit, HoldPool, ShowLedger

BYTES_IN_FLIGHT = 64 * 1024 * 1024
"""At most so much of a pool is on its way to all parties together."""
MIN_CHUNK_BYTES = 64 * 1024
STALLED_AFTER_S = 30.0
"""A party that does not take one piece in this time is left out, so that it does not hold up the others."""

FOLLOW_ATTEMPTS = 3
"""How often a party is shown an entry that it must know; a transport waits besides for a connection that is lost."""

MAX_SETBACKS = 3
"""How often a party may turn out to have less than before, as one that was started anew does."""


def send_pool(
    parties: Parties,
    names: Sequence[str],
    array: NDArray[Any],
    spec: ArraySpec,
    *,
    timeout_s: float,
    on_sent: Callable[[int, int], None] | None = None,
) -> dict[str, PoolState | Failure]:
    """Have each party hold the pool ``array``.

    The pool is sent piece by piece: each party gets the piece that follows what it holds already, so that a party that
    was cut off, or that had part of the pool from before, goes on there.

    Parameters
    ----------
    spec : names ``array`` by its content.
    on_sent : called with (bytes held, bytes wanted) over all parties of ``names``.

    Returns
    -------
    Per party its complete PoolState, or the Failure that left it without the pool.

    Raises
    ------
    PoolMismatch
        If ``array`` is not of the form of ``spec``.
    """
    if tuple(array.shape) != spec.shape or array.dtype.newbyteorder("=").name != spec.dtype:
        raise PoolMismatch(f"an array of form {array.dtype}{list(array.shape)} is not the pool {spec.sha256[:12]}")
    data = canonical_bytes(array)
    size = max(MIN_CHUNK_BYTES, min(MAX_CHUNK_BYTES, BYTES_IN_FLIGHT // max(1, len(names))))
    deadline = time.monotonic() + timeout_s
    results: dict[str, PoolState | Failure] = {}
    reached: dict[str, int] = {}
    setbacks = Counter[str]()

    def take(replies: dict[str, ReplyBody]) -> None:
        for name, reply in replies.items():
            outcome = _judge(reply, spec)
            if isinstance(outcome, int) and outcome <= reached.get(name, -1):
                setbacks[name] += 1
                if setbacks[name] > MAX_SETBACKS:
                    outcome = Failure("protocol", "it does not take the pieces of the pool that it is sent")
            if isinstance(outcome, int):
                reached[name] = outcome
            else:
                results[name] = outcome
                reached.pop(name, None)
        if on_sent is not None:
            complete = sum(isinstance(result, PoolState) for result in results.values())
            on_sent(complete * spec.size_bytes + sum(reached.values()), len(names) * spec.size_bytes)

    def wave_s() -> float:
        return max(0.0, min(STALLED_AFTER_S, deadline - time.monotonic()))

    take(parties.ask(dict.fromkeys(names, HoldPool(spec)), timeout_s=wave_s()))
    while reached:
        # Parties at the same place get the same object, which the transport then encodes once.
        pieces = {
            offset: PoolChunk(spec, offset, bytes(data[offset : offset + size])) for offset in set(reached.values())
        }
        take(parties.ask({name: pieces[offset] for name, offset in reached.items()}, timeout_s=wave_s()))
    return results


def _judge(reply: ReplyBody, spec: ArraySpec) -> int | PoolState | Failure:
    """The byte at which to go on, or the result."""
    if isinstance(reply, Failure):
        return reply
    if not isinstance(reply, PoolState) or reply.sha256 != spec.sha256:
        return Failure("protocol", "answered something else where the state of the pool was asked")
    if reply.complete:
        return reply
    if reply.received_bytes >= spec.size_bytes:
        return Failure("pool-mismatch", "it has every byte of the pool and calls it incomplete")
    return reply.received_bytes


READY = "ready"

_OLDER_COPY = (
    f"{CannotServe.code}: its folder is an older copy, which has forgotten answers: let it restore the newest copy, or "
    "revoke it and add it again"
)
_ADDED_AGAIN = (
    f"{CannotServe.code}: it was added again after its records had voted here, which it has forgotten: it may take "
    "part in a new study"
)


@dataclass(frozen=True)
class PartyStatus:
    """Whether a party is ``ready``, or what went wrong; and what it said about itself."""

    outcome: str
    teachers: int = 0
    software: str = ""
    teacher_kind: str = ""
    persons: bool = False

    @property
    def may_return(self) -> bool:
        """Whether it may be asked again: it was away or late, or could not use its records when it was started."""
        return self.outcome in ("deadline", "unreachable") or self.outcome.startswith(f"{CannotServe.code}: ")


class Readiness:
    """The parties of a roster, and whether each is ready.

    Parameters
    ----------
    roster : every party that was admitted, present or not.
    teacher : what parties must have fitted; None where their records answer for themselves.
    public : the pool that every party must hold.
    ledger : what every party is shown the growth of.
    signing_keys : Ed25519 public key of every party, whose signatures under the ledger's head are kept beside it.
    voted : whether records may have voted in this study whose votes nobody but their party counts; None where no such
        records vote.
    settled : the set-ups of secure sums whose results are kept, which parties are told; it may grow.
    """

    def __init__(  # noqa: PLR0913 -- what a run is made ready with, each from another place
        self,
        parties: Parties,
        roster: Sequence[str],
        teacher: TeacherSettings | None,
        public: PublicData,
        ledger: Ledger,
        signing_keys: Mapping[str, bytes] | None = None,
        voted: bool | None = None,
        settled: Sequence[bytes] = (),
    ) -> None:
        self._keys, self._voted, self._settled = signing_keys or {}, voted, settled
        self._parties, self._teacher, self._public, self._ledger = parties, teacher, public, ledger
        self._heads: dict[str, str] = {}  # the last entry that each party says it was shown; empty for none
        self.answered: list[str] = []
        self.statuses: dict[str, PartyStatus] = {party: PartyStatus("unreachable") for party in sorted(roster)}

    def ready(self) -> dict[str, int]:
        """The parties that can vote, with their numbers of teachers."""
        return {party: status.teachers for party, status in self.statuses.items() if status.outcome == READY}

    def outcomes(self) -> dict[str, str]:
        """Per party ``answered`` (it is ready) or what went wrong, as `require_quorum` reads it."""
        return {
            party: ANSWERED if status.outcome == READY else status.outcome for party, status in self.statuses.items()
        }

    def prepare(self, *, deadline_s: float, fit_deadline_s: float, on_step: Callable[[str, int, int], None]) -> None:
        """Have every party that is here, is not ready and may still become so describe itself, hold the pool and fit.

        Where records vote that their party alone counts, those that are ready describe themselves, too: since the last
        round a party's folder may have become an older copy.

        Parameters
        ----------
        deadline_s : seconds for the description and for the pool; ``fit_deadline_s`` are those for the fit.
        on_step : called with (step, done, total): parties for ``describe`` and ``fit``, bytes for ``hold_pool``.
        """

        here = set(self._parties.names())
        going = [party for party, status in self.statuses.items() if status.may_return and party in here]
        stay = {party: one for party, one in self.statuses.items() if one.outcome == READY and self._voted is not None}
        self.statuses |= {party: stay[party] for party in self._describe(list(stay), deadline_s, None)}
        if going:
            going = self._describe(going, deadline_s, partial(on_step, "describe"))
            self.show_ledger([party for party in going if self._heads[party]], deadline_s, again=True)
            going = [party for party in going if self.statuses[party].may_return]
        if going:
            going = self._send_pool(going, deadline_s, partial(on_step, "hold_pool"))
        if going:
            self._fit(going, fit_deadline_s, partial(on_step, "fit"))

    def follow(self, deadline_s: float, answered: Collection[str] = (), quorum: int = 0) -> None:
        """Have every party that is here follow the ledger, before something is released that it must not forget.

        One that refused before, or broke the protocol, is left alone unless it ``answered`` what is released. Raises
        QuorumNotReached unless all that answered follow within ``deadline_s``, or so many of them that those who do not
        follow are no quorum: over an older copy of the ledger there is no second sum then.
        """
        needed = min(len(answered), max(quorum, len(self.statuses) - quorum + 1))
        ends_s, there = time.monotonic() + deadline_s, set[str]()
        behind = sorted({party for party in self._parties.names() if party in self.statuses} | set(answered))
        for _ in range(FOLLOW_ATTEMPTS):
            left_s = max(0.0, ends_s - time.monotonic())
            self._describe([party for party in behind if party not in self._heads], left_s, None)
            able = {party for party, now in self.statuses.items() if now.outcome == READY or now.may_return}
            able |= set(answered)
            going = [party for party in behind if party in self._heads and party in able]
            there |= self.show_ledger(going, left_s, again=True)
            behind = [party for party in answered if party not in there]
            if len(answered) - len(behind) >= needed:
                return
        said = {party: self.statuses[party].outcome if party in behind else ANSWERED for party in answered}
        require_quorum(said, needed, "follow the ledger to its last entry")

    def show_ledger(self, parties: Collection[str], deadline_s: float, *, again: bool = False) -> set[str]:
        """Have these parties follow the ledger to its last entry, with ``again`` also those there; returns who did.

        So an older copy of the ledger is noticed by every party that answered since. One that was shown an entry which
        this ledger lacks is ready no more. One that did not answer describes itself again before the next round, and so
        tells which entry it reached.
        """
        last = str(self._ledger.head())
        after = cache(self._after)  # equal for parties at the same entry, so that a request is encoded once
        waiting, there = [party for party in parties if again or self._heads[party] != last], dict[str, LedgerHead]()
        while waiting:
            steps = {party: after(self._heads[party]) for party in waiting}
            replies = self._parties.ask({party: step for party, (step, _) in steps.items()}, timeout_s=deadline_s)
            for party, (_, expected) in steps.items():
                reply = replies.get(party, Failure("unreachable", "no answer"))
                if isinstance(reply, LedgerHead) and reply.head == expected:
                    self._heads[party] = expected
                    if expected == last:
                        there[party] = reply
                    continue
                odd = Failure("protocol", "does not follow the ledger that it is shown")
                failure = reply if isinstance(reply, Failure) else odd
                self.statuses[party] = replace(self.statuses[party], outcome=outcome_of(failure))
                waiting.remove(party)
            waiting = [party for party in waiting if self._heads[party] != last]
        signed = {party: reply for party, reply in there.items() if party in self._keys}
        self._ledger.keep_witnesses(
            {party: Witness(self._keys[party], last, said.signature, said.agreed) for party, said in signed.items()}
        )
        return set(there)

    def _after(self, head: str) -> tuple[ShowLedger, str]:
        """What a party at ``head`` is shown next, and where it is then; a head that is not ours it must refuse."""
        try:
            reached = Head.parse(head) if head else None
            digests, terms = self._ledger.shown_after(reached, MAX_LEDGER_DIGESTS)
        except CollegiumError:
            return ShowLedger(str(self._ledger.head()), (), self._newest()), ""
        for digest in digests:
            reached = following(reached, digest)
        return ShowLedger(head, tuple(digests), self._newest(), tuple(terms)), str(reached)

    def _newest(self) -> tuple[bytes, ...]:
        return tuple(self._settled[-MAX_SETTLED_SUMS:])

    def note_round(self, outcomes: Mapping[str, str]) -> None:
        """Note the outcomes of a round, by party; ``answered`` holds who answered the last one.

        A sum that waited may hold the answers of parties that have left the roster since.

        A party that lost its connection must come back before it is asked again. A party that broke the protocol is
        not asked again. A party that was late stays ready for the next round.
        """
        self.answered = [party for party, outcome in outcomes.items() if outcome == ANSWERED]
        for party, outcome in outcomes.items():
            if outcome not in (ANSWERED, "deadline") and party in self.statuses:
                self.statuses[party] = replace(self.statuses[party], outcome=outcome)

    def _describe(self, going: list[str], limit_s: float, on_answer: OnAnswer | None) -> list[str]:
        still, witnesses = [], self._ledger.witnesses()
        for party, reply in ask_each(self._parties, going, Describe(), limit_s, on_answer).items():
            if not isinstance(reply, Description):
                self._note(party, reply)
            elif reply.party != party:
                self.statuses[party] = PartyStatus(f"identity: calls itself {reply.party}")
            elif forgotten := self._forgotten(reply, witnesses.get(party)):
                self.statuses[party] = PartyStatus(forgotten)
                self._heads.pop(party, None)  # it is not shown the ledger, and so stays behind
            else:
                said = reply.teachers, reply.software, reply.teacher_kind, reply.persons
                self.statuses[party] = PartyStatus("unreachable", *said)
                self._heads[party] = reply.ledger_head
                still.append(party)
        return still

    def _forgotten(self, reply: Description, witness: Witness | None) -> str:
        """Why a party that is behind the entry that it signed cannot go on; empty where it is not, or may begin anew.

        It has lost what it answered since. Records would vote once more than the ledger has paid for.
        """
        number = reply.ledger_head.partition(":")[0]
        if witness is None or Head.parse(witness.head).seq <= (int(number) if number.isdecimal() else -1):
            return ""
        return _OLDER_COPY if witness.key == self._keys.get(reply.party) else _ADDED_AGAIN if self._voted else ""

    def _send_pool(self, going: list[str], limit_s: float, on_sent: OnAnswer | None) -> list[str]:
        states = send_pool(
            self._parties, going, self._public.pool.x, self._public.spec, timeout_s=limit_s, on_sent=on_sent
        )
        for party in going:
            if isinstance(state := states[party], Failure):
                self._note(party, state)
        return [party for party in going if isinstance(states[party], PoolState)]

    def _fit(self, going: list[str], limit_s: float, on_answer: OnAnswer | None) -> None:
        if (teacher := self._teacher) is None:
            for party in going:
                self.statuses[party] = replace(self.statuses[party], outcome=READY, teachers=0)
            return
        for party, reply in ask_each(self._parties, going, Fit(teacher), limit_s, on_answer).items():
            if not isinstance(reply, Fitted):
                self._note(party, reply)
            elif not 1 <= reply.teachers <= teacher.per_party:
                said = f"protocol: has {reply.teachers} teachers where 1 to {teacher.per_party} were asked"
                self.statuses[party] = replace(self.statuses[party], outcome=said)
            else:
                self.statuses[party] = replace(self.statuses[party], outcome=READY, teachers=reply.teachers)

    def _note(self, party: str, reply: ReplyBody) -> None:
        failure = reply if isinstance(reply, Failure) else Failure("protocol", f"answered {type(reply).__name__}")
        self.statuses[party] = replace(self.statuses[party], outcome=outcome_of(failure))
