"""What a request for votes asks of this party, input by input, and what that costs: what its book is asked for."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from collegium.parties.answered import Cost
from collegium.parties.terms import mechanism_of
from collegium.privacy.mechanisms import Adjacency, AnsweredBy, Mechanism, SumMode, Unit
from collegium.protocol.requests import CastNeighbours, CastVotes, CountNearest, SumRecords, VoteRequest

_EVERY_KIND = b"exact sums over all records"
"""Stands for what such sums are about, where others are about an input."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What a request for votes asks of this party; see `answered.Asked`."""

    request: VoteRequest
    mechanism: Mechanism
    keys: Sequence[bytes]
    uses: Sequence[bytes]
    alike: Sequence[bytes]
    roster: bytes

    @classmethod
    def to(cls, run_id: str, body: VoteRequest, contents: Sequence[bytes], roster: bytes) -> "Answer":
        """The answer that ``body`` asks for within a run.

        Parameters
        ----------
        contents : names each input by what it is: a pool that was reversed, or changed in another place, holds the
            same inputs.
        roster : digest of the parties that the answer is summed with.

        Raises
        ------
        MechanismRefused, ModeRefused
            If the terms describe no mechanism that a party answers.
        """
        mechanism, terms = mechanism_of(body), body.terms
        # A mechanism with a sum for each stage needs an answer for each; sampled neighbours two, by distance and class.
        part = f"{terms.stage if mechanism.sum_per_stage else ''}:{isinstance(body, CountNearest) and body.by_class}"
        keys = [hashlib.sha256(b"%s:%s" % (row, part.encode())).digest() for row in contents]
        alike: Sequence[bytes] = []
        if terms.sum_mode == SumMode.MASKED:
            sampled = contents if isinstance(body, CountNearest) else []
            alike = [_EVERY_KIND] if isinstance(body, SumRecords) else [b"sample near %s" % row for row in sampled]
        parameters = dict(terms.parameters)
        if terms.sum_mode == SumMode.MASKED_AND_NOISED:
            # Every answer has its own noise and is paid: a party that joins or leaves stands in the way of none.
            roster, parameters["honest_survivors"] = b"", 0
        under = (
            run_id,
            terms.mechanism,
            sorted(parameters.items()),
            terms.adjacency,
            terms.sum_mode,
            terms.stage,
        )
        common = f"{under}|{_voters(body)}|".encode() + roster
        uses = [hashlib.sha256(common + _detail(body, row)).digest() for row in range(len(keys))]
        return cls(body, mechanism, keys, uses, alike, roster)

    @property
    def exact(self) -> bool:
        """Whether the same answer comes out when it is asked for again; the parties' own noise is always fresh."""
        return self.request.terms.sum_mode != SumMode.MASKED_AND_NOISED

    @property
    def one_voter(self) -> bool:
        """Whether the records pay as one voter, the party itself."""
        return isinstance(self.request, CastNeighbours) and self.request.per_party

    @cached_property
    def cost(self) -> Cost | None:
        """What one input costs; None where the records pay, each from its own budget."""
        request, mechanism, terms, votes = self.request, self.mechanism, self.request.terms, 1
        whose: Literal["party", "record"]
        if mechanism.answered_by is AnsweredBy.TEACHERS:
            whose, votes = "party", request.highest
        elif isinstance(request, SumRecords):
            whose = "party" if request.per_party else "record"
        elif isinstance(request, CountNearest) and request.by_class:
            whose = "record"
        else:
            return None
        parameters = ", ".join(f"{key} {value}" for key, value in mechanism.parameters().items())
        purpose = f"{terms.stage or 'votes'} of {mechanism.name} ({parameters}; {terms.sum_mode}; {votes} votes)"
        # A record decides the vote of one teacher: without the record that teacher may vote for another class. It may
        # turn the one vector of a party as far as another party's would: shares change with the number of records.
        one_vote = Unit(1, Adjacency.REPLACE if whose == "party" else Adjacency.ADD_REMOVE)
        laws = {"record": mechanism.answer_law(one_vote, terms.stage)}
        laws[whose] = mechanism.answer_law(Unit(votes, Adjacency.ADD_REMOVE), terms.stage)
        return Cost(whose, purpose, laws)


def _voters(body: VoteRequest) -> str:
    if isinstance(body, CastVotes):
        return f"{body.teacher.canonical_json()}|{body.ledger_id}"
    if isinstance(body, SumRecords):
        return f"{body.ledger_id}|{body.question.hex()}"
    kernel = body.kernel if isinstance(body, CastNeighbours) else ""
    return f"{body.features.digest()}|{kernel}|{body.ledger_id}"


def _detail(body: VoteRequest, row: int) -> bytes:
    if isinstance(body, CastNeighbours):
        return b"%d" % body.radii_squared[row]
    return body.edges_squared[row].tobytes() if isinstance(body, CountNearest) else b""
