"""The votes of the k nearest records of all parties, by two sums: counts by distance, then counts by class.

All sampled records stand in one fixed order around a query: by the interval that holds their distance, then by a
public permutation of the classes that belongs to the query. The first k of them vote, or all of them where there are
fewer. Records of one interval and one class need no order, as the votes are the same whichever is kept. If one record
is added or removed, at most one of the first k is swapped: two counts move by 1, and the largest count by at most 1.
docs/private-knn.md proves it.

Where records hold several labels there is no such order. The records of the interval in which the k-th lies share the
places that are left, and each of them votes in part. If one record is added or removed, one vote, or less, is swapped
for a mean of votes.

Both sums must be about the same records, or one record could move more votes than the proof allows. Where a party drops
out between the two sums, the second is not opened, and both are asked for again without that party. Under masks,
parties open all sums about an input, of whatever stage, with the same parties.
"""

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from collegium.coordinator.rounds.rounds import ANSWERED, RoundResult, VoteRound, VoteSum, require_quorum
from collegium.errors import ProtocolViolation, QuorumNotReached
from collegium.limits import MAX_RADIUS_SQUARED
from collegium.privacy.multilabel import RESOLUTION
from collegium.privacy.units import IntArray
from collegium.protocol.requests import CountNearest, PoolRange

_DO_NOT_FIT = (
    "the counts by class do not add up to the counts by distance: a party answered about other records; "
    "ask the parties, or run one round in the mode 'clear' to find which"
)


def class_orders(inputs: PoolRange, classes: int) -> IntArray:
    """A permutation of the classes for each query, shape ``[queries, classes]``: first to last to be a neighbour."""
    seeds = [hashlib.sha256(f"collegium class order|{inputs.pool_sha256}|{at}".encode()) for at in inputs.indices]
    drawn = [np.random.default_rng(int.from_bytes(seed.digest(), "big")).permutation(classes) for seed in seeds]
    return np.stack(drawn).astype(np.int64)


def edges_of_cut(by_distance: IntArray, edges_squared: IntArray, k: int) -> IntArray:
    """The edges of the interval in which the k-th record lies, shape ``[queries, 2]``; the last where there are fewer.

    Parameters
    ----------
    by_distance : records per interval, ``[queries, edges + 1]``; entries may stop at k.
    """
    outer = np.full((len(edges_squared), 1), MAX_RADIUS_SQUARED, dtype=np.int64)
    borders = np.concatenate([np.zeros_like(outer), edges_squared, outer], axis=1)
    cut = _cut(by_distance, k)[:, None]
    return np.concatenate([np.take_along_axis(borders, cut + offset, axis=1) for offset in (0, 1)], axis=1)


def votes_of_nearest(by_distance: IntArray, by_class: IntArray, orders: IntArray, k: int) -> IntArray:
    """The classes of the first k records, shape ``[queries, classes]``; a row sums to k, or to less with fewer records.

    Parameters
    ----------
    by_distance : as for `edges_of_cut`.
    by_class : classes nearer than the cut and then those within it, ``[queries, 2 · classes]``, of the same records.
    orders : see `class_orders`.

    Raises
    ------
    ProtocolViolation
        If the two sums cannot be about the same records.
    """
    nearer, within = np.split(by_class, 2, axis=1)
    expected, at_least = _around_cut(by_distance, k)
    if (nearer.sum(axis=1) != expected[:, 0]).any() or (within.sum(axis=1) < at_least[:, 0]).any():
        raise ProtocolViolation(_DO_NOT_FIT)
    in_order = np.take_along_axis(within, orders, axis=1)
    room = k - expected - (np.cumsum(in_order, axis=1) - in_order)
    kept = np.zeros_like(within)
    np.put_along_axis(kept, orders, np.clip(room, 0, in_order), axis=1)
    votes: IntArray = nearer + kept
    return votes


def shares_of_nearest(by_distance: IntArray, by_label: IntArray, k: int) -> IntArray:
    """The sums of k records' clipped votes, in parts of a vote, ``[queries, labels]``; of less where there are fewer.

    Parameters
    ----------
    by_distance : as for `edges_of_cut`.
    by_label : clipped votes nearer than the cut and then those within it, ``[queries, 2 · labels]``, of the same
        records; of more than k records of a party within it, k times their mean.

    Raises
    ------
    ProtocolViolation
        If the two sums cannot be about the same records.
    """
    nearer, within = np.split(by_label, 2, axis=1)
    before, inside = _around_cut(by_distance, k)
    if (nearer > before * RESOLUTION).any() or (within > inside * RESOLUTION).any():
        raise ProtocolViolation(_DO_NOT_FIT)
    votes: IntArray = nearer + np.clip(k - before, 0, inside) * within // np.maximum(inside, 1)
    return votes


def _around_cut(by_distance: IntArray, k: int) -> tuple[IntArray, IntArray]:
    """Records nearer than the cut and within it, ``[queries, 1]`` each."""
    before = np.cumsum(by_distance, axis=1) - by_distance
    cut = _cut(by_distance, k)[:, None]
    return np.take_along_axis(before, cut, axis=1), np.take_along_axis(by_distance, cut, axis=1)


def _cut(by_distance: IntArray, k: int) -> IntArray:
    reached = np.cumsum(by_distance, axis=1) >= k
    last = by_distance.shape[1] - 1
    cut: IntArray = np.where(reached.any(axis=1), reached.argmax(axis=1), last).astype(np.int64)
    return cut


_ATTEMPTS = 2


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
        asked, outcomes = dict(teachers), dict[str, str]()

        def added(body: CountNearest, quorum: int, again: bool) -> RoundResult:
            width = body.width(classes)
            part = replace(round_, request=body, teachers=asked, width=width, quorum=quorum, second_sum=again)
            result = self.counts.sum_votes(part)
            outcomes.update(result.outcomes)
            return result

        for attempt in range(_ATTEMPTS):
            far = added(request, round_.quorum, attempt > 0)
            asked = {name: teachers[name] for name in far.answered}
            edges = edges_of_cut(far.counts, request.edges_squared, request.k)
            by_class = replace(request, edges_squared=edges, by_class=True, round_id=f"{request.round_id}.classes")
            try:
                near = added(by_class, len(asked), attempt > 0)
            except QuorumNotReached as error:
                outcomes.update(error.outcomes)
                asked = {name: teachers[name] for name in asked if error.outcomes.get(name) == ANSWERED}
                continue
            votes = _votes(request, far.counts, near.counts, classes)
            return RoundResult(votes, near.answered, outcomes, near.teachers)
        require_quorum(outcomes, round_.quorum)
        raise QuorumNotReached(
            f"parties dropped out between the two sums of a round {_ATTEMPTS} times: start the run again when all are "
            "back (nothing is paid twice)"
        )


def _votes(request: CountNearest, by_distance: IntArray, by_class: IntArray, classes: int) -> IntArray:
    if request.tau is not None:
        return shares_of_nearest(by_distance, by_class, request.k)
    return votes_of_nearest(by_distance, by_class, class_orders(request.inputs, classes), request.k)
