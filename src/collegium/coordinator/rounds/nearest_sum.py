"""The votes of the k nearest records of all parties, by two sums: counts by distance, then by class.

Both sums must be about the same records, or one record could move more votes than the proof allows: who drops out
between them is left out of both, and both are asked for again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from collegium.coordinator.rounds.nearest_votes import (
    class_orders,
    edges_of_cut,
    shares_of_nearest,
    votes_of_nearest,
)
from collegium.coordinator.rounds.rounds import RoundResult, VoteRound, VoteSum, require_quorum
from collegium.errors import QuorumNotReached
from collegium.privacy.units import IntArray
from collegium.protocol.messages import CountNearest

_ATTEMPTS = 2
"""Parties agree to two answers per query unless their policy says otherwise."""


@dataclass(frozen=True, eq=False)
class NearestSum:
    """A `VoteSum` of `CountNearest`, over another that adds up counts."""

    counts: VoteSum

    @property
    def mode(self) -> str:
        return self.counts.mode

    def sum_votes(self, round_: VoteRound) -> RoundResult:
        """See `VoteSum.sum_votes`. Rows sum to k; to less, which nothing says aloud, where fewer records are sampled.

        Of several labels a record: see `shares_of_nearest`.

        How many were sampled depends on private records, and a run that stopped for it would tell: with fewer
        votes the noisy test against the threshold abstains, and that is paid for.
        """
        request, teachers, classes = round_.request, round_.teachers, round_.width
        assert isinstance(request, CountNearest)
        asked, outcomes = dict(teachers), dict.fromkeys(teachers, "unreachable")

        def added(body: CountNearest) -> RoundResult:
            result = self.counts.sum_votes(replace(round_, request=body, teachers=asked, width=body.width(classes)))
            outcomes.update(result.outcomes)
            return result

        for _ in range(_ATTEMPTS):
            far = added(request)
            asked = {name: teachers[name] for name in far.answered}
            edges = edges_of_cut(far.counts, request.edges_squared, request.k)
            near = added(replace(request, edges_squared=edges, by_class=True, round_id=f"{request.round_id}.classes"))
            if near.answered == far.answered:
                votes = _votes(request, far.counts, near.counts, classes)
                return RoundResult(votes, near.answered, outcomes, near.teachers)
            asked = {name: teachers[name] for name in near.answered}
        require_quorum(outcomes, round_.quorum)
        raise QuorumNotReached(
            f"parties dropped out between the two sums of a round {_ATTEMPTS} times: start the run again when all are "
            "back (nothing is paid twice)"
        )


def _votes(request: CountNearest, by_distance: IntArray, by_class: IntArray, classes: int) -> IntArray:
    if request.tau is not None:
        return shares_of_nearest(by_distance, by_class, request.k)
    return votes_of_nearest(by_distance, by_class, class_orders(request.inputs, classes), request.k)
