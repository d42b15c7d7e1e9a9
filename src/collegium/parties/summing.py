"""A party's part in secure sums: its prepared answer enters the sum of its round and is used for nothing else.

Which counts, how many of them and with how much noise follow from the question that the party answered with
``Prepared``; the coordinator's proposal for the sum must agree with it.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from collegium.errors import ProtocolViolation, UnnamedParties
from collegium.parties.answer_book import AnswerBook
from collegium.parties.answers import Answer
from collegium.parties.held_sums import HeldSum, HeldSums
from collegium.parties.policy import described
from collegium.protocol.messages import Request
from collegium.protocol.question import Question
from collegium.protocol.replies import SecureSumAnswer
from collegium.protocol.requests import Ask, SecureSumStep
from collegium.protocol.secure_sum import PartySum, Phase, SumSetup, accept_parameters
from collegium.protocol.secure_sum.errors import InsufficientPlan
from collegium.protocol.secure_sum.groups import group_of
from collegium.protocol.secure_sum.messages import phase_of
from collegium.protocol.v1 import secure_sum_pb2 as pb
from collegium_accounting.noise.sources import source_of
from collegium_accounting.units import IntArray


@dataclass(frozen=True, eq=False)
class Membership:
    """A party's identity and the roster of a secure sum.

    Parameters
    ----------
    consortium : its name, part of everything that is signed.
    roster : Ed25519 public key of every party, as this institution knows it; may change between rounds.
    sign : signs with this party's own Ed25519 identity.
    collusion_fraction : the share of the parties that this institution wants to be safe from.
    vouched : of how many parties it is a share, at least; the roster's own number may be of the operator's making.
    random_bytes : source of the secrets of one phase of a round, given both names; the operating system's unless
        simulated.
    unnamed : the parties for whom the coordinator's newest roster was refused.
    noise_seed : for research: this party's noise follows from it, its name and the question, and protects nobody. None,
        as anybody with records of real persons has it, draws from the operating system.
    """

    consortium: str
    roster: Mapping[str, bytes]
    sign: Callable[[bytes], bytes] = field(repr=False)
    collusion_fraction: float = 0.1
    vouched: int = 0
    random_bytes: Callable[[str], Callable[[int], bytes]] = field(default=lambda _: os.urandom, repr=False)
    unnamed: Callable[[], tuple[str, ...]] = field(default=tuple, repr=False)
    noise_seed: int | None = field(default=None, repr=False)


Asked = Callable[[str, Question, Mapping[str, bytes]], Answer | None]
"""What the book is asked for an answer of a run, summed over a roster; None counts nothing (simulations)."""
OnLeaving = Callable[[str, Ask], None]
"""Called with the run and what was asked; what it raises keeps the answer here."""


class SumHandler:
    """Answers the phases of secure sums over prepared answers; each step is in the answer book before its reply leaves.

    Parameters
    ----------
    book : keeps the sums that ``held`` tells of, and counts and charges what it is ``asked`` for.
    leave : called before a masked vector leaves.
    """

    def __init__(
        self, name: str, membership: Membership, book: AnswerBook, held: HeldSums, asked: Asked, leave: OnLeaving
    ) -> None:
        self._name, self._membership = name, membership
        self._book, self._held, self._asked, self._leave = book, held, asked, leave

    def __call__(self, request: Request) -> SecureSumAnswer:
        assert isinstance(request.body, SecureSumStep)
        step = request.body.message
        phase = phase_of(step)
        with self._book.changing():
            held = self._held.under(step.setup, numbers=phase is Phase.MASK)
            if held is None and phase is Phase.ADVERTISE:
                held = self._begin(request.run_id, step.advertise_keys.parameters)
            if held is None or held.setup is None or held.setup.digest != step.setup:
                raise ProtocolViolation("this party takes no part in that sum: begin with a new round")
            setup, before = held.setup, held.state
            running = PartySum(
                setup,
                self._name,
                self._membership.sign,
                None if held.vector is None else held.vector.reshape(-1),
                held.noise,
                self._membership.random_bytes(f"{setup.round_id}/{phase.name}"),
                before,
            )
            reply = SecureSumAnswer(running.handle(step))
            if running.state is before:
                return reply
            asked = self._asked(held.run_id, held.ask.question, setup.roster) if phase >= Phase.MASK else None
            if phase is Phase.MASK:
                assert held.vector is not None  # it is kept until it is masked
                if asked is not None:
                    self._book.leave(asked, held.vector, held.left_before)
                self._leave(held.run_id, held.ask)
            elif phase is Phase.SIGN and asked is not None:
                self._book.sign(asked, running.opened if asked.exact else running.signed)
            if before is None:
                self._held.begin(held, running.state)
            else:
                self._held.keep(held, running.state, masked=phase >= Phase.MASK)
        if phase in (Phase.MASK, Phase.SIGN):
            self._book.erase()
        return reply

    def _begin(self, run_id: str, parameters: pb.SumParameters) -> HeldSum:
        member = self._membership
        if parameters.consortium != member.consortium:
            raise ProtocolViolation(f"a sum of the consortium {parameters.consortium[:64]!r} is not ours")
        if names := member.unnamed():
            raise UnnamedParties(UnnamedParties.text + ", ".join(names))
        # All that collude may sit in this party's group.
        colluding = member.collusion_fraction * max(len(member.roster), member.vouched)
        roster = group_of(member.roster, parameters.groups, self._name, parameters.left_out)
        demanded = colluding / max(1, len(roster))
        setup = accept_parameters(parameters, roster, collusion_fraction=demanded)
        held = self._held.of(run_id, setup.round_id)
        question, counts = held.ask.question, held.vector
        assert counts is not None  # it is kept until it is masked
        if setup.length != counts.size:
            raise ProtocolViolation(f"a sum of {setup.length} entries does not fit the round's {counts.size} counts")
        if (setup.low, setup.high) != (question.low, question.high):
            # Another range would tell, by a value that does not fit, how large this party's own are.
            raise ProtocolViolation(f"a sum of values up to {setup.high} is not what this round's answers need")
        _check_noise(question, setup)
        if (asked := self._asked(run_id, question, roster)) is None:
            return replace(held, setup=setup)
        vector, left_before = self._book.kept(asked, counts)
        return replace(held, setup=setup, vector=vector, left_before=left_before)


def _check_noise(question: Question, setup: SumSetup) -> None:
    """Refuse a sum that has no room for the noise which the terms of the round promise, or less than they say of it.

    The terms state how many honest parties' shares make up the noise; the graph of the sum decides it.
    """
    described(question)  # refuses what the party does not answer
    share = question.share
    if share is None:
        if setup.groups > 1:
            raise InsufficientPlan(
                "sums of groups need the noise of their parties: exact ones show more than one of all"
            )
        if setup.noise_reach:
            raise ProtocolViolation("room for noise in a round whose terms know of none")
        if not setup.plan.complete and (question.per_stage or question.several_sums):
            # In a sparse graph a listed party can be left out of one of several sums: the difference is its own.
            raise InsufficientPlan("several sums about the same records need the parties' noise or the complete graph")
        return
    if share.honest_survivors > setup.plan.honest_survivors:
        raise ProtocolViolation("the terms count on more honest parties than the graph of the sum gives")
    if setup.noise_reach != share.reach(setup.plan.parties, setup.length):
        raise ProtocolViolation("the room left for noise does not follow from the terms")


def noise_for(question: Question, name: str, seed: int | None) -> IntArray | None:
    """The share of the noise that the party called ``name`` adds, ``[length]``; None where the coordinator adds it.

    ``seed`` is that of research, see `Membership`.
    """
    described(question)  # refuses what the party does not answer
    share = question.share
    rows, entries = question.shape
    if share is None or seed is None:
        return None if share is None else share.draw(rows * entries, source_of(None))
    # Each query has noise of its own, so that it is the same however a run is cut into batches or resumed.
    terms, inputs = question.terms, question.queries
    asked = repr((terms.mechanism, sorted(terms.parameters.items()), terms.stage, question.asked.hex()))
    queries = [""] if inputs is None else [f"{inputs.pool_sha256}:{index}" for index in inputs.indices]
    return np.concatenate([share.draw(entries, source_of(seed, name, asked, query)) for query in queries])
