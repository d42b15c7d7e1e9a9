"""The votes of the k nearest records of all parties, from their counts by distance and class.

All sampled records stand in one fixed order around a query: by the interval that holds their distance, then by a
public permutation of the classes that belongs to the query. The first k of them vote, or all of them where there are
fewer. Records of one interval and one class need no order, as the votes are the same whichever is kept. If one record
is added or removed, at most one of the first k is swapped: two counts move by 1, and the largest count by at most 1.
docs/private-knn.md proves it.

Where records hold several labels there is no such order. The records of the interval in which the k-th lies share the
places that are left, and each of them votes in part. If one record is added or removed, one vote, or less, is swapped
for a mean of votes.

One question counts every interval, and the coordinator finds the one that holds the k-th record: no party learns it.
"""

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from collegium.coordinator.rounds.rounds import RoundResult, VoteRound, VoteSum
from collegium.privacy.units import IntArray
from collegium.protocol.kinds.nearest_records import CountNearest
from collegium.protocol.question import PoolRange


def class_orders(inputs: PoolRange, classes: int) -> IntArray:
    """A permutation of the classes for each query, shape ``[queries, classes]``: first to last to be a neighbour."""
    seeds = [hashlib.sha256(f"collegium class order|{inputs.pool_sha256}|{at}".encode()) for at in inputs.indices]
    drawn = [np.random.default_rng(int.from_bytes(seed.digest(), "big")).permutation(classes) for seed in seeds]
    return np.stack(drawn).astype(np.int64)


def votes_of_nearest(counts: IntArray, orders: IntArray, k: int) -> IntArray:
    """The classes of the first k records, shape ``[queries, classes]``; a row sums to k, or to less with fewer records.

    Parameters
    ----------
    counts : records per interval and class, ``[queries, intervals, classes]``; entries may stop at k.
    orders : see `class_orders`.
    """
    queries, intervals, classes = counts.shape
    # Every record's place in the order: interval by interval, and within it class by class.
    ordered = np.take_along_axis(counts, np.broadcast_to(orders[:, None, :], counts.shape), axis=2)
    flat = ordered.reshape(queries, intervals * classes)
    before = np.cumsum(flat, axis=1) - flat
    kept = np.clip(k - before, 0, flat).reshape(queries, intervals, classes).sum(axis=1)
    votes: IntArray = np.empty_like(kept)
    np.put_along_axis(votes, orders, kept, axis=1)
    return votes


def shares_of_nearest(counts: IntArray, k: int) -> IntArray:
    """The sums of k records' clipped votes, in parts of a vote, ``[queries, labels]``; of less where there are fewer.

    Parameters
    ----------
    counts : per interval the number of records and then the sums of their clipped votes by label,
        ``[queries, intervals, 1 + labels]``; of more than k records of a party in one, k times their mean.
    """
    records, parts = counts[:, :, 0], counts[:, :, 1:]
    before = np.cumsum(records, axis=1) - records
    places = np.clip(k - before, 0, records)[:, :, None]
    votes: IntArray = (places * parts // np.maximum(records, 1)[:, :, None]).sum(axis=1)
    return votes


@dataclass(frozen=True, eq=False)
class NearestSum:
    """A `VoteSum` of `CountNearest`, over another that adds up counts.

    How many records were sampled depends on private records, and a run that stopped for it would tell: with fewer
    votes the noisy test against the threshold abstains, and that is paid for.
    """

    counts: VoteSum

    @property
    def mode(self) -> str:
        return self.counts.mode

    def sum_votes(self, round_: VoteRound) -> RoundResult:
        """See `VoteSum.sum_votes`; of several labels a record see `shares_of_nearest`."""
        question = round_.question
        assert isinstance(question, CountNearest)
        result = self.counts.sum_votes(round_)
        counts = result.counts.reshape(len(result.counts), question.intervals, question.per_interval)
        if question.tau is not None:
            return replace(result, counts=shares_of_nearest(counts, question.k))
        orders = class_orders(question.inputs, question.classes)
        return replace(result, counts=votes_of_nearest(counts, orders, question.k))
