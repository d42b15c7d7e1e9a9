"""Private-kNN with all records in one trusted process: the exact k nearest, which the federated bins approximate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.rounds.rounds import ANSWERED, GroupCounts, RoundResult, VoteRound
from collegium.data.several_labels import held_in
from collegium.parties.neighbours.search import DistanceView
from collegium_accounting.mechanisms import COORDINATOR, AddedBy
from collegium_accounting.units import IntArray
from collegium_reproduction.clipped_votes import clipped_votes
from collegium_reproduction.nearest.coordinator import class_orders, shares_of_nearest
from collegium_reproduction.nearest.party import SampledRecords
from collegium_reproduction.nearest.question import CountNearest


@dataclass(frozen=True, eq=False)
class ExactNearest:
    """A `VoteSum` that sees every record: neighbours in the order of their distances, and of the classes at equal ones.

    The samples are those that the same records draw for the same questions as parties, so that the two can be
    compared vote by vote; the sensitivity is the same, by the same proof.

    Parameters
    ----------
    records : by the names of the parties whose they are; one name for all of them is as good.
    pool : the public inputs, ``[inputs, …]``.
    run_id : of the run, part of what names a sample.
    """

    records: Mapping[str, SampledRecords]
    pool: NDArray[Any]
    run_id: str
    mode: str = "clear"
    added: AddedBy = COORDINATOR

    def sum_votes(self, round_: VoteRound) -> RoundResult:
        """See `VoteSum.sum_votes`; everybody answers, and the k nearest records are all in the first interval."""
        question = round_.question
        assert isinstance(question, CountNearest)
        k, classes = question.k, question.classes
        orders = class_orders(question.inputs, classes)
        asked = self.pool[np.array(question.inputs.indices)]
        counts = np.zeros((len(asked), question.intervals, question.per_interval), dtype=np.int64)
        together = zip(*(self._closest(held, question, asked, k) for held in self.records.values()), strict=True)
        for row, parts in enumerate(together):
            distances, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
            if question.tau is None:
                counts[row, 0] = exact_votes(distances, labels, orders[row], k, classes)
            else:
                shares = exact_shares(distances, clipped_votes(held_in(labels, classes), question.tau), k)
                counts[row, 0] = [min(len(distances), k), *shares]
        names = tuple(sorted(round_.teachers))
        total = counts.reshape(len(asked), -1)
        return RoundResult(total, names, dict.fromkeys(names, ANSWERED), 0, (GroupCounts(total, names),))

    def _closest(self, held: SampledRecords, question: CountNearest, asked: NDArray[Any], k: int) -> Any:
        for around, sampled in held.samples(self.run_id, question, asked):
            rows, distances = closest(around, sampled, k)
            yield distances, held.labels[rows]


def closest(view: DistanceView, places: IntArray, k: int) -> tuple[IntArray, IntArray]:
    """Those of ``places`` that can be among the ``k`` nearest of them, ties included, with exact squared distances."""
    if len(places) > k:
        near = view.near[places].astype(np.float64)
        places = places[near <= np.partition(near, k - 1)[k - 1] + 2 * view.error]
    distances = view.exact(places)
    if len(places) > k:
        kept = distances <= np.partition(distances, k - 1)[k - 1]
        places, distances = places[kept], distances[kept]
    return places, distances


def exact_votes(distances: IntArray, labels: IntArray, order: IntArray, k: int, classes: int) -> IntArray:
    """The votes, shape ``[classes]``, where every record's own squared distance is known: nearest first, then by class.

    Parameters
    ----------
    distances, labels : of at least the k nearest records, ties with the k-th included; shape ``[n]``.
    order : the query's permutation of the classes.
    """
    rank = np.argsort(order)
    first = np.lexsort((rank[labels], distances))[:k]
    votes: IntArray = np.bincount(labels[first], minlength=classes).astype(np.int64)
    return votes


def exact_shares(distances: IntArray, votes: IntArray, k: int) -> IntArray:
    """The same of clipped votes ``[n, labels]``, in parts: records level with the k-th share the places left."""
    if len(distances) == 0:
        return np.zeros(votes.shape[1], dtype=np.int64)
    last = np.partition(distances, min(k, len(distances)) - 1)[min(k, len(distances)) - 1]
    nearer, level = distances < last, distances == last
    counts = np.stack([[inside.sum(), *votes[inside].sum(axis=0)] for inside in (nearer, level)])
    shares: IntArray = shares_of_nearest(counts[None], k)[0]
    return shares
