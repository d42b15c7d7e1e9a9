"""A party's part in secure sums: its prepared answer enters the sum of its round and is used for nothing else.

Which counts, how many of them and with how much noise follow from the question that the party answered with
``Prepared``; the coordinator's proposal for the sum must agree with it.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, MutableSet
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ProtocolViolation, UnnamedParties
from collegium.parties.gate import AnswerGate, LeavingAnswer
from collegium.parties.policy import described
from collegium.protocol.messages import Request
from collegium.protocol.question import Question
from collegium.protocol.replies import SecureSumAnswer
from collegium.protocol.requests import Ask, SecureSumStep
from collegium.protocol.secure_sum import PartySum, accept_parameters
from collegium.protocol.secure_sum.errors import InsufficientPlan
from collegium.protocol.secure_sum.setup import SumSetup
from collegium_accounting.noise.sources import source_of

_MAX_OPEN_SUMS = 8


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
    used_rounds : rounds begun before; durable where a restart must not run one again.
    random_bytes : source of a round's secrets, given its id; the operating system's unless simulated.
    unnamed : the parties for whom the coordinator's newest roster was refused.
    noise_seed : for research: this party's noise follows from it, its name and the question, and protects nobody. None,
        as anybody with records of real persons has it, draws from the operating system.
    """

    consortium: str
    roster: Mapping[str, bytes]
    sign: Callable[[bytes], bytes] = field(repr=False)
    collusion_fraction: float = 0.1
    vouched: int = 0
    used_rounds: MutableSet[str] = field(default_factory=set, repr=False)
    random_bytes: Callable[[str], Callable[[int], bytes]] = field(default=lambda _: os.urandom, repr=False)
    unnamed: Callable[[], tuple[str, ...]] = field(default=tuple, repr=False)
    noise_seed: int | None = field(default=None, repr=False)


PreparedAnswer = Callable[[str, str], tuple[Ask, NDArray[np.int64]]]
"""Finds, by run and round, what was asked and the counts kept for it."""

OnLeaving = Callable[[str, Ask], None]
"""Called with the run and what was asked; what it raises keeps the answer here."""


class SumHandler:
    """Answers the phases of secure sums over prepared answers; ``leave`` is called before a masked vector leaves."""

    def __init__(
        self, name: str, membership: Membership, prepared: PreparedAnswer, gate: AnswerGate, leave: OnLeaving
    ) -> None:
        self._name = name
        self._membership = membership
        self._prepared = prepared
        self._gate, self._leave = gate, leave
        self._sums: OrderedDict[bytes, tuple[PartySum, LeavingAnswer, Callable[[], None]]] = OrderedDict()

    def __call__(self, request: Request) -> SecureSumAnswer:
        assert isinstance(request.body, SecureSumStep)
        step = request.body.message
        if step.WhichOneof("phase") == "advertise_keys":
            self._begin(request)
        if step.setup not in self._sums:
            raise ProtocolViolation("this party takes no part in that sum: begin with a new round")
        running, leaving, leave = self._sums[step.setup]
        reply = SecureSumAnswer(running.handle(step))
        try:
            if step.WhichOneof("phase") == "mask_input":
                leaving.let_out()
                leave()
            elif step.WhichOneof("phase") == "sign_survivors":
                leaving.open_with(running.opened)
        except Exception:
            del self._sums[step.setup]  # nothing of this sum is answered any more
            raise
        return reply

    def _begin(self, request: Request) -> None:
        assert isinstance(request.body, SecureSumStep)
        member = self._membership
        parameters = request.body.message.advertise_keys.parameters
        if parameters.consortium != member.consortium:
            raise ProtocolViolation(f"a sum of the consortium {parameters.consortium[:64]!r} is not ours")
        if names := member.unnamed():
            raise UnnamedParties(UnnamedParties.text + ", ".join(names))
        roster = dict(member.roster)
        demanded = member.collusion_fraction * max(len(roster), member.vouched) / max(1, len(roster))
        setup = accept_parameters(parameters, roster, collusion_fraction=demanded)
        ask, counts = self._prepared(request.run_id, setup.round_id)
        question = ask.question
        if setup.length != counts.size:
            raise ProtocolViolation(f"a sum of {setup.length} entries does not fit the round's {counts.size} counts")
        if (setup.low, setup.high) != (question.low, question.high):
            # Another range would tell, by a value that does not fit, how large this party's own are.
            raise ProtocolViolation(f"a sum of values up to {setup.high} is not what this round's answers need")
        leaving = self._gate.summed(request.run_id, question, counts, roster)
        running = PartySum(
            setup,
            self._name,
            member.sign,
            leaving.counts.reshape(-1),
            member.used_rounds,
            noise=_noise_share(question, setup, member.noise_seed, self._name),
            random_bytes=member.random_bytes(setup.round_id),
        )
        self._sums[setup.digest] = running, leaving, partial(self._leave, request.run_id, ask)
        while len(self._sums) > _MAX_OPEN_SUMS:
            self._sums.popitem(last=False)


def _noise_share(question: Question, setup: SumSetup, seed: int | None, name: str) -> NDArray[np.int64] | None:
    """This party's noise where the terms of the round promise it, from the mechanism that was checked and charged.

    The terms state how many honest parties' shares make up the noise; the graph of the sum decides it.
    """
    mechanism = described(question)
    share = mechanism.stages_asked(question.terms.stage)[0].share
    if share is None:
        if setup.noise_reach:
            raise ProtocolViolation("room for noise in a round whose terms know of none")
        if not setup.plan.complete and (mechanism.sum_per_stage or question.several_sums):
            # In a sparse graph a listed party can be left out of one of several sums: the difference is its own.
            raise InsufficientPlan("several sums about the same records need the parties' noise or the complete graph")
        return None
    if share.honest_survivors != setup.plan.honest_survivors:
        raise ProtocolViolation("the terms count on another number of honest parties than the graph of the sum gives")
    if setup.noise_reach != share.reach(setup.plan.parties, setup.length):
        raise ProtocolViolation("the room left for noise does not follow from the terms")
    if seed is None:
        return share.draw(setup.length, source_of(None))
    # Each query has noise of its own, so that it is the same however a run is cut into batches or resumed.
    terms, inputs = question.terms, question.queries
    asked = repr((terms.mechanism, sorted(terms.parameters.items()), terms.stage, question.asked.hex()))
    queries = [""] if inputs is None else [f"{inputs.pool_sha256}:{index}" for index in inputs.indices]
    width = setup.length // len(queries)
    return np.concatenate([share.draw(width, source_of(seed, name, asked, query)) for query in queries])
