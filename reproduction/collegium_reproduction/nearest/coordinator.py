"""The votes of the k nearest records of all parties, from their counts by distance and class.

All sampled records stand in one fixed order around a query: by the interval that holds their distance, then by a
public permutation of the classes that belongs to the query. The first k of them vote, or all of them where there are
fewer. Records of one interval and one class need no order, as the votes are the same whichever is kept. If one record
is added or removed, at most one of the first k is swapped: two counts move by 1, and the largest count by at most 1.
docs/research/private-knn.md proves it.

Where records hold several labels there is no such order. The records of the interval in which the k-th lies share the
places that are left, and each of them votes in part. If one record is added or removed, one vote, or less, is swapped
for a mean of votes.

One question counts every interval, and the coordinator finds the one that holds the k-th record: no party learns it.
"""

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from collegium.coordinator.kinds.near_records import OfRecords
from collegium.coordinator.selection.pool_geometry import distances_of_pool
from collegium.coordinator.settings.kinds import register
from collegium.coordinator.settings.run_config import NeighboursConfig
from collegium.limits import MAX_CLASSES, MAX_NEIGHBOUR_COUNT
from collegium.protocol.question import PoolRange, Question, QuestionTerms
from collegium_accounting.units import IntArray
from collegium_reproduction.clipped_votes import RESOLUTION
from collegium_reproduction.nearest.question import CountNearest

_REACH = 32.0
_FINENESS = 3.0


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


def nearest_edges_squared(
    features: NDArray[np.int16], queries: NDArray[np.int64], share: float, bins: int
) -> NDArray[np.int64]:
    """Edges of ``bins`` intervals of squared distance around each query, int64 ``[queries, bins - 1]``.

    Quantiles of the pool's distances, closest together where a ``share`` of it lies nearer, as of the private records
    the k-th of the sample is expected to, and reaching from 1/32 of that share to 32 times.

    Parameters
    ----------
    features : of the whole pool, ``[inputs, dimensions]``.
    queries : positions in the pool; a query is no neighbour of its own.
    """
    steps = np.linspace(-1.0, 1.0, bins - 1) if bins > 2 else np.zeros(1)
    ratios = np.exp(math.log(_REACH) * np.sinh(_FINENESS * steps) / math.sinh(_FINENESS))
    ranks = np.minimum(share * ratios, 1.0) * (len(features) - 1)
    edges = np.empty((len(queries), bins - 1), dtype=np.int64)
    for row, distances in enumerate(distances_of_pool(features, queries)):
        edges[row] = np.ceil(np.interp(ranks, np.arange(len(distances)), np.sort(distances)))
    return edges


class NearestConfig(NeighboursConfig):
    """The section neighbours for ``knn`` and ``multilabel-knn``; ``share`` is where the k-th neighbour is expected.

    It is about k / (sampling rate × records of all parties).
    """

    k: int = Field(ge=1, le=MAX_NEIGHBOUR_COUNT)
    """Neighbours that vote on each query."""
    bins: int = Field(default=64, ge=2, le=MAX_CLASSES)
    """Intervals of distance that are told apart."""
    records_at_least: int | None = Field(default=None, ge=1)
    """What is publicly known of the number of records of all parties; too large a k is then refused."""


@register
class NearestRecords(OfRecords):
    """Asks `CountNearest`.

    How many records were sampled depends on private records, and a run that stopped for it would tell: with fewer
    votes the noisy test against the threshold abstains, and that is paid for.
    """

    question = CountNearest
    settings = NearestConfig

    @classmethod
    def check(cls, config: Any) -> None:
        name, settings = config.mechanism.name, config.neighbours
        if config.budget.unit != "record":
            raise ValueError(f"{name} protects records: budget.unit must be 'record'")
        if settings.kernel != "flat":
            raise ValueError(f"{name} has the kernel 'flat'")
        if config.task.multilabel and settings.k * RESOLUTION > MAX_NEIGHBOUR_COUNT:
            raise ValueError(f"neighbours.k is at most {MAX_NEIGHBOUR_COUNT // RESOLUTION} with {name}")
        rate = config.mechanism.parameters.get("sampling_rate", 1.0)
        if settings.records_at_least is not None and settings.k > rate * settings.records_at_least:
            raise ValueError(
                f"neighbours.k is {settings.k}, but a sample of {settings.records_at_least} records at the rate "
                f"{rate:g} is expected to hold {rate * settings.records_at_least:g}: lower k or raise sampling_rate"
            )

    @classmethod
    def decided(cls, config: Any) -> dict[str, Any]:
        return {"k": config.neighbours.k}

    @classmethod
    def entries(cls, config: Any) -> int:
        return int(config.neighbours.bins) * (len(config.task.classes) + bool(config.task.multilabel))

    def ask(self, terms: QuestionTerms, inputs: PoolRange) -> CountNearest:
        settings, classes = self.settings_here, len(self.facts.config.task.classes)
        assert isinstance(settings, NearestConfig)  # `settings` of this class
        positions = np.asarray(inputs.indices, dtype=np.int64)
        edges = nearest_edges_squared(self.values, positions, settings.share, settings.bins)
        return CountNearest(terms, self.facts.of_study, self.features, inputs, classes, edges)

    def votes(self, question: Question, counts: IntArray) -> IntArray:
        assert isinstance(question, CountNearest)
        return votes_in(question, counts)


def votes_in(question: CountNearest, counts: IntArray) -> IntArray:
    """The first k records' votes in exact counts of the question's shape; of several labels see `shares_of_nearest`."""
    cells = counts.reshape(len(counts), question.intervals, question.per_interval)
    if question.tau is not None:
        return shares_of_nearest(cells, question.k)
    return votes_of_nearest(cells, class_orders(question.inputs, question.classes), question.k)
